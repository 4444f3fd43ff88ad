package normalize

import (
	"bytes"
	"crypto/sha256"
	"slices"
)

// BehaviorHash is the hash of a normalized log (RO-12, without the seed): its lines
// without spaces around them, those that are not empty, sorted, joined by LF; SHA-256 in
// hex. The order of lines does not count, their number does.
func BehaviorHash(text []byte) string {
	var lines [][]byte
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			lines = append(lines, line)
		}
	}
	slices.SortFunc(lines, bytes.Compare)
	sum := lineHash{sum: sha256.New()}
	for _, line := range lines {
		sum.add(line)
	}
	return sum.hex()
}
