package gate

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
)

// Line is the first place where two texts differ.
type Line struct {
	// Line counts from 1. Want and Got are the beginnings of the lines there, empty
	// where the text has ended.
	Line int    `json:"line"`
	Want string `json:"want"`
	Got  string `json:"got"`
}

// maxShown bounds what is shown of a line, in bytes.
const maxShown = 200

// firstDifference compares a file of two directories; nil means that there is none. It
// streams, and memory does not grow with the length of lines.
func firstDifference(want, got *os.Root, name string) (*Line, error) {
	a, _, err := fsx.OpenIn(want, name)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	b, _, err := fsx.OpenIn(got, name)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	return compareLines(a, b)
}

// compareLines compares piece by piece. A piece is a line, or as much of one as the
// buffer takes; as long as all is the same, both have the same pieces.
func compareLines(want, got io.Reader) (*Line, error) {
	const piece = 64 << 10
	a, b := bufio.NewReaderSize(want, piece), bufio.NewReaderSize(got, piece)
	for line := 1; ; {
		x, errX := a.ReadSlice('\n')
		y, errY := b.ReadSlice('\n')
		if err := errors.Join(failed(errX), failed(errY)); err != nil {
			return nil, err
		}
		if !bytes.Equal(x, y) {
			return &Line{line, shown(x), shown(y)}, nil
		}
		if len(x) == 0 {
			return nil, nil
		}
		if x[len(x)-1] == '\n' {
			line++
		}
	}
}

// failed is an error of reading that is neither the end nor a long line.
func failed(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, bufio.ErrBufferFull) {
		return nil
	}
	return err
}

func shown(text []byte) string {
	text = bytes.TrimSuffix(text, []byte("\n"))
	if len(text) > maxShown {
		return strings.ToValidUTF8(string(text[:maxShown]), "�") + "…"
	}
	return strings.ToValidUTF8(string(text), "�")
}
