package submission

import (
	"bufio"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

// Rule is what a submission must look like.
type Rule struct {
	// Name is the file in final/; empty is [DefaultName].
	Name string
	// Sample is a CSV file with the right header, rows and IDs.
	Sample string
	// IDColumn is the column of the IDs; empty is the first one of the sample. A sample with one column
	// has no IDs then.
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
	// Notes are unusual but not wrong: at most 20. Never nil.
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
	errEmpty         = errors.New("is empty")
	errOnlyCR        = errors.New("its lines end with CR alone; they must end with LF")
	errRecordTooLong = fmt.Errorf("a record takes more than %v", policy.Size(maxRecord))
)

// CheckSample refuses a rule whose sample does not exist, is not a regular file or not a CSV,
// or does not have the column of the IDs.
func (r Rule) CheckSample() error {
	sample, err := r.openSample()
	if err != nil {
		return err
	}
	return sample.file.Close()
}

// openSample opens the sample, reads its header and finds the column of the IDs.
func (r Rule) openSample() (*table, error) {
	if r.Sample == "" {
		return nil, &policy.FieldError{Field: "sample", Rule: "is missing: there is nothing to compare a submission with"}
	}
	if err := checkName(nameOr(r.Name)); err != nil {
		return nil, err
	}
	file, err := fsx.Open(r.Sample)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &sandbox.PathError{Field: "sample", Path: r.Sample, Rule: "does not exist"}
	}
	var sample *table
	if err == nil {
		sample = newTable("sample", file)
		err = sample.readHeader()
		switch {
		case err != nil:
		case r.IDColumn != "":
			if sample.column = slices.Index(sample.header, r.IDColumn); sample.column < 0 {
				err = fmt.Errorf("has no column %s", shown(r.IDColumn))
			}
		case len(sample.header) == 1 && r.SameOrder:
			err = errors.New("has one column, so there are no IDs whose order could be compared: give --id-column, or leave out --same-order")
		case len(sample.header) == 1:
			sample.column = -1
		}
		if err != nil {
			_ = file.Close() // was only read
		}
	}
	if err != nil {
		return nil, &sandbox.PathError{Field: "sample", Path: r.Sample, Rule: fsx.Cause(err).Error()}
	}
	return sample, nil
}

// Check compares the submission in final/ of workingDir with the sample: header, number of
// records and IDs. It reads both files once, side by side. A submission that cannot be read is
// a problem of the submission.
func (r Rule) Check(ctx context.Context, workingDir string) Check {
	c := comparison{Check: Check{Problems: []string{}, Notes: []string{}}, sameOrder: r.SameOrder}
	theirs, err := r.openSample()
	if err != nil {
		c.fail("%v", err)
		return c.Check
	}
	defer theirs.file.Close()
	name := nameOr(r.Name)
	file, info, err := open(workingDir, name)
	switch {
	case err != nil:
		c.problem("%v", err)
	case info.Problem != "":
		c.problem("%s: %s", name, info.Problem)
	case !info.Exists:
		c.problem("%s: there is no such file; the script must write ./final/%s", name, name)
	default:
		defer file.Close()
		c.ours, c.theirs = newTable(name, file), theirs
		if c.headers() {
			c.records(ctx)
			c.Rows, c.SampleRows = c.ours.rows, c.theirs.rows
		}
	}
	if c.more > 0 {
		c.Problems = append(c.Problems, fmt.Sprintf("and %d further problems", c.more))
	}
	if c.moreNotes > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("and %d further notes", c.moreNotes))
	}
	c.OK = len(c.Problems) == 0 && c.Failure == ""
	return c.Check
}

// comparison is a check in progress.
type comparison struct {
	Check
	sameOrder    bool
	more         int64 // problems that are not in the list
	moreNotes    int64 // notes that are not in the list
	ours, theirs *table
}

func (c *comparison) problem(format string, args ...any) {
	if len(c.Problems) >= maxProblems-1 {
		c.more++
		return
	}
	c.Problems = append(c.Problems, fmt.Sprintf(format, args...))
}

// note adds a note.
func (c *comparison) note(format string, args ...any) {
	if len(c.Notes) >= maxProblems-1 {
		c.moreNotes++
		return
	}
	c.Notes = append(c.Notes, fmt.Sprintf(format, args...))
}

// fail keeps the first reason.
func (c *comparison) fail(format string, args ...any) {
	c.Failure = cmp.Or(c.Failure, fmt.Sprintf(format, args...))
}

