// Package terminal keeps untrusted text from driving the operator's terminal.
//
// A program can print control sequences that clear the screen, forge a prompt,
// set the window's title or write the clipboard, and so can the names of its
// files and the text of its exceptions. [Writer] and [Text] make all of them
// visible; nothing is dropped without a trace.
package terminal

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// A Writer passes text on with every control sequence made visible, except
// newline and tab: escape becomes ^[, other controls ^X, the C1 range and
// characters that reorder or hide text their code (\u009b), invalid bytes U+FFFD.
// A carriage return alone becomes a newline, so that no line is overwritten; with
// a newline after it, it is dropped.
//
// The output does not depend on how the input is cut into pieces. A Writer
// holds back at most an unfinished character, until [Writer.Flush]. Methods may be
// called concurrently.
type Writer struct {
	mu  sync.Mutex
	out io.Writer
	decoder
	cr  bool // the last byte was a carriage return
	buf []byte
}

// NewWriter returns a Writer to out.
func NewWriter(out io.Writer) *Writer { return &Writer{out: out} }

// Write implements [io.Writer]. It reports an error of the underlying writer and
// then has written nothing that the caller should write again.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf = w.buf[:0]
	w.decode(p, w.rune)
	return len(p), w.emit()
}

// rune translates one rune, or one invalid byte when size is 1 and r RuneError.
func (w *Writer) rune(r rune, size int, first byte) {
	if w.cr && r != '\n' {
		w.buf = append(w.buf, '\n')
	}
	if w.cr = r == '\r'; !w.cr {
		w.buf = appendRune(w.buf, r, size, first)
	}
}

// Flush writes an unfinished character as the end of the text.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf = w.buf[:0]
	w.rest(w.rune)
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

// decoder takes characters out of bytes that come in pieces.
type decoder struct{ pending []byte } // an unfinished UTF-8 sequence

// decode calls each with every rune, or invalid byte: size is then 1 and r RuneError.
func (d *decoder) decode(p []byte, each func(r rune, size int, first byte)) {
	if len(d.pending) > 0 {
		p = slices.Concat(d.pending, p)
		d.pending = nil
	}
	for len(p) > 0 {
		if p[0] >= utf8.RuneSelf && !utf8.FullRune(p) {
			d.pending = append([]byte(nil), p...)
			return
		}
		r, size := utf8.DecodeRune(p)
		each(r, size, p[0])
		p = p[size:]
	}
}

// rest calls each with the bytes of an unfinished character.
func (d *decoder) rest(each func(r rune, size int, first byte)) {
	for _, b := range d.pending {
		each(utf8.RuneError, 1, b)
	}
	d.pending = nil
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

// appendRune appends a rune, or an invalid byte, so that a terminal only ever shows it.
func appendRune(dst []byte, r rune, size int, first byte) []byte {
	if r == utf8.RuneError && size == 1 {
		return appendInvalid(dst, first)
	}
	return appendVisible(dst, r)
}

// appendVisible appends one decoded rune so that a terminal only ever shows it.
// Newline and tab are kept; a carriage return is the caller's business.
func appendVisible(dst []byte, r rune) []byte {
	switch {
	case r == '\n' || r == '\t':
		return append(dst, byte(r))
	case r < 0x20 || r == 0x7f:
		// ^[ for escape, ^G for the bell, ^? for delete.
		return append(dst, '^', byte(r)^0x40)
	case r >= 0x80 && r <= 0x9f, unseen(r):
		return appendCode(dst, r)
	}
	return utf8.AppendRune(dst, r)
}

// appendInvalid appends one byte that is not part of valid UTF-8. Bytes of the C1
// range are control characters for a terminal in an 8-bit mode.
func appendInvalid(dst []byte, b byte) []byte {
	if b >= 0x80 && b <= 0x9f {
		return appendCode(dst, rune(b))
	}
	return utf8.AppendRune(dst, utf8.RuneError)
}

func appendCode(dst []byte, r rune) []byte {
	if r > 0xffff {
		return fmt.Appendf(dst, `\U%08x`, r)
	}
	return fmt.Appendf(dst, `\u%04x`, r)
}

// unseen says that a rune shows nothing but changes the text around it: it reorders text,
// breaks lines, or hides. Joiners (U+200C, U+200D) are
// ordinary letters of some scripts and of emoji and stay.
func unseen(r rune) bool {
	switch {
	case r < 0x200b:
		return r == 0x061c // Arabic letter mark, a bidirectional control
	case unicode.Is(unicode.Bidi_Control, r),
		r == 0x200b, r == 0x2028, r == 0x2029, // zero-width space, line and paragraph separator
		r >= 0x2060 && r <= 0x206f,   // invisible operators, deprecated formats
		r == 0xfeff,                  // zero-width no-break space
		r >= 0xfff9 && r <= 0xfffb,   // interlinear annotations
		r >= 0xe0000 && r <= 0xe007f: // tags: invisible ASCII
		return true
	}
	return false
}
