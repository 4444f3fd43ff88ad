package result

import (
	"fmt"
	"unicode/utf8"
)

// TruncateOutput returns s, or, when s is longer than maxBytes, its start with
// the warning text of EX-038 after it, and true. At most maxBytes bytes of s are
// kept, fewer where the limit falls inside a character. The warning comes on
// top of them. A negative maxBytes is 0.
func TruncateOutput(s string, maxBytes int) (string, bool) {
	maxBytes = max(maxBytes, 0)
	if len(s) <= maxBytes {
		return s, false
	}
	cut := maxBytes
	for cut > 0 && maxBytes-cut < utf8.UTFMax-1 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + TruncationWarning(int64(maxBytes)), true
}

// TruncationWarning is the text that EX-038 wants after output that was cut at
// limit bytes.
func TruncationWarning(limit int64) string {
	return fmt.Sprintf("\n\n[WARNING: Output truncated. Original size exceeded %d bytes limit.]", limit)
}