// headers compares the first records. Without the column of the IDs nothing more can be
// compared.
func (c *comparison) headers() bool {
	err := c.ours.readHeader()
	if c.ours.mark {
		c.note("the submission begins with a byte order mark")
	}
	got, want := c.ours.header, c.theirs.header
	switch {
	case errors.Is(err, errEmpty):
		c.problem("%s: is empty: it must have the header %s and the rows of the sample", c.ours.name, shown(strings.Join(want, ",")))
		return false
	case errors.Is(err, errOnlyCR):
		c.problem("%s: %v", c.ours.name, err)
		return false
	case err != nil:
		c.problem("%v", err)
		return false
	case !slices.Equal(got, want):
		c.problem("line 1: the header is %s, the sample's is %s%s", shown(strings.Join(got, ",")), shown(strings.Join(want, ",")), headerAdvice(got, want))
	}
	c.watch()
	if c.theirs.column < 0 {
		c.ours.column = -1
		if !slices.Equal(got, want) {
			return false
		}
		c.note("the sample has one column, so IDs were not compared: give --id-column if the column has the IDs")
		return true
	}
	id := want[c.theirs.column]
	if c.ours.column = slices.Index(got, id); c.ours.column < 0 {
		c.problem("line 1: there is no column %s", shown(id))
	}
	return c.ours.column >= 0
}

// headerAdvice says how to correct a header that differs from the sample's in a known way; empty for others.
func headerAdvice(got, want []string) string {
	plain := func(names []string) []string {
		var all []string
		for _, name := range names {
			all = append(all, strings.ToLower(strings.TrimSpace(name)))
		}
		return all
	}
	sorted := func(names []string) []string { return slices.Sorted(slices.Values(names)) }
	separated := func(by string) bool { return len(got) == 1 && slices.Equal(strings.Split(got[0], by), want) }
	switch {
	case len(got) == len(want)+1 && (got[0] == "" || got[0] == "Unnamed: 0") && slices.Equal(got[1:], want):
		return ": the first column is an index; write the file without it (index=False)"
	case separated(";") || separated("\t"):
		return ": separate the columns by commas"
	case strings.HasPrefix(got[0], "\x1f\x8b"):
		return ": the file is compressed (gzip); write it as plain text"
	case strings.HasPrefix(got[0], "\xff\xfe") || strings.HasPrefix(got[0], "\xfe\xff"):
		return ": the file is UTF-16; write it as UTF-8"
	case slices.Equal(plain(got), plain(want)):
		return ": the names must be the same, also in case and blanks"
	case slices.Equal(sorted(got), sorted(want)):
		return ": write the columns in the order of the sample"
	}
	return ""
}

// watch looks at the values of the columns that both files have, except the IDs.
func (c *comparison) watch() {
	for at, name := range c.theirs.header {
		if i := slices.Index(c.ours.header, name); i >= 0 && at != c.theirs.column {
			c.ours.values, c.theirs.values = append(c.ours.values, values{column: i}), append(c.theirs.values, values{column: at})
		}
	}
}

// valueNotes adds notes on values of which the sample has none in their columns.
func (c *comparison) valueNotes() {
	for i, ours := range c.ours.values {
		theirs, name := c.theirs.values[i], shown(c.ours.header[ours.column])
		note := func(got, want kindOf, what, advice string) {
			if got.count > 0 && want.count == 0 {
				verb := "are"
				if got.count == 1 {
					verb = "is"
				}
				c.note("column %s: %s %s %s, first %s in line %d: %s", name, text.Count(got.count, "value"), verb, what, shown(got.first), got.line, advice)
			}
		}
		note(ours.missing, theirs.missing, "missing", "write a prediction for each row")
		note(ours.infinite, theirs.infinite, "infinite", "write finite numbers")
		note(ours.garbled, theirs.garbled, "not UTF-8", "write the file as UTF-8")
		if theirs.words.count == 0 && theirs.numbers > 0 {
			note(ours.words, theirs.words, "not numeric", "the sample has numbers there")
		}
	}
}

// values counts the values of a column by their kinds.
type values struct {
	column                            int
	missing, infinite, garbled, words kindOf
	numbers                           int64
}

// kindOf counts values of one kind, and keeps the first.
type kindOf struct {
	count int64
	first string
	line  int
}

// missingWords are the values that libraries for tables read as missing.
var missingWords = []string{"", "nan", "na", "n/a", "<na>", "null", "none", "nat"}

