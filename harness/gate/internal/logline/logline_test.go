package logline_test

import (
	"cmp"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/internal/logline"
)

const most = 8 << 10

// TestPieces: however the text comes, its pieces are the same and miss nothing.
func TestPieces(t *testing.T) {
	words := strings.Repeat("some words ", 2000)
	for name, text := range map[string]string{
		"empty": "", "one": "a", "lines": "a\n\nb\n", "no end": "a\nb", "long": words + "\nend\n",
		"no spaces": strings.Repeat("ß", 3*most) + "\n", "exactly": strings.Repeat("x", most) + "\n", "one less": strings.Repeat("x", most-1) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text)), iotest.DataErrReader(strings.NewReader(text))} {
				var back strings.Builder
				require.NoError(t, logline.Pieces(r, most, func(piece []byte, more bool) error {
					assert.LessOrEqual(t, len(piece), most)
					if more {
						assert.LessOrEqual(t, len(piece), most-logline.Reserve)
						assert.NotContains(t, string(piece), "\n")
					}
					back.Write(piece)
					return nil
				}))
				assert.Equal(t, text, back.String())
			}
		})
	}
}

func TestPiecesErrors(t *testing.T) {
	disk := errors.New("disk")
	first := ""
	err := logline.Pieces(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(disk)), most, func(piece []byte, _ bool) error {
		first = cmp.Or(first, string(piece))
		return nil
	})
	assert.ErrorIs(t, err, disk)
	assert.Equal(t, "a\n", first)
	assert.ErrorIs(t, logline.Pieces(strings.NewReader("a\nb"), most, func([]byte, bool) error { return disk }), disk)
}

func TestEach(t *testing.T) {
	var lines []string
	cuts := 0
	text := "\x1b[1ma\x1b[0m\r\n" + strings.Repeat("x", 3*most) + "\nend"
	require.NoError(t, logline.Each(strings.NewReader(text), most, func(line []byte, cut bool) {
		lines = append(lines, string(line))
		if cut {
			cuts++
		}
	}))
	require.Len(t, lines, 3)
	assert.Equal(t, "a", lines[0])
	assert.Equal(t, "end", lines[2])
	assert.Equal(t, 1, cuts)
	assert.Error(t, logline.Each(iotest.ErrReader(errors.New("disk")), most, func([]byte, bool) {}))
}

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		"a": "a", "a\r\r": "a", "\x1b[1;31mred\x1b[0m": "red", "\x1b]0;title\x07x": "x", "\x1b]8;;u\x1b\\l": "l",
		"\x1b(Bx": "x", "\x1bcx": "x", "a\x1b": "a", "\u009b1mx": "x",
	} {
		assert.Equal(t, want, string(logline.Plain([]byte(in))), "%q", in)
	}
}
