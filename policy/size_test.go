package policy

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]Size{
		"0":                   0,
		"1":                   1,
		"512":                 512,
		"64b":                 64,
		"64B":                 64,
		"1k":                  KiB,
		"1K":                  KiB,
		"1kb":                 KiB,
		"1KiB":                KiB,
		"512m":                512 * MiB,
		"512M":                512 * MiB,
		"512MB":               512 * MiB,
		"64MiB":               64 * MiB,
		"64 MiB":              64 * MiB,
		"1.5g":                GiB + GiB/2,
		"2GiB":                2 * GiB,
		"3t":                  3 << 40,
		"1p":                  1 << 50,
		" 2g ":                2 * GiB,
		"\t2g\n":              2 * GiB,
		"0.5k":                512,
		"007":                 7,
		"8191p":               8191 << 50,
		"9007199254740992":    1 << 53,
		"9223372036854774784": math.MaxInt64 - 1023, // the largest that a float can tell from overflow
	} {
		got, err := ParseSize(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

func TestParseSizeRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":              "",
		"blanks":               " \t\n",
		"negative":             "-1",
		"negative with unit":   "-1g",
		"negative fraction":    "-0.5g",
		"unit alone":           "m",
		"unknown unit":         "5x",
		"unknown end":          "5kx",
		"unknown long end":     "5kibx",
		"bytes of bytes":       "5bb",
		"two numbers":          "1g 2g",
		"words":                "lots",
		"percent":              "50%",
		"infinite":             "inf",
		"infinite with a unit": "infg",
		"not a number":         "NaN",
		"one above the end":    "9223372036854775808",
		"the end":              "9223372036854775807",
		"far above the end":    "99999999999999999999999999",
		"overflow by the unit": "8192p",
		"above any float":      "1" + strings.Repeat("0", 400),
		"two points":           "1.2.3g",
		"comma":                "1,5g",
		"NUL":                  "1\x00g",
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseSize(text)
			require.Error(t, err)
			require.Zero(t, got)
			if len(text) < 40 {
				require.Contains(t, err.Error(), "size ", "the message names what was given")
			}
			require.NotContains(t, err.Error(), "\x00", "what was given is quoted")
		})
	}
}

func TestSizeString(t *testing.T) {
	for want, size := range map[string]Size{
		"0B":        0,
		"1B":        1,
		"1023B":     1023,
		"1KiB":      KiB,
		"1025KiB":   MiB + KiB,
		"64MiB":     64 * MiB,
		"1GiB":      GiB,
		"1024GiB":   1 << 40,
		"1536MiB":   GiB + GiB/2,
		"1.465KiB":  1500, // rounded
		"-1B":       -1,
		"-1048576B": -MiB,
	} {
		require.Equal(t, want, size.String())
	}
}

func TestSizeRounded(t *testing.T) {
	require.Equal(t, "23.54GiB", (24684096 * KiB).Rounded())
	require.Equal(t, "2GiB", (2 * GiB).Rounded())
}

// The size of a settings file must be the size that was set, to the byte.
func TestSizeSurvivesSettingsFile(t *testing.T) {
	for _, size := range []Size{0, 1, 1023, 1024, 1025, 1500, 999_999, MiB + 1, GiB - 1, GiB + 1, 20*GiB + 17, 1 << 53} {
		text, err := json.Marshal(map[string]Size{"memory": size})
		require.NoError(t, err)
		var back map[string]Size
		require.NoError(t, json.Unmarshal(text, &back), string(text))
		require.Equal(t, size, back["memory"], string(text))
	}
}

func TestSizeReadsAsFlagAndText(t *testing.T) {
	s := 7 * MiB
	require.Equal(t, "size", s.Type())
	require.Error(t, s.Set("many"))
	require.Equal(t, 7*MiB, s, "a refused text changes nothing")
	require.NoError(t, s.Set("3m"))
	require.Equal(t, 3*MiB, s)
	require.Error(t, s.UnmarshalText([]byte("-1")))
	require.NoError(t, s.UnmarshalText([]byte("4m")))
	require.Equal(t, 4*MiB, s)
}

// FuzzParseSize checks that no text gives a negative size, and that a size that
// prints exactly reads as itself.
func FuzzParseSize(f *testing.F) {
	for _, seed := range []string{"", "0", "1", "-1", "512m", "1.5g", "64 MiB", "1e3", "0x1p4", "8191p", "9223372036854775807", "inf", "1_0", "+1k"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		size, err := ParseSize(text)
		if err != nil {
			require.Zero(t, size)
			return
		}
		require.GreaterOrEqual(t, size, Size(0))
		requireExactRoundTrip(t, size)
	})
}

// FuzzSizeRoundTrip goes the other way, over all sizes that a unit divides.
func FuzzSizeRoundTrip(f *testing.F) {
	for _, n := range []uint64{0, 1, 1023, 1024, 1 << 20, 3 << 29, 1 << 40, 1 << 62} {
		for unit := range uint8(4) {
			f.Add(n, unit)
		}
	}
	f.Fuzz(func(t *testing.T, n uint64, unit uint8) {
		requireExactRoundTrip(t, Size(n%(1<<53)>>(unit%4*10))<<(unit%4*10))
	})
}

// requireExactRoundTrip leaves out what is documented as rounded: sizes of a KiB
// and more that no unit divides, and numbers that a float does not hold.
func requireExactRoundTrip(t *testing.T, size Size) {
	t.Helper()
	if size >= KiB && size%KiB != 0 {
		return
	}
	back, err := ParseSize(size.String())
	require.NoError(t, err, size.String())
	require.Equal(t, size, back)
}
