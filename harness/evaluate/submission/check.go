package submission

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

// Rule is what a submission must look like.
type Rule struct {
	// Name is the file in final/; empty is [DefaultName].
	Name string
	// Sample is a CSV file with the right header, rows and IDs.
	Sample string
	// IDColumn is the column of the IDs; empty is the first one of the sample.
	IDColumn string
	// SameOrder demands the IDs in the order of the sample.
	SameOrder bool
}

// Check is the result of comparing a submission with a sample.
type Check struct {
	// OK reports that the comparison was complete and found no problem.
	OK bool `json:"ok"`
	// Failure says why the comparison is not about the submission: it was canceled, or the
	// sample cannot be used. Otherwise it is empty.
	Failure string `json:"failure"`
	// Problems are wrong, with line numbers: at most 20, and none much longer than a line.
	// Never nil.
	Problems []string `json:"problems"`
	// Notes are unusual but not wrong. Never nil.
	Notes []string `json:"notes"`
	// Rows and SampleRows count the records after the header, as far as they were read.
	Rows       int64 `json:"rows"`
	SampleRows int64 `json:"sample_rows"`
}

const (
	// maxProblems bounds the messages of one check.
	maxProblems = 20
	// maxRecord bounds one record of a CSV file, in bytes: a quote that is never closed makes
	// one record of the rest of the file.
	maxRecord = 1 << 20

	byteOrderMark = "\ufeff"
)

var (
	errOnlyCR        = errors.New("its lines end with CR alone; they must end with LF")
	errRecordTooLong = fmt.Errorf("a record takes more than %v", policy.Size(maxRecord))
)

// CheckSample refuses a rule whose sample does not exist, is not a regular file or not a CSV,
// or does not have the column of the IDs.
func (r Rule) CheckSample() error {
	sample, _, err := r.openSample()
	if err != nil {
		return err
	}
	return sample.file.Close()
}

// Check compares the submission in final/ of workingDir with the sample: header, number of
// records and IDs. It reads both files once, side by side. A submission that cannot be read is
// a problem of the submission.
func (r Rule) Check(ctx context.Context, workingDir string) Check {
	c := comparison{rule: r, Check: Check{Problems: []string{}, Notes: []string{}}, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	c.compare(ctx, workingDir)
	if c.more > 0 {
		c.Problems = append(c.Problems, fmt.Sprintf("and %d further problems", c.more))
	}
	c.OK = len(c.Problems) == 0 && c.Failure == ""
	return c.Check
}

// openSample opens the sample, reads its header and finds the column of the IDs.
func (r Rule) openSample() (sample *table, header []string, err error) {
	if r.Sample == "" {
		return nil, nil, &policy.FieldError{Field: "sample", Rule: "is missing: there is nothing to compare a submission with"}
	}
	if err := checkName(nameOr(r.Name)); err != nil {
		return nil, nil, err
	}
	file, err := fsx.Open(r.Sample)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, &sandbox.PathError{Field: "sample", Path: r.Sample, Rule: "does not exist"}
	}
	if err == nil {
		sample = newTable("sample", file)
		defer func() {
			if err != nil {
				_ = file.Close() // was only read
			}
		}()
		header, err = sample.header()
	}
	if err == nil && r.IDColumn != "" {
		if sample.column = slices.Index(header, r.IDColumn); sample.column < 0 {
			err = fmt.Errorf("has no column %s", shown(r.IDColumn))
		}
	}
	if err != nil {
		return nil, nil, &sandbox.PathError{Field: "sample", Path: r.Sample, Rule: fsx.Cause(err).Error()}
	}
	return sample, header, nil
}

// comparison is a check in progress.
type comparison struct {
	Check
	rule         Rule
	more         int64 // problems that are not in the list
	ours, theirs *table
	// seeds are for the hashes of the IDs. Their sums tell whether two files have the same IDs
	// in another order, without holding the IDs.
	seeds    [2]maphash.Seed
	disorder string // the first place at which the IDs differ
}

func (c *comparison) problem(err error) {
	if len(c.Problems) >= maxProblems-1 {
		c.more++
		return
	}
	c.Problems = append(c.Problems, err.Error())
}

func (c *comparison) fail(err error) {
	if c.Failure == "" {
		c.Failure = err.Error()
	}
}

func (c *comparison) compare(ctx context.Context, workingDir string) {
	theirs, want, err := c.rule.openSample()
	if err != nil {
		c.fail(err)
		return
	}
	defer theirs.file.Close()
	name := nameOr(c.rule.Name)
	file, info, err := open(workingDir, name)
	switch {
	case err != nil:
		c.problem(err)
		return
	case info.Problem != "":
		c.problem(fmt.Errorf("%s: %s", name, info.Problem))
		return
	case !info.Exists:
		c.problem(fmt.Errorf("%s: there is no such file", name))
		return
	}
	defer file.Close()
	c.ours, c.theirs = newTable(name, file), theirs
	if !c.headers(want) {
		return
	}
	if c.records(ctx) {
		c.conclude()
	}
	c.Rows, c.SampleRows = c.ours.rows, c.theirs.rows
}