// see counts a value.
func (v *values) see(value string, line int) {
	word := strings.ToLower(strings.TrimSpace(value))
	number, err := strconv.ParseFloat(word, 64)
	kind := &v.words
	switch {
	case !utf8.ValidString(value):
		kind = &v.garbled
	case slices.Contains(missingWords, word) || err == nil && math.IsNaN(number):
		kind = &v.missing
	case err == nil && math.IsInf(number, 0):
		kind = &v.infinite
	case err == nil || errors.Is(err, strconv.ErrRange) || word == "true" || word == "false":
		v.numbers++
		return
	}
	if kind.count++; kind.count == 1 {
		kind.first, kind.line = strings.Clone(value[:min(len(value), maxRecord>>10)]), line
	}
}

// records compares the records side by side, and then their numbers and the IDs as a whole.
func (c *comparison) records(ctx context.Context) {
	// The sums of the hashes of the IDs are equal for the same IDs in another order.
	seed, disorder := maphash.MakeSeed(), ""
	for n := 0; !c.ours.ended || !c.theirs.ended; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			c.fail("the check was canceled after line %d", c.ours.line)
			return
		}
		got, ok := c.ours.id(seed, c.problem)
		if !ok {
			return
		}
		want, ok := c.theirs.id(seed, c.fail)
		if !ok {
			return
		}
		if !c.ours.ended && !c.theirs.ended && got != want && disorder == "" {
			disorder = fmt.Sprintf("line %d: the ID is %s, the sample's is %s%s", c.ours.line, shown(got), shown(want), idAdvice(got, want))
		}
	}
	c.valueNotes()
	if c.ours.rows != c.theirs.rows {
		c.problem("%s, expected %d", text.Count(c.ours.rows, "row"), c.theirs.rows)
	}
	switch {
	case disorder == "":
	case c.ours.rows != c.theirs.rows || c.ours.sum != c.theirs.sum:
		c.problem("the IDs are not the sample's: %s", disorder)
	case c.sameOrder:
		c.problem("the IDs are the sample's in another order: %s", disorder)
	default:
		c.note("the IDs are the sample's in another order: %s", disorder)
	}
}

// idAdvice says that two IDs are one number in two forms; empty if they are not.
func idAdvice(got, want string) string {
	_, intGot := new(big.Int).SetString(got, 10)
	_, intWant := new(big.Int).SetString(want, 10)
	if intGot && intWant && len(got) == len(want) {
		return "" // a float64 can be the same for both
	}
	a, errA := strconv.ParseFloat(got, 64)
	b, errB := strconv.ParseFloat(want, 64)
	if errA != nil || errB != nil || a != b {
		return ""
	}
	return ", the same number in another form: read and write the IDs as text"
}

// table reads a CSV file record by record.
type table struct {
	name   string
	file   io.ReadCloser
	left   int // bytes that the record may still take
	in     *bufio.Reader
	csv    *csv.Reader
	mark   bool // the file begins with a byte order mark
	header []string
	column int // of the IDs; -1 for none
	values []values
	line   int
	rows   int64
	ended  bool
	sum    uint64 // of the hashes of the IDs
}

func newTable(name string, file io.ReadCloser) *table {
	t := &table{name: name, file: file, left: maxRecord}
	t.in = bufio.NewReader(t)
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

// Read reads from the file while the record is not too long.
func (t *table) Read(p []byte) (int, error) {
	if t.left <= 0 {
		return 0, errRecordTooLong
	}
	n, err := t.file.Read(p[:min(len(p), t.left)])
	t.left -= n
	return n, err
}

// readHeader reads the first record.
func (t *table) readHeader() error {
	record, err := t.next()
	if errors.Is(err, io.EOF) {
		return errEmpty
	}
	if err != nil {
		return err
	}
	t.header = slices.Clone(record)
	if strings.Contains(strings.TrimRight(strings.Join(record, ","), "\r"), "\r") {
		if _, err := t.in.Peek(1); errors.Is(err, io.EOF) { // the header is the whole file
			return errOnlyCR
		}
	}
	return nil
}

// next returns the next record, which is valid until the next call, or io.EOF.
func (t *table) next() ([]string, error) {
	t.left = maxRecord
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
func (t *table) id(seed maphash.Seed, report func(format string, args ...any)) (id string, ok bool) {
	if t.ended {
		return "", true
	}
	record, err := t.next()
	if errors.Is(err, io.EOF) {
		t.ended = true
		return "", true
	}
	if err != nil {
		report("%v", err)
		return "", false
	}
	t.rows++
	if len(record) != len(t.header) {
		report("%s line %d: %d fields, the header has %d", t.name, t.line, len(record), len(t.header))
	}
	for i := range t.values {
		if at := t.values[i].column; at < len(record) {
			t.values[i].see(record[at], t.line)
		}
	}
	if t.column >= 0 && t.column < len(record) {
		id = strings.Clone(record[t.column])
	}
	t.sum += maphash.String(seed, id)
	return id, true
}
