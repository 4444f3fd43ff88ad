// Package text prepares values and texts, also untrusted ones, for messages and displays.
package text

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/docker/go-units"
)

// Short is the beginning of a text: at most this number of bytes, in whole characters, with
// an ellipsis if more follows.
func Short(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return text[:end(text, most)] + "…"
}

// Middle is a text of at most this number of bytes: a longer one without its middle, and with a mark
// that counts the bytes which are left out. more bytes of it are missing already.
func Middle(text string, most int, more int64) string {
	if len(text) <= most {
		return text
	}
	const mark = "[… %d bytes left out …]"
	half := max(most-len(mark)-len("9223372036854775807"), 0) / 2
	head, tail := text[:end(text, half)], text[len(text)-half:]
	for len(tail) > 0 && !utf8.RuneStart(tail[0]) {
		tail = tail[1:]
	}
	return head + fmt.Sprintf(mark, int64(len(text)-len(head)-len(tail))+max(more, 0)) + tail
}

// Quote is a text as a Go string literal, shortened as by [Short].
func Quote(text string, most int) string {
	if len(text) <= most {
		return strconv.Quote(text)
	}
	return strconv.Quote(text[:end(text, most)]) + "…"
}

// end is the last place within the first most bytes of a longer text that cuts no character.
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

// List joins words with commas.
func List[T ~string](words []T) string {
	texts := make([]string, len(words))
	for i, word := range words {
		texts[i] = string(word)
	}
	return strings.Join(texts, ", ")
}

// First joins the first texts, and counts the others.
func First(texts []string, most int, separator string) string {
	if more := len(texts) - most; more > 0 {
		texts = append(slices.Clone(texts[:most]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, separator)
}

// Size returns a number of bytes, such as "10.09 MiB".
func Size(bytes int64) string {
	return units.CustomSize("%.4g %s", float64(bytes), 1024, []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"})
}

// Seconds returns a duration, such as "1.23s" or "1m15s".
func Seconds(seconds float64) string {
	switch {
	case seconds < 10:
		return strconv.FormatFloat(seconds, 'f', 2, 64) + "s"
	case seconds < 60:
		return strconv.FormatFloat(seconds, 'f', 1, 64) + "s"
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}

// Number returns a number with all its digits.
func Number(n float64) string { return strconv.FormatFloat(n, 'g', -1, 64) }

// Fit returns at most limit characters of a text for display; "…" replaces the rest.
func Fit(text string, limit int) string {
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return text
}

// Most is the number of characters of a [Brief] text at most.
const Most = 200

// Brief returns the beginning of a text, on one line.
func Brief(text string) string { return Fit(OneLine(text), Most) }

// ShellWord is a text as one word of a shell.
func ShellWord(text string) string {
	plain := func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("-_./=:,+@%", r)
	}
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool { return !plain(r) }) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