// headers compares the first records. Without the column of the IDs nothing more can be
// compared.
func (c *comparison) headers(want []string) bool {
	got, err := c.ours.header()
	if c.ours.mark {
		c.Notes = append(c.Notes, "the submission begins with a byte order mark")
	}
	if err != nil {
		if errors.Is(err, errOnlyCR) || errors.Is(err, errEmpty) {
			err = fmt.Errorf("%s: %w", c.ours.name, err)
		}
		c.problem(err)
		return false
	}
	if !slices.Equal(got, want) {
		c.problem(fmt.Errorf("line 1: the header is %s, the sample's is %s", shown(strings.Join(got, ",")), shown(strings.Join(want, ","))))
	}
	id := want[c.theirs.column]
	if c.ours.column = slices.Index(got, id); c.ours.column < 0 {
		c.problem(fmt.Errorf("line 1: there is no column %s", shown(id)))
		return false
	}
	return true
}

// records compares the records side by side, and reports whether it came to their ends.
func (c *comparison) records(ctx context.Context) bool {
	for n := 0; !c.ours.ended || !c.theirs.ended; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			c.fail(fmt.Errorf("the check was canceled after line %d", c.ours.line))
			return false
		}
		got, ok := c.ours.id(c.seeds, c.problem)
		if !ok {
			return false
		}
		want, ok := c.theirs.id(c.seeds, c.fail)
		if !ok {
			return false
		}
		if !c.ours.ended && !c.theirs.ended && got != want && c.disorder == "" {
			c.disorder = fmt.Sprintf("line %d: the ID is %s, the sample's is %s", c.ours.line, shown(got), shown(want))
		}
	}
	return true
}

// conclude compares the numbers of records and the IDs as a whole.
func (c *comparison) conclude() {
	if c.ours.rows != c.theirs.rows {
		c.problem(fmt.Errorf("%d rows, the sample has %d", c.ours.rows, c.theirs.rows))
	}
	switch {
	case c.disorder == "":
	case c.ours.rows != c.theirs.rows || c.ours.sum != c.theirs.sum:
		c.problem(fmt.Errorf("the IDs are not the sample's: %s", c.disorder))
	case c.rule.SameOrder:
		c.problem(fmt.Errorf("the IDs are the sample's in another order: %s", c.disorder))
	default:
		c.Notes = append(c.Notes, "the IDs are the sample's in another order: "+c.disorder)
	}
}

// table reads a CSV file record by record.
type table struct {
	name   string
	file   io.Closer
	csv    *csv.Reader
	in     *bufio.Reader
	budget *budget
	mark   bool // the file begins with a byte order mark
	width  int  // fields of the header
	column int  // of the IDs
	line   int
	rows   int64
	ended  bool
	sum    [2]uint64 // of the hashes of the IDs
}

func newTable(name string, file io.ReadCloser) *table {
	t := &table{name: name, file: file, budget: &budget{file, maxRecord}}
	t.in = bufio.NewReader(t.budget)
	// The mark is removed before the CSV is read, because a quote may follow it.
	start, _ := t.in.Peek(len(byteOrderMark)) // the error comes again with the header
	if t.mark = string(start) == byteOrderMark; t.mark {
		_, _ = t.in.Discard(len(byteOrderMark)) // they are in the buffer
	}
	t.csv = csv.NewReader(t.in)
	t.csv.ReuseRecord = true
	t.csv.FieldsPerRecord = -1 // reported with its line, and without ending the check
	return t
}

var errEmpty = errors.New("is empty")

// header reads the first record.
func (t *table) header() ([]string, error) {
	record, err := t.next()
	if errors.Is(err, io.EOF) {
		return nil, errEmpty
	}
	if err != nil {
		return nil, err
	}
	t.width = len(record)
	if strings.Contains(strings.TrimRight(strings.Join(record, ","), "\r"), "\r") {
		if _, err := t.in.Peek(1); errors.Is(err, io.EOF) { // the header is the whole file
			return nil, errOnlyCR
		}
	}
	return slices.Clone(record), nil
}

// next returns the next record, which is valid until the next call, or io.EOF.
func (t *table) next() ([]string, error) {
	t.budget.left = maxRecord
	record, err := t.csv.Read()
	var parse *csv.ParseError
	switch {
	case err == nil:
		t.line, _ = t.csv.FieldPos(0)
		return record, nil
	case errors.Is(err, io.EOF):
		return nil, io.EOF
	case errors.Is(err, errRecordTooLong):
		return nil, fmt.Errorf("%s: after line %d: %w; is a quote not closed?", t.name, t.line, errRecordTooLong)
	case errors.As(err, &parse):
		return nil, fmt.Errorf("%s line %d: %w", t.name, parse.Line, parse.Err)
	}
	return nil, fmt.Errorf("%s: %w", t.name, fsx.Cause(err))
}

// id returns the ID of the next record, unless the table has ended. ok is false after an error
// that ends the comparison.
func (t *table) id(seeds [2]maphash.Seed, report func(error)) (id string, ok bool) {
	if t.ended {
		return "", true
	}
	record, err := t.next()
	if errors.Is(err, io.EOF) {
		t.ended = true
		return "", true
	}
	if err != nil {
		report(err)
		return "", false
	}
	t.rows++
	if len(record) != t.width {
		report(fmt.Errorf("%s line %d: %d fields, the header has %d", t.name, t.line, len(record), t.width))
	}
	if t.column < len(record) {
		id = strings.Clone(record[t.column])
	}
	for i, seed := range seeds {
		t.sum[i] += maphash.String(seed, id)
	}
	return id, true
}

// budget is a reader that gives at most left bytes until left is set again.
type budget struct {
	r    io.Reader
	left int
}

func (b *budget) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errRecordTooLong
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
