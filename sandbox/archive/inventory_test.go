package archive

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// answer is what the watcher says of these names, by letter.
func answer(names map[string][]string) string {
	var text strings.Builder
	for _, k := range kindLetters {
		for _, name := range names[k.letter] {
			text.WriteString("./" + name + "\x00")
		}
		if k.letter == "d" {
			text.WriteString(".\x00")
		}
		text.WriteString("\x00")
	}
	return text.String()
}

func TestInventory(t *testing.T) {
	text := answer(map[string][]string{"f": {"a", "a\nb", "\xff"}, "d": {"sub"}, "s": {"sub/sock"}, "c": {"null"}})
	reader := bufio.NewReader(strings.NewReader(text + "next"))
	list, err := ReadInventory(reader, 10, 32)
	require.NoError(t, err)
	require.False(t, list.Truncated)
	require.Equal(t, map[string]string{"a": "file", "a\nb": "file", "\xff": "file", "sub": "directory", "sub/sock": "socket", "null": "device"}, list.kinds)
	rest, err := io.ReadAll(reader)
	require.NoError(t, err)
	require.Equal(t, "next", string(rest), "not a byte too many is read")

	list, err = ReadInventory(bufio.NewReader(strings.NewReader(text)), 2, 32)
	require.NoError(t, err)
	require.True(t, list.Truncated)
	require.Len(t, list.paths, 2)
	require.Equal(t, 5, list.Files, "files are counted beyond the limit, directories are not")

	odd := "./" + strings.Repeat("x", 100_000) + "\x00/etc/passwd\x00./../up\x00..\x00./good\x00" + strings.Repeat("\x00", len(kindLetters))
	list, err = ReadInventory(bufio.NewReader(strings.NewReader(odd)), 10, 32)
	require.NoError(t, err)
	require.True(t, list.Truncated)
	require.Equal(t, []string{"good"}, list.paths)

	deep := strings.Repeat("d/", 20_000) + "f"
	list, err = ReadInventory(bufio.NewReader(strings.NewReader(answer(map[string][]string{"f": {"a/b", "a/b/c", "a/b/c/d", deep}}))), 10, 2)
	require.NoError(t, err)
	require.False(t, list.Truncated, "the directory above says what is deeper")
	require.Equal(t, []string{"a/b", "a/b/c"}, list.paths)
	require.Equal(t, 4, list.Files, "deep ones count")

	for cut := range len(text) {
		_, err := ReadInventory(bufio.NewReader(strings.NewReader(text[:cut])), 10, 32)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "cut at %d", cut)
	}
}

func TestSpace(t *testing.T) {
	for name, test := range map[string]struct {
		lines string
		want  Space
		ok    bool
	}{
		"GNU":            {"free /dev/sda1 264212084 19033936 76467328 20% /evalbox/final\nentries 12\nused 20\t.\n", Space{76467328 << 10, 12, 20 << 10, false}, true},
		"BusyBox":        {"free /dev/my disk   1000 500 7 100% /evalbox/final\nentries        3\nused 4       .\n", Space{7 << 10, 3, 4 << 10, false}, true},
		"too many":       {"free x 1 1 1 1% /\nentries 1000002\nused -\n", Space{1 << 10, 1000002, -1, false}, true},
		"endless":        {"free x 1 1 9223372036854775807 1% /\nentries 1\nused 1 .\n", Space{1 << 62, 1, 1 << 10, false}, true},
		"too deep":       {"free x 1 1 1 1% /\nentries 2\nused deep\n", Space{1 << 10, 2, -1, true}, true},
		"du failed":      {"free x 1 1 1 1% /\nentries 2\nused failed\n", Space{}, false},
		"no df":          {"free \nentries 1\nused 1 .\n", Space{}, false},
		"no du":          {"free x 1 1 1 1% /\nentries 1\nused \n", Space{}, false},
		"negative":       {"free x 1 1 -1 1% /\nentries 1\nused 1 .\n", Space{}, false},
		"something else": {"hello\n", Space{}, false},
		"cut":            {"free x 1 1 1 1% /\n", Space{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			from := bufio.NewReader(strings.NewReader(test.lines))
			got, err := ReadSpace(func() (string, error) { return from.ReadString('\n') })
			require.Equal(t, test.want, got)
			require.Equal(t, test.ok, err == nil, fmt.Sprint(err))
		})
	}
	_, err := ReadSpace(func() (string, error) { return "", errors.ErrUnsupported })
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

// FuzzInventory never fails and never reads more than is there.
func FuzzInventory(f *testing.F) {
	f.Add(answer(map[string][]string{"f": {"a"}, "d": {"b"}}))
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ReadInventory(bufio.NewReader(strings.NewReader(text)), 3, 3)
		if err == nil {
			require.LessOrEqual(t, len(list.paths), 3)
			for _, full := range list.paths {
				require.NotContains(t, strings.Split(full, "/"), "..")
			}
		}
	})
}
