package invoke

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
)

// Mode says how strictly a record is judged (E35 of the requirements).
type Mode uint8

const (
	// Strict demands that step is a whole number, or step_id a string or a whole number.
	Strict Mode = iota
	// Compat demands only that one of the two exists.
	Compat
)

// MaxLine bounds one line of a trace, and so the memory that reading one takes.
const MaxLine = 16 << 20

// maxLoaded bounds the traces that [LoadTracePack] holds.
const maxLoaded = 256 << 20

// TraceRecord is one record of a trace.
type TraceRecord struct {
	// Line is its physical line, from 1.
	Line int64
	// JSON is the record as it is written. It is valid until the next one is read.
	JSON []byte
}

// ScanTrace reads a trace, one JSON object in each line that is not blank, and calls
// each with every record; each may be nil. It holds one line at a time, and ends with the
// first error: an [*ArtifactError] that names path and line, an error of each, or that of
// ctx. It returns the number of good records (M3-08, MI-05).
func ScanTrace(ctx context.Context, r io.Reader, path string, mode Mode, each func(TraceRecord) error) (int64, error) {
	return scanRecords(ctx, r, path, func(text []byte, line int64) *ArtifactError { return checkRecord(text, path, line, mode) }, each)
}

// scanRecords reads lines of JSON that check approves of.
func scanRecords(ctx context.Context, r io.Reader, path string, check func(text []byte, line int64) *ArtifactError, each func(TraceRecord) error,
) (records int64, err error) {
	lines, n := bufio.NewScanner(fsx.WithContext(ctx, r)), int64(0)
	lines.Buffer(make([]byte, 64<<10), MaxLine+len("\r\n"))
	lines.Split(splitLine)
	for lines.Scan() && lines.Err() == nil { // an error cuts the last line
		n++
		text := lines.Bytes()
		if len(text) > MaxLine {
			return records, lineTooLong(path, n)
		}
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		if problem := check(text, n); problem != nil {
			return records, problem
		}
		if each != nil {
			if err := each(TraceRecord{n, text}); err != nil {
				return records, err
			}
		}
		records++
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return records, lineTooLong(path, n+1)
	case err != nil:
		return records, readError(ctx, path, err)
	}
	return records, nil
}

func lineTooLong(path string, line int64) *ArtifactError {
	return artifactError(path, line, KindLineTooLong, "has more than %d bytes", MaxLine)
}

// splitLine is a [bufio.SplitFunc] for lines that end with LF, CR LF or CR, as in text files.
func splitLine(data []byte, atEOF bool) (advance int, line []byte, err error) {
	end := bytes.IndexAny(data, "\r\n")
	switch {
	case end < 0 && atEOF && len(data) > 0:
		return len(data), data, nil
	case end < 0, data[end] == '\r' && end == len(data)-1 && !atEOF: // an LF may follow
		return 0, nil, nil
	case bytes.HasPrefix(data[end:], []byte("\r\n")):
		return end + 2, data[:end], nil
	}
	return end + 1, data[:end], nil
}

// LoadTracePack reads a whole trace into memory (M3-11), up to 256 MiB. Use [ScanTrace] for
// longer ones.
func LoadTracePack(ctx context.Context, path string, mode Mode) ([]json.RawMessage, error) {
	file, err := fsx.Open(path)
	if err != nil {
		return nil, openError(path, err)
	}
	defer file.Close()
	records, total := []json.RawMessage{}, 0
	_, err = ScanTrace(ctx, file, path, mode, func(r TraceRecord) error {
		if total += len(r.JSON); total > maxLoaded {
			return artifactError(path, r.Line, KindTooLarge, "the trace has more than %d bytes up to here", maxLoaded)
		}
		records = append(records, bytes.Clone(r.JSON))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return records, nil
}

// checkRecord judges one record. It is pure.
func checkRecord(text []byte, path string, line int64, mode Mode) *ArtifactError {
	record, _, problem := parseObject(text, path, line)
	if problem != nil {
		return problem
	}
	step, hasStep := record["step"]
	id, hasID := record["step_id"]
	switch {
	case !hasStep && !hasID:
		return artifactError(path, line, KindMissingStep, "has neither step nor step_id")
	case mode == Compat, hasStep && isWhole(step), hasID && (id[0] == '"' || isWhole(id)):
		return nil
	case hasStep && !hasID:
		return artifactError(path, line, KindMissingStep, "step must be a whole number, and is %s", typeOf(step))
	}
	return artifactError(path, line, KindMissingStep, "step must be a whole number, or step_id a string or a whole number")
}

// isWhole reports whether a JSON value is a whole number, also one such as 1.0 or 1e3. It
// looks at the digits, so that nothing is rounded. A number with a point or an exponent
// that readers cannot hold is not a whole number.
func isWhole(value json.RawMessage) bool {
	text := string(value)
	if text == "" || text[0] != '-' && (text[0] < '0' || text[0] > '9') {
		return false
	}
	if !strings.ContainsAny(text, ".eE") {
		return true
	}
	if _, err := strconv.ParseFloat(text, 64); err != nil {
		return false
	}
	mantissa, power, _ := strings.Cut(strings.ToLower(text), "e")
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(mantissa, "-"), ".")
	digits := strings.TrimRight(whole+fraction, "0")
	if digits == "" {
		return true // zero
	}
	// The number of digits after the point, before the power moves the point.
	after := len(digits) - len(whole)
	by, err := strconv.ParseInt(cmp.Or(power, "0"), 10, 64)
	return err == nil && int64(after) <= by // an error: too small to be whole
}
