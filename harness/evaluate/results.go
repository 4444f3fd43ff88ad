package evaluate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/gofrs/flock"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

// maxLine bounds a line of a results file; ours are far below.
const maxLine = 16 << 20

// A ResultsError is a results file that cannot be used.
type ResultsError struct {
	Path string
	// Line is the line that is wrong, from 1, or 0.
	Line int
	Rule string
	// Err is the cause, if there is one.
	Err error
}

func (e *ResultsError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("results %s:%d: %s", e.Path, e.Line, e.Rule)
	}
	return fmt.Sprintf("results %s: %s", e.Path, e.Rule)
}

func (e *ResultsError) Unwrap() error { return e.Err }

// Hint says what such a file is.
func (e *ResultsError) Hint() string {
	if errors.Is(e.Err, sandbox.ErrBusy) {
		return "another batch writes it: wait for its end, or name another file"
	}
	return "a results file has one evaluation per line, as a batch writes them; name another file, or mend the line"
}

// ReadReport is what a results file held.
type ReadReport struct {
	// Evaluations are in the order of the lines.
	Evaluations []Evaluation
	// Torn is the number of the last line when that was cut in the middle, as a
	// crash does; 0 when it was not. Such a line is no evaluation.
	Torn int
	// size is where the whole lines end.
	size int64
}

// ReadOptions steer how a results file is read. The zero value reads all of it.
type ReadOptions struct {
	// Brief leaves out what scripts and graders printed: stdout, stderr, tracebacks and
	// error summaries are empty. Memory then does not grow with what they print, and
	// reading is some times faster.
	Brief bool
}

// ReadResults reads a results file, which must be a regular one. A last line that was cut
// is left out and told; any other line that is no evaluation is an error that names it.
func ReadResults(path string, opts ReadOptions) (ReadReport, error) {
	file, err := fsx.Open(path)
	if err != nil {
		return ReadReport{}, &ResultsError{Path: path, Rule: fsx.Cause(err).Error(), Err: err}
	}
	defer file.Close()
	return readResults(file, path, opts)
}

func readResults(r io.Reader, path string, opts ReadOptions) (ReadReport, error) {
	var report ReadReport
	lines := bufio.NewReaderSize(r, 64<<10)
	var line []byte
	for number := 1; ; number++ {
		var err error
		line, err = readLine(lines, line[:0])
		whole := err == nil
		if err != nil && !errors.Is(err, io.EOF) {
			return report, &ResultsError{Path: path, Line: number, Rule: fsx.Cause(err).Error(), Err: err}
		}
		if len(line) == 0 && !whole {
			return report, nil
		}
		text := bytes.TrimRight(line, "\r\n")
		if len(bytes.TrimSpace(text)) == 0 && whole {
			report.size += int64(len(line))
			continue
		}
		evaluation, err := decodeLine(text, opts)
		last := !whole
		if whole {
			_, peekErr := lines.Peek(1)
			last = errors.Is(peekErr, io.EOF)
		}
		switch {
		case err == nil && whole:
			report.Evaluations = append(report.Evaluations, evaluation)
			report.size += int64(len(line))
		case last && ours(text):
			// Also a line that is complete but for its end: the next one would be
			// written behind it.
			report.Torn = number
			return report, nil
		case err == nil:
			err = errors.New("does not end")
			fallthrough
		default:
			return report, &ResultsError{Path: path, Line: number, Rule: err.Error(), Err: err}
		}
	}
}

// lineStart is how every line of ours begins, since the schema is the first field.
var lineStart = []byte(`{"schema":"` + EvaluationSchemaV1 + `"`)

// ours says that a line that was cut is the beginning of one of ours. A crash of the
// machine may leave zeros instead.
func ours(text []byte) bool {
	n := min(len(text), len(lineStart))
	return bytes.Equal(text[:n], lineStart[:n]) || len(bytes.Trim(text, "\x00")) == 0
}

