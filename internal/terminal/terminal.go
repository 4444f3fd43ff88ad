// Package terminal keeps untrusted text from driving the operator's terminal.
//
// A program can print control sequences that clear the screen, forge a prompt,
// set the window's title or write the clipboard, and so can the names of its
// files and the text of its exceptions. [Screen] and [Text] make all of them
// visible. A carriage return of a program's output overwrites its own line, and only that.
package terminal

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A decoder takes text apart into runes, however it is cut into pieces.
type decoder struct {
	pending []byte // an unfinished UTF-8 sequence
}

// decode calls put for each rune of the text with what a terminal is to show for it. An
// unfinished rune waits for the next piece.
func (d *decoder) decode(p []byte, put func(r rune, shown []byte)) {
	var scratch [utf8.UTFMax * 4]byte
	if len(d.pending) > 0 {
		p = slices.Concat(d.pending, p)
		d.pending = nil
	}
	for len(p) > 0 {
		if p[0] >= utf8.RuneSelf && !utf8.FullRune(p) {
			d.pending = bytes.Clone(p)
			return
		}
		r, size := utf8.DecodeRune(p)
		if r == utf8.RuneError && size == 1 {
			put(r, appendInvalid(scratch[:0], p[0]))
		} else {
			put(r, appendVisible(scratch[:0], r))
		}
		p = p[size:]
	}
}

// flush calls put for the bytes of an unfinished rune, as the end of the text.
func (d *decoder) flush(put func(r rune, shown []byte)) {
	for _, b := range d.pending {
		put(utf8.RuneError, appendInvalid(nil, b))
	}
	d.pending = nil
}

// Text returns s with every control sequence made visible, except newline and tab: escape
// becomes ^[, other controls ^X, the C1 range and characters that reorder or hide text their
// code (\u009b), invalid bytes U+FFFD. A carriage return alone becomes a newline, so that no
// line is overwritten; with a newline after it, it is dropped.
func Text(s string) string {
	var out []byte
	var d decoder
	cr := false
	put := func(r rune, shown []byte) {
		if cr && r != '\n' {
			out = append(out, '\n')
		}
		if cr = r == '\r'; !cr {
			out = append(out, shown...)
		}
	}
	d.decode([]byte(s), put)
	d.flush(put)
	if cr {
		out = append(out, '\n')
	}
	return string(out)
}

// Line returns s as [Text] does, but with newlines and tabs made visible too: it
// fits into one cell of a table.
func Line(s string) string {
	return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(Text(s))
}

// appendVisible appends one decoded rune so that a terminal only ever shows it.
// Newline and tab are kept; a carriage return is for the caller.
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
