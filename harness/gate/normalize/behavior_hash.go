package normalize

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"slices"
)

// sortBytes is how many bytes of lines are sorted in memory at once.
const sortBytes = 64 << 20

// BehaviorHash is the hash of a normalized log of this size (RO-12, without the seed): its
// lines without surrounding spaces, those that are not empty, sorted, joined by LF; SHA-256
// in hex. The order of lines does not count, because tests may run in parallel; their number
// does. Memory is bounded: of a large log, each pass sorts one range of lines.
func BehaviorHash(log io.ReadSeeker, size int64) (string, error) {
	return hashSorted(log, size, sortBytes)
}

func hashSorted(log io.ReadSeeker, size, most int64) (string, error) {
	bounds, err := splitLines(log, size, most)
	if err != nil {
		return "", err
	}
	sum, begun := sha256.New(), false
	for i := range len(bounds) + 1 {
		counts := map[string]int{}
		err := eachLine(log, func(line []byte) {
			if (i == 0 || bytes.Compare(line, bounds[i-1]) >= 0) && (i == len(bounds) || bytes.Compare(line, bounds[i]) < 0) {
				counts[string(line)]++
			}
		})
		if err != nil {
			return "", err
		}
		for _, line := range slices.Sorted(maps.Keys(counts)) {
			for range counts[line] {
				if begun {
					sum.Write([]byte{'\n'})
				}
				begun = true
				_, _ = io.WriteString(sum, line) // a hash takes everything
			}
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// splitLines returns lines that divide a log into ranges of about most bytes.
func splitLines(log io.ReadSeeker, size, most int64) (bounds [][]byte, err error) {
	ranges := size/most + 1
	if ranges == 1 {
		return nil, nil
	}
	const samples = 64 // of each range
	var sampled [][]byte
	var read, next int64
	err = eachLine(log, func(line []byte) {
		if read += int64(len(line)) + 1; read > next {
			sampled = append(sampled, bytes.Clone(line))
			next = read + size/(ranges*samples)
		}
	})
	slices.SortFunc(sampled, bytes.Compare)
	sampled = slices.CompactFunc(sampled, bytes.Equal)
	for i := range ranges - 1 {
		if at := int(i+1) * len(sampled) / int(ranges); at > 0 && at < len(sampled) {
			bounds = append(bounds, sampled[at])
		}
	}
	return bounds, err
}

// eachLine calls do for each line that is not empty. The line is valid until do returns.
func eachLine(log io.ReadSeeker, do func(line []byte)) error {
	if _, err := log.Seek(0, io.SeekStart); err != nil {
		return err
	}
	lines := bufio.NewReaderSize(log, 256<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			do(line)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
