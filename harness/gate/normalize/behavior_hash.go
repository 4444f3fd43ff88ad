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
	sum := sha256.New()
	err := writeSorted(sum, log, size, most, trimmed)
	return hex.EncodeToString(sum.Sum(nil)), err
}

// unorderedHash is the hash of the lines between these places of a log as they are, sorted between each
// two of them, joined by LF; SHA-256 in hex.
func unorderedHash(log io.ReaderAt, places []int64) (string, error) {
	sum := sha256.New()
	for i, to := range places[1:] {
		size := to - places[i]
		err := writeSorted(sum, io.NewSectionReader(log, places[i], size), size, sortBytes, whole)
		if err != nil {
			return "", err
		}
		sum.Write([]byte{'\n'})
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// A form returns what counts of a line, which has its LF, and whether it counts at all.
type form func(line []byte) ([]byte, bool)

func trimmed(line []byte) ([]byte, bool) {
	line = bytes.TrimSpace(line)
	return line, len(line) > 0
}

func whole(line []byte) ([]byte, bool) { return bytes.TrimSuffix(line, []byte("\n")), len(line) > 0 }

// writeSorted writes the lines of a log of this size sorted, joined by LF.
func writeSorted(to io.Writer, log io.ReadSeeker, size, most int64, of form) error {
	bounds, err := splitLines(log, size, most, of)
	if err != nil {
		return err
	}
	out, begun := bufio.NewWriter(to), false
	for i := range len(bounds) + 1 {
		counts := map[string]int{}
		err := eachLine(log, of, func(line []byte) {
			if (i == 0 || bytes.Compare(line, bounds[i-1]) >= 0) && (i == len(bounds) || bytes.Compare(line, bounds[i]) < 0) {
				counts[string(line)]++
			}
		})
		if err != nil {
			return err
		}
		for _, line := range slices.Sorted(maps.Keys(counts)) {
			for range counts[line] {
				if begun {
					_ = out.WriteByte('\n') // Flush has its error
				}
				begun = true
				_, _ = out.WriteString(line)
			}
		}
	}
	return out.Flush()
}

// splitLines returns lines that divide a log into ranges of about most bytes.
func splitLines(log io.ReadSeeker, size, most int64, of form) (bounds [][]byte, err error) {
	ranges := size/most + 1
	if ranges == 1 {
		return nil, nil
	}
	const samples = 64 // of each range
	var sampled [][]byte
	var read, next int64
	err = eachLine(log, of, func(line []byte) {
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

// eachLine calls do for what counts of each line. The line is valid until do returns.
func eachLine(log io.ReadSeeker, of form, do func(line []byte)) error {
	if _, err := log.Seek(0, io.SeekStart); err != nil {
		return err
	}
	lines := bufio.NewReaderSize(log, 256<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if line, counts := of(line); counts {
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
