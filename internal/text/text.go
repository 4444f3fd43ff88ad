// Package text prepares values and texts, also untrusted ones, for messages and displays.
package text

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Short is the beginning of a text, at most so many bytes and whole characters, with an
// ellipsis if more follows.
func Short(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return text[:end(text, most)] + "…"
}

// Quote is a text as a Go string literal, with what [Short] leaves of it.
func Quote(text string, most int) string {
	if len(text) <= most {
		return strconv.Quote(text)
	}
	return strconv.Quote(text[:end(text, most)]) + "…"
}

// end is the last place at most so many bytes into a longer text where no character is cut.
func end(text string, most int) int {
	for at := most; at > max(0, most-utf8.UTFMax); at-- {
		if utf8.RuneStart(text[at]) {
			return at
		}
	}
	return most
}

// OneLine puts a text on one line, with single spaces.
func OneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// Count is a number with its noun, which is regular.
func Count[N ~int | ~int64](n N, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "s"):
		noun += "e"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
