package terminal

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

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

// unseen says that a rune shows nothing but changes what a reader believes to
// see: it reorders text, breaks lines, or hides. Joiners (U+200C, U+200D) are
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
