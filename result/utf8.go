package result

import (
	"bytes"
	"unicode/utf8"
)

// DecodeUTF8 returns b as valid UTF-8 text (EX-043). Invalid bytes become
// U+FFFD as in Python's errors="replace" and in browsers: one for each maximal
// part that could have begun a character. So E2 82 gives one, C0 AF two and
// ED A0 80 three. [bytes.ToValidUTF8] is another rule (one for each run).
func DecodeUTF8(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out bytes.Buffer
	out.Grow(len(b) + len(b)/8)
	start := 0 // of the valid text that is not yet written
	for i := 0; i < len(b); {
		if b[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, size := utf8.DecodeRune(b[i:])
		if r != utf8.RuneError || size > 1 {
			i += size
			continue
		}
		out.Write(b[start:i])
		out.WriteRune(utf8.RuneError)
		i += invalidLen(b[i:])
		start = i
	}
	out.Write(b[start:])
	return out.String()
}

// invalidLen returns the length of the maximal part of a character at the start
// of b, which does not start with a whole one. It is at least 1.
func invalidLen(b []byte) int {
	n := 1
	// FullRune is false as long as more bytes could complete the character. It
	// turns true with the byte that makes this impossible, which is not part.
	for n < len(b) && !utf8.FullRune(b[:n]) && !utf8.FullRune(b[:n+1]) {
		n++
	}
	return n
}

// headBorder shortens b so that it does not end inside a character.
func headBorder(b []byte) []byte {
	for back := 1; back < utf8.UTFMax && back <= len(b); back++ {
		i := len(b) - back
		if !utf8.RuneStart(b[i]) {
			continue
		}
		if !utf8.FullRune(b[i:]) {
			return b[:i]
		}
		break
	}
	return b
}

// tailBorder shortens b so that it does not start inside a character.
func tailBorder(b []byte) []byte {
	i := 0
	for i < len(b) && i < utf8.UTFMax-1 && !utf8.RuneStart(b[i]) {
		i++
	}
	return b[i:]
}
