package terminal

import (
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// A Writer passes text on with every control sequence made visible, except
// newline and tab: escape becomes ^[, other controls ^X, the C1 range and
// characters that reorder or hide text their code (\u009b), invalid bytes U+FFFD.
// A carriage return alone becomes a newline, so that no line is overwritten; with
// a newline after it, it is dropped.
//
// What is written does not depend on how the input is cut into pieces. A Writer
// holds back at most an unfinished character, until [Writer.Flush]. Methods may be
// called concurrently.
type Writer struct {
	mu      sync.Mutex
	out     io.Writer
	pending []byte // an unfinished UTF-8 sequence
	cr      bool   // the last byte was a carriage return
	buf     []byte
}

// NewWriter returns a Writer to out.
func NewWriter(out io.Writer) *Writer { return &Writer{out: out} }

// Write implements [io.Writer]. It reports an error of the underlying writer and
// then has written nothing that the caller should write again.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf = w.buf[:0]
	rest := p
	if len(w.pending) > 0 {
		rest = slices.Concat(w.pending, p)
		w.pending = nil
	}
	for len(rest) > 0 {
		if rest[0] >= utf8.RuneSelf && !utf8.FullRune(rest) {
			w.pending = append([]byte(nil), rest...)
			break
		}
		r, size := utf8.DecodeRune(rest)
		w.rune(r, size, rest[0])
		rest = rest[size:]
	}
	return len(p), w.emit()
}

// rune translates one rune, or one invalid byte when size is 1 and r RuneError.
func (w *Writer) rune(r rune, size int, first byte) {
	if w.cr && r != '\n' {
		w.buf = append(w.buf, '\n')
	}
	w.cr = r == '\r'
	switch {
	case w.cr:
	case r == utf8.RuneError && size == 1:
		w.buf = appendInvalid(w.buf, first)
	default:
		w.buf = appendVisible(w.buf, r)
	}
}

// Flush writes what was held back, as the end of the text.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf = w.buf[:0]
	for _, b := range w.pending {
		w.rune(utf8.RuneError, 1, b)
	}
	w.pending = nil
	if w.cr {
		w.buf = append(w.buf, '\n')
		w.cr = false
	}
	return w.emit()
}

func (w *Writer) emit() error {
	if len(w.buf) == 0 {
		return nil
	}
	_, err := w.out.Write(w.buf)
	return err
}

// Text returns s with every control sequence made visible, as a [Writer] does.
func Text(s string) string {
	var out buffer
	w := NewWriter(&out)
	_, _ = w.Write([]byte(s)) // a buffer takes everything
	_ = w.Flush()
	return string(out)
}

// Line returns s as [Text] does, but with newlines and tabs made visible too: it
// fits into one cell of a table.
func Line(s string) string {
	return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(Text(s))
}

type buffer []byte

func (b *buffer) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}

// A Cursor knows whether the last byte that went to a terminal left it in the
// middle of a line. Several writers may share one.
type Cursor struct{ midLine atomic.Bool }

// Follow returns a writer to out that the cursor watches.
func (c *Cursor) Follow(out io.Writer) io.Writer { return &followed{out, c} }

// MidLine says that a line was begun and not ended.
func (c *Cursor) MidLine() bool { return c.midLine.Load() }

type followed struct {
	io.Writer
	cursor *Cursor
}

func (f *followed) Write(p []byte) (int, error) {
	if len(p) > 0 {
		f.cursor.midLine.Store(p[len(p)-1] != '\n')
	}
	return f.Writer.Write(p)
}
