package evaluate

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/evalbox/evalbox/policy"
)

// SubmissionRule says what a submission must look like.
type SubmissionRule struct {
	// Name is the file in final/; empty is [DefaultSubmission].
	Name string
	// Sample is a CSV file with the right header, rows and IDs.
	Sample string
	// IDColumn is the column of the IDs; empty is the first one of the sample.
	IDColumn string
	// SameOrder demands the IDs in the order of the sample.
	SameOrder bool
}

// SubmissionCheck is what the comparison with a sample found.
type SubmissionCheck struct {
	// OK says that there is nothing wrong, and that the check came to its end.
	OK bool `json:"ok"`
	// Failure is why the check says nothing about the submission: it was canceled, or
	// the sample cannot be used. Empty when it does.
	Failure string `json:"failure"`
	// Problems say what is wrong, with line numbers; at most 20 and none much
	// longer than a line. Never nil.
	Problems []string `json:"problems"`
	// Notes are what is unusual and not wrong. Never nil.
	Notes []string `json:"notes"`
	// Rows and SampleRows count the records after the header. When one of the
	// files ends early, or cannot be read, they are how far the check came.
	Rows       int64 `json:"rows"`
	SampleRows int64 `json:"sample_rows"`
}

const (
	// maxProblems bounds the messages of one check.
	maxProblems = 20
	// maxRecord bounds one record of a CSV file: a quote that is never closed
	// makes one of the whole rest of the file.
	maxRecord = 1 << 20
)

func (r SubmissionRule) check() error {
	if r.Sample == "" {
		return &policy.FieldError{Field: "sample", Rule: "is missing: there is nothing to compare a submission with"}
	}
	if r.Name == "" {
		return nil
	}
	return checkSubmissionName(r.Name)
}

// Check compares the submission in final/ of workingDir with the sample: header,
// number of records and IDs. It reads both files once, side by side, and holds a few
// records in memory. That a file cannot be read is a problem as well.
func (r SubmissionRule) Check(ctx context.Context, workingDir string) SubmissionCheck {
	c := comparison{rule: r, check: SubmissionCheck{Problems: []string{}, Notes: []string{}}}
	c.compare(ctx, workingDir)
	if c.more > 0 {
		c.check.Problems = append(c.check.Problems, fmt.Sprintf("and %d further problems", c.more))
	}
	c.check.OK = len(c.check.Problems) == 0 && c.check.Failure == ""
	return c.check
}

type comparison struct {
	rule           SubmissionRule
	check          SubmissionCheck
	more           int64
	ours, theirs   *table
	idOurs, idSeen int
	// sums tell whether two files hold the same IDs in another order, without
	// holding the IDs: the hashes of each, added up.
	seeds          [2]maphash.Seed
	sumOurs, sumID [2]uint64
	disordered     int64 // line of the first difference
	disorder       string
}

func (c *comparison) problem(format string, args ...any) {
	if len(c.check.Problems) >= maxProblems-1 {
		c.more++
		return
	}
	c.check.Problems = append(c.check.Problems, fmt.Sprintf(format, args...))
}

// fail notes why there is no answer.
func (c *comparison) fail(err error) {
	if c.check.Failure == "" {
		c.check.Failure = err.Error()
	}
}

// openSample opens the sample and reads its header. column is that of the IDs.
func (r SubmissionRule) openSample() (sample *os.File, t *table, header []string, column int, err error) {
	if err := r.check(); err != nil {
		return nil, nil, nil, 0, err
	}
	if sample, err = fsx.Open(r.Sample); err != nil {
		return nil, nil, nil, 0, unusable("sample", r.Sample, err)
	}
	t = newTable("sample", sample)
	header, err = t.next()
	header = slices.Clone(header)
	switch {
	case errors.Is(err, io.EOF):
		err = unusable("sample", r.Sample, errors.New("is empty"))
	case err != nil:
		err = unusable("sample", r.Sample, t.describe(err))
	case t.oneLine(header):
		err = unusable("sample", r.Sample, errOnlyCR)
	case r.IDColumn != "":
		if column = slices.Index(header, r.IDColumn); column < 0 {
			err = unusable("sample", r.Sample, fmt.Errorf("has no column %s", shown(r.IDColumn)))
		}
	}
	if err != nil {
		return nil, nil, nil, 0, errors.Join(err, sample.Close())
	}
	t.width = len(header)
	return sample, t, header, column, nil
}

// CheckSample refuses a rule whose sample cannot be used: it does not exist, is no regular
// file or no CSV, or has no column of the name.
func (r SubmissionRule) CheckSample() error {
	sample, _, _, _, err := r.openSample()
	if err != nil {
		return err
	}
	return sample.Close()
}

func (c *comparison) compare(ctx context.Context, workingDir string) {
	sample, theirs, want, column, err := c.rule.openSample()
	if err != nil {
		c.fail(err)
		return
	}
	defer sample.Close()
	file, info, err := openSubmission(workingDir, c.rule.Name)
	switch {
	case err != nil:
		c.problem("%v", err)
		return
	case info.Problem != "":
		c.problem("%s: %s", submissionName(c.rule.Name), info.Problem)
		return
	case !info.Exists:
		c.problem("%s: there is no such file", submissionName(c.rule.Name))
		return
	}
	defer file.Close()
	c.ours, c.theirs, c.idSeen = newTable(submissionName(c.rule.Name), file), theirs, column
	c.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	if c.header(want) {
		c.records(ctx)
	}
}

func submissionName(name string) string {
	if name == "" {
		return DefaultSubmission
	}
	return name
}

