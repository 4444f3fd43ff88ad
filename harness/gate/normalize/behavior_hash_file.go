package normalize

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"slices"
)

// sortBytes is how many bytes of lines are sorted in memory at once.
const sortBytes = 32 << 20

// hashLines is [BehaviorHash] of a log of any size, with bounded memory: parts are sorted
// one by one, kept in temporary files, and merged.
func hashLines(log io.Reader, most int) (sum string, err error) {
	var parts []*part
	defer func() {
		for _, p := range parts {
			err = errors.Join(err, p.remove())
		}
	}()
	lines := bufio.NewReaderSize(log, 256<<10)
	var held [][]byte
	size := 0
	for more := true; more; {
		line, err := lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		more = err == nil
		if line = bytes.TrimSpace(line); len(line) > 0 {
			held = append(held, line)
			size += len(line)
		}
		if size < most {
			continue
		}
		p, err := newPart(held)
		if p != nil {
			parts = append(parts, p)
		}
		if err != nil {
			return "", err
		}
		held, size = nil, 0
	}
	slices.SortFunc(held, bytes.Compare)
	return merge(parts, held)
}

// merge hashes the lines of all parts and those that are held, in their order.
func merge(parts []*part, held [][]byte) (string, error) {
	for _, p := range parts {
		if err := p.next(); err != nil {
			return "", err
		}
	}
	sum := lineHash{sum: sha256.New()}
	for {
		var least *part
		for _, p := range parts {
			if !p.ended && (least == nil || bytes.Compare(p.line, least.line) < 0) {
				least = p
			}
		}
		switch {
		case len(held) > 0 && (least == nil || bytes.Compare(held[0], least.line) <= 0):
			sum.add(held[0])
			held = held[1:]
		case least == nil:
			return sum.hex(), nil
		default:
			sum.add(least.line)
			if err := least.next(); err != nil {
				return "", err
			}
		}
	}
}

// part is a temporary file of sorted lines.
type part struct {
	file  *os.File
	lines *bufio.Reader
	line  []byte
	ended bool
}

// newPart writes one. It returns a part with an error too if there is a file to remove.
func newPart(lines [][]byte) (*part, error) {
	slices.SortFunc(lines, bytes.Compare)
	file, err := os.CreateTemp("", "evalbox-log-*")
	if err != nil {
		return nil, err
	}
	p := &part{file: file}
	w := bufio.NewWriterSize(file, 256<<10)
	for _, line := range lines {
		_, _ = w.Write(line) // the writer keeps its error
		_ = w.WriteByte('\n')
	}
	if err := w.Flush(); err != nil {
		return p, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return p, err
	}
	p.lines = bufio.NewReaderSize(file, 64<<10)
	return p, nil
}

func (p *part) next() error {
	line, err := p.lines.ReadBytes('\n')
	if errors.Is(err, io.EOF) {
		p.ended = true
		return nil
	}
	p.line = bytes.TrimSuffix(line, []byte("\n"))
	return err
}

func (p *part) remove() error { return errors.Join(p.file.Close(), os.Remove(p.file.Name())) }

// lineHash is the hash of lines that are joined by LF.
type lineHash struct {
	sum   hash.Hash
	begun bool
}

func (h *lineHash) add(line []byte) {
	if h.begun {
		_, _ = h.sum.Write([]byte{'\n'}) // a hash takes everything
	}
	_, _ = h.sum.Write(line)
	h.begun = true
}

func (h *lineHash) hex() string { return hex.EncodeToString(h.sum.Sum(nil)) }