// readLine reads up to and with the next newline, behind what is in line.
func readLine(r *bufio.Reader, line []byte) ([]byte, error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxLine {
			return line, fmt.Errorf("is longer than %v", policy.Size(maxLine))
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// decodeLine reads a line of a results file.
func decodeLine(text []byte, opts ReadOptions) (Evaluation, error) {
	if opts.Brief {
		short, err := withoutTexts(text)
		if err != nil {
			return Evaluation{}, fmt.Errorf("is no evaluation: %w", err)
		}
		text = short
	}
	e, err := decodeEvaluation(text)
	if opts.Brief && e.Grading != nil {
		e.Grading.Traceback = nil
	}
	return e, err
}

// decodeEvaluation reads the wire form. Fields that it does not know are left out.
func decodeEvaluation(text []byte) (Evaluation, error) {
	var e Evaluation
	if err := json.Unmarshal(text, &e); err != nil {
		return Evaluation{}, fmt.Errorf("is no evaluation: %w", err)
	}
	if e.Schema != EvaluationSchemaV1 {
		return Evaluation{}, fmt.Errorf("schema is %s, want %q", shown(e.Schema), EvaluationSchemaV1)
	}
	return e, nil
}

// ResultsFile is a results file that evaluations are added to. Its methods are not to
// be called concurrently. While it is open, no other process can open it for writing.
type ResultsFile struct {
	path string
	file *os.File
	lock *flock.Flock
}

// OpenResults opens a results file for writing, makes it if it is missing, and returns
// what it holds. A last line that was cut is told in the report, and taken away, but
// only if it is one of ours: a file of another kind is refused and stays as it is. A
// file that another process is writing is [sandbox.ErrBusy].
func OpenResults(path string, opts ReadOptions) (*ResultsFile, ReadReport, error) {
	// The lock opens the file in its own way, which may wait for ever.
	if file, err := fsx.Open(path); err == nil {
		err = file.Close()
		if err != nil {
			return nil, ReadReport{}, &ResultsError{Path: path, Rule: fsx.Cause(err).Error(), Err: err}
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, ReadReport{}, &ResultsError{Path: path, Rule: fsx.Cause(err).Error(), Err: err}
	}
	r := &ResultsFile{path: path, lock: flock.New(path, flock.SetPermissions(0o644))}
	got, err := r.lock.TryLock()
	if err == nil && !got {
		err = sandbox.ErrBusy
	}
	if err != nil {
		return nil, ReadReport{}, &ResultsError{Path: path, Rule: fsx.Cause(err).Error(), Err: err}
	}
	report, err := r.open(opts)
	if err != nil {
		return nil, ReadReport{}, errors.Join(err, r.Close())
	}
	return r, report, nil
}

func (r *ResultsFile) open(opts ReadOptions) (ReadReport, error) {
	var err error
	if r.file, err = os.OpenFile(r.path, os.O_RDWR|os.O_APPEND, 0); err != nil {
		return ReadReport{}, r.failed(err)
	}
	report, err := readResults(r.file, r.path, opts)
	if err != nil || report.Torn == 0 {
		return report, err
	}
	if err := errors.Join(r.file.Truncate(report.size), r.file.Sync()); err != nil {
		return report, r.failed(err)
	}
	return report, nil
}

// Append writes one evaluation and returns when it is on the disk. Of long streams only
// the beginning and the end are written: the record of the run has more. A score that is
// not finite, which JSON cannot carry, is refused.
func (r *ResultsFile) Append(e Evaluation) error {
	for _, score := range []*float64{e.Score, e.GradedScore} {
		if score != nil && (!isFinite(*score)) {
			return r.failed(fmt.Errorf("the score %v is not finite", *score))
		}
	}
	text, err := json.Marshal(e.Bounded())
	if err != nil {
		return r.failed(err)
	}
	if len(text) >= maxLine {
		return r.failed(fmt.Errorf("an evaluation of %d bytes is longer than %v", len(text), policy.Size(maxLine)))
	}
	// One write: another reader never sees half of a line, unless the disk is full.
	if _, err := r.file.Write(append(text, '\n')); err != nil {
		return r.failed(err)
	}
	if err := r.file.Sync(); err != nil {
		return r.failed(err)
	}
	return nil
}

// Close releases the file.
func (r *ResultsFile) Close() error {
	var err error
	if r.file != nil {
		err = r.file.Close()
	}
	return errors.Join(err, r.lock.Close())
}

func (r *ResultsFile) failed(err error) error {
	return &ResultsError{Path: r.path, Rule: fsx.Cause(err).Error(), Err: err}
}