// header compares the first records. Without the ID column nothing more can be told.
func (c *comparison) header(want []string) bool {
	got, err := c.ours.next()
	if err != nil {
		c.problem("%v", c.ours.describe(err))
		return false
	}
	if c.ours.mark {
		c.check.Notes = append(c.check.Notes, "the submission begins with a byte order mark")
	}
	if c.ours.oneLine(got) {
		c.problem("%s: %v", c.ours.name, errOnlyCR)
		return false
	}
	if !slices.Equal(got, want) {
		c.problem("line 1: the header is %s, the sample's is %s", shown(strings.Join(got, ",")), shown(strings.Join(want, ",")))
	}
	c.idOurs = slices.Index(got, want[c.idSeen])
	if c.idOurs < 0 {
		c.problem("line 1: there is no column %s", shown(want[c.idSeen]))
	}
	c.ours.width = len(got)
	return c.idOurs >= 0
}

// records compares the records side by side.
func (c *comparison) records(ctx context.Context) {
	oursEnded, theirsEnded := false, false
	for n := 0; !oursEnded || !theirsEnded; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			c.fail(fmt.Errorf("the check was canceled after line %d", c.ours.line))
			return
		}
		var got, want string
		if !oursEnded {
			var ok bool
			if got, oursEnded, ok = c.id(c.ours, c.idOurs, &c.check.Rows, &c.sumOurs); !ok {
				return
			}
		}
		if !theirsEnded {
			var ok bool
			if want, theirsEnded, ok = c.id(c.theirs, c.idSeen, &c.check.SampleRows, &c.sumID); !ok {
				return
			}
		}
		if !oursEnded && !theirsEnded && got != want && c.disordered == 0 {
			c.disordered = c.ours.line
			c.disorder = fmt.Sprintf("line %d: the ID is %s, the sample's is %s", c.ours.line, shown(got), shown(want))
		}
	}
	c.conclude()
}

// id reads the ID of the next record. ok is false when the file cannot be read on.
func (c *comparison) id(t *table, column int, rows *int64, sum *[2]uint64) (id string, ended, ok bool) {
	record, err := t.next()
	switch {
	case errors.Is(err, io.EOF):
		return "", true, true
	case err != nil && t == c.theirs:
		c.fail(t.describe(err))
		return "", false, false
	case err != nil:
		c.problem("%v", t.describe(err))
		return "", false, false
	}
	*rows++
	switch {
	case len(record) == t.width:
	case t == c.theirs:
		c.fail(fmt.Errorf("%s line %d: %d fields, the header has %d", t.name, t.line, len(record), t.width))
	default:
		c.problem("%s line %d: %d fields, the header has %d", t.name, t.line, len(record), t.width)
	}
	if column < len(record) {
		id = strings.Clone(record[column])
	}
	for i, seed := range c.seeds {
		sum[i] += maphash.String(seed, id)
	}
	return id, false, true
}

// conclude says what the numbers and the IDs as a whole tell.
func (c *comparison) conclude() {
	same := c.check.Rows == c.check.SampleRows
	if !same {
		c.problem("%d rows, the sample has %d", c.check.Rows, c.check.SampleRows)
	}
	switch {
	case c.disordered == 0:
	case same && c.sumOurs == c.sumID && !c.rule.SameOrder:
		c.check.Notes = append(c.check.Notes, "the IDs are the sample's in another order: "+c.disorder)
	case same && c.sumOurs == c.sumID:
		c.problem("the IDs are the sample's in another order: %s", c.disorder)
	default:
		c.problem("the IDs are not the sample's: %s", c.disorder)
	}
}

// table reads a CSV file record by record.
type table struct {
	name  string
	csv   *csv.Reader
	left  *budget
	line  int64
	width int
	mark  bool // the file begins with a byte order mark
	in    *bufio.Reader
}

func newTable(name string, r io.Reader) *table {
	left := &budget{r: r}
	// The mark goes before CSV is looked at: a quote may follow it.
	buffered := bufio.NewReader(left)
	left.left = maxRecord
	start, _ := buffered.Peek(len(byteOrderMark)) // its error comes again
	t := &table{name: name, in: buffered, csv: csv.NewReader(buffered), left: left, mark: string(start) == byteOrderMark}
	if t.mark {
		_, _ = buffered.Discard(len(byteOrderMark)) // they are there
	}
	t.csv.ReuseRecord = true
	t.csv.FieldsPerRecord = -1 // said with its line, and without ending the check
	return t
}

// next returns the next record, which is good until the next call.
func (t *table) next() ([]string, error) {
	t.left.left = maxRecord
	record, err := t.csv.Read()
	if err != nil {
		return nil, err
	}
	line, _ := t.csv.FieldPos(0)
	t.line = int64(line)
	return record, nil
}

const byteOrderMark = "\ufeff"

var errOnlyCR = errors.New("its lines end with CR alone; they must end with LF")

// oneLine says that the header is the whole of a file whose lines end with CR.
func (t *table) oneLine(header []string) bool {
	if !strings.Contains(strings.TrimRight(strings.Join(header, ","), "\r"), "\r") {
		return false
	}
	_, err := t.in.Peek(1) // the reader of CSV takes this one as it is
	return errors.Is(err, io.EOF)
}

// describe words an error of next.
func (t *table) describe(err error) error {
	var parse *csv.ParseError
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%s: is empty", t.name)
	case errors.Is(err, errRecordTooLong):
		return fmt.Errorf("%s: after line %d: %w; is a quote not closed?", t.name, t.line, errRecordTooLong)
	case errors.As(err, &parse):
		return fmt.Errorf("%s line %d: %w", t.name, parse.Line, parse.Err)
	}
	return fmt.Errorf("%s: %w", t.name, fsx.Cause(err))
}

var errRecordTooLong = fmt.Errorf("a record takes more than %v", policy.Size(maxRecord))

// budget is a reader that gives at most left bytes until that is set again.
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
