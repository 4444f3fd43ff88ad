package rung

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// BehaviorHash is the behaviour hash as those tools compute it, to compare with theirs:
// the lines of an output, stripped, without empty ones, sorted, after a first line
// "seed=N" (RO-12). With the seed in it, three seeds never have the same hash, although
// the same tools demand that; the behaviour hash of a gate is without (resolution 46).
func BehaviorHash(output string, seed int) string {
	var lines []string
	for _, line := range strings.FieldsFunc(output, endsLine) {
		if line = strings.TrimFunc(line, isSpace); line != "" {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return fmt.Sprintf("%x", sha256.Sum256([]byte("seed="+strconv.Itoa(seed)+"\n"+strings.Join(lines, "\n"))))
}

// endsLine and isSpace are those of Python's str.splitlines and str.strip.
func endsLine(r rune) bool {
	switch r {
	case '\n', '\r', '\v', '\f', 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029:
		return true
	}
	return false
}

func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }
