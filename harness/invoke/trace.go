package invoke

import (
	"bufio"
	"bytes"
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
	all := &lines{r: bufio.NewReaderSize(fsx.WithContext(ctx, r), 64<<10)}
	for {
		text, err := all.next()
		switch {
		case errors.Is(err, io.EOF):
			return records, nil
		case errors.Is(err, errLineTooLong):
			return records, artifactError(path, all.n, KindLineTooLong, "has more than %d bytes", MaxLine)
		case err != nil:
			return records, readError(ctx, path, err)
		}
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		if problem := check(text, all.n); problem != nil {
			return records, problem
		}
		if each != nil {
			if err := each(TraceRecord{all.n, text}); err != nil {
				return records, err
			}
		}
		records++
	}
}

// errLineTooLong means that a line has more than [MaxLine] bytes.
var errLineTooLong = errors.New("line too long")

// lines reads physical lines, which end with LF, CR LF or CR as in text files. It holds one
// line at a time.
type lines struct {
	r *bufio.Reader
	// n is the number of the last line.
	n   int64
	buf []byte
	// afterCR means that an LF that comes next belongs to the line before.
	afterCR bool
}

// next is the next line without its end, valid until the next call; io.EOF at the end.
func (l *lines) next() ([]byte, error) {
	l.buf = l.buf[:0]
	l.n++
	for began := false; ; {
		if _, err := l.r.Peek(1); err != nil {
			if errors.Is(err, io.EOF) && began {
				return l.buf, nil
			}
			return nil, err
		}
		piece, _ := l.r.Peek(l.r.Buffered()) // cannot fail: it is buffered
		if l.afterCR {
			l.afterCR = false
			if piece[0] == '\n' {
				_, _ = l.r.Discard(1)
				continue
			}
		}
		began = true
		end := bytes.IndexAny(piece, "\r\n")
		whole := end >= 0
		if !whole {
			end = len(piece)
		}
		if len(l.buf)+end > MaxLine {
			return nil, errLineTooLong
		}
		l.buf = append(l.buf, piece[:end]...)
		if !whole {
			_, _ = l.r.Discard(end)
			continue
		}
		l.afterCR = piece[end] == '\r'
		_, _ = l.r.Discard(end + 1)
		return l.buf, nil
	}
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
	by := int64(0)
	if power != "" {
		var err error
		if by, err = strconv.ParseInt(power, 10, 64); err != nil {
			return false // too small to be whole
		}
	}
	return int64(after) <= by
}
