//go:build unix

package submission

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/treetest"
)

// finalOf is a working directory whose final/ holds one file.
func finalWith(t *testing.T, name, text string) string {
	t.Helper()
	dir := t.TempDir()
	treetest.File(t, filepath.Join(dir, "final", name), text)
	return dir
}

func TestSubmissionInfo(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		rows int64
	}{
		"empty":               {"", 0},
		"header only":         {"id,x\n", 0},
		"rows":                {"id,x\n1,2\n3,4\n", 2},
		"no newline at end":   {"id,x\n1,2", 1},
		"CR LF":               {"id,x\r\n1,2\r\n", 1},
		"CR only":             {"id,x\r1,2\r3,4", 2},
		"a CR in a LF file":   {"id,x\n1,a\rb\n", 1},
		"blank lines":         {"\n\nid,x\n \t\n1,2\n\r\n", 1},
		"only blank lines":    {"\n\n\n", 0},
		"other separators":    {"id,x\n1,a\u2028b\x0bc\x85\n", 1},
		"bytes":               {"\xff\xfe\x00\nx\n", 1},
		"a line without end":  {"id\n" + strings.Repeat("x", 1<<20), 1},
		"a long blank line":   {"id\n" + strings.Repeat(" ", 1<<20) + "\n1\n", 1},
		"text after blanks":   {"id\n" + strings.Repeat(" ", 1<<20) + "x\n", 1},
		"CR LF over a buffer": {"id\r\n" + strings.Repeat("y", 256<<10-5) + "\r\nz\r\n", 2},
	} {
		t.Run(name, func(t *testing.T) {
			dir := finalWith(t, "submission.csv", test.text)
			info, err := Info(dir, "")
			require.NoError(t, err)
			require.True(t, info.Exists)
			require.Equal(t, filepath.Join(dir, "final", "submission.csv"), info.Path)
			require.EqualValues(t, len(test.text), info.SizeBytes)
			require.Equal(t, test.rows, *info.RowCount)
			ok, err := Verify(dir, "")
			require.NoError(t, err)
			require.Equal(t, test.text != "", ok)
		})
	}
}

func TestSubmissionThatIsNotThere(t *testing.T) {
	dir := finalWith(t, "other.csv", "x\n")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "final", "folder.csv"), 0o755))
	require.NoError(t, os.Symlink("other.csv", filepath.Join(dir, "final", "link.csv")))
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "final", "out.csv")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "final", "pipe.csv"), 0o600))
	const link = "is a symbolic link, which is not followed"
	for name, problem := range map[string]string{
		"submission.csv": "", "no/such.csv": "", "folder.csv": "is a directory, not a file", "link.csv": link, "out.csv": link,
		"pipe.csv": "is a named pipe, not a file",
	} {
		info, err := Info(dir, name)
		require.NoError(t, err, name)
		if problem == "" {
			problem = `does not exist, and ./final has "folder.csv", "link.csv", "other.csv" and more: the script must write ./final/` + name
		}
		require.Equal(t, File{Path: filepath.Join(dir, "final", name), Problem: problem}, info)
		if problem != "" {
			sample := filepath.Join(dir, "final", "other.csv")
			require.Equal(t, []string{name + ": " + problem}, Rule{Name: name, Sample: sample}.Check(t.Context(), dir).Problems)
		}
		ok, err := Verify(dir, name)
		require.NoError(t, err)
		require.False(t, ok)
	}
	info, err := Info(filepath.Join(dir, "nowhere"), "")
	require.NoError(t, err)
	require.False(t, info.Exists)
	require.Empty(t, info.Problem)
	empty := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(empty, "final"), 0o755))
	info, err = Info(empty, "")
	require.NoError(t, err)
	require.Equal(t, "does not exist, and ./final is empty: the script must write ./final/submission.csv", info.Problem)
	for _, name := range []string{"../x.csv", "/x.csv", ".", "a/../../b", `a\b`, "a\x00b"} {
		_, err := Info(dir, name)
		require.ErrorContains(t, err, "must be the name of a file", name)
		_, err = Verify(dir, name)
		require.Error(t, err, name)
	}
	// A name of its own, and one in a directory of final.
	treetest.File(t, filepath.Join(dir, "final", "sub", "p.csv"), "x\n1\n")
	info, err = Info(dir, "sub/p.csv")
	require.NoError(t, err)
	require.EqualValues(t, 1, *info.RowCount)
}

func TestCheckSubmission(t *testing.T) {
	const sample = "id,label\n1,0\n2,0\n3,0\n"
	for name, test := range map[string]struct {
		text     string
		rule     Rule
		problems []string
		note     string
		rows     int64
	}{
		"as the sample":         {text: "id,label\n1,5\n2,6\n3,7\n", rows: 3},
		"quotes and CR LF":      {text: "\"id\",\"label\"\r\n\"1\",\"1\"\r\n2,\"2\"\r\n3,3\r\n", rows: 3},
		"a missing value":       {text: "id,label\n1,5\n2,\n3,NaN\n", note: `column "label": 2 values are missing, first "" in line 3: write a prediction for each row`, rows: 3},
		"an infinite value":     {text: "id,label\n1,5\n2,-inf\n3,7\n", note: `column "label": 1 value is infinite, first "-inf" in line 3: write finite numbers`, rows: 3},
		"texts for numbers":     {text: "id,label\n1,cat\n2,True\n3,7\n", note: `column "label": 1 value is not numeric, first "cat" in line 2: the sample has numbers there`, rows: 3},
		"a value of lines":      {text: "id,label\n1,\"a\nb\"\n2,2\n3,3\n", note: `first "a\nb" in line 2`, rows: 3},
		"not UTF-8":             {text: "id,label\n1,caf\xe9\n2,2\n3,3\n", note: "1 value is not UTF-8", rows: 3},
		"an index":              {text: ",id,label\n0,1,5\n1,2,6\n2,3,7\n", problems: []string{"the first column is an index; write the file without it (index=False)"}, rows: 3},
		"semicolons":            {text: "id;label\n1;5\n", problems: []string{"separate the columns by commas", "no column"}},
		"compressed":            {text: "\x1f\x8b\b\x00", problems: []string{"the file is compressed", "no column"}},
		"UTF-16":                {text: "\xff\xfei\x00d\x00", problems: []string{"the file is UTF-16", "no column"}},
		"another case":          {text: "Id, label\n1,5\n", problems: []string{"the names must be the same", "no column"}},
		"IDs as numbers":        {text: "id,label\n1.0,5\n2.0,6\n3.0,7\n", problems: []string{`the ID is "1.0", the sample's is "1", the same number in another form`}, rows: 3},
		"another header":        {text: "id,target\n1,5\n2,6\n3,7\n", problems: []string{`line 1: the header is "id,target", the sample's is "id,label"`}, rows: 3},
		"no ID column":          {text: "key,label\n1,5\n", problems: []string{`the header is "key,label"`, `line 1: there is no column "id"`}},
		"columns swapped":       {text: "label,id\n5,1\n6,2\n7,3\n", problems: []string{`the sample's is "id,label": write the columns in the order of the sample`}, rows: 3},
		"too few rows":          {text: "id,label\n1,5\n2,6\n", problems: []string{"2 rows, expected 3"}, rows: 2},
		"too many rows":         {text: "id,label\n1,5\n2,6\n3,7\n4,8\n", problems: []string{"4 rows, expected 3"}, rows: 4},
		"no rows":               {text: "id,label\n", problems: []string{"0 rows, expected 3"}},
		"another ID":            {text: "id,label\n1,5\n9,6\n3,7\n", problems: []string{`the IDs are not the sample's: line 3: the ID is "9", the sample's is "2"`}, rows: 3},
		"an ID twice":           {text: "id,label\n1,5\n1,6\n3,7\n", problems: []string{`the IDs are not the sample's: line 3: the ID is "1", the sample's is "2"`}, rows: 3},
		"another order":         {text: "id,label\n3,5\n2,6\n1,7\n", note: `the IDs are the sample's in another order: line 2: the ID is "3"`, rows: 3},
		"the order demanded":    {text: "id,label\n3,5\n2,6\n1,7\n", rule: Rule{SameOrder: true}, problems: []string{"in another order: line 2"}, rows: 3},
		"fields missing":        {text: "id,label\n1\n2,6\n3,7,8\n", problems: []string{"line 2: 1 fields, the header has 2", "line 4: 3 fields"}, rows: 3},
		"another ID column":     {text: "id,label\n9,0\n8,0\n7,0\n", rule: Rule{IDColumn: "label"}, rows: 3},
		"a mark and quotes":     {text: "\ufeff\"id\",\"label\"\n\"1\",5\n2,6\n3,7\n", note: "byte order mark", rows: 3},
		"lines with CR":         {text: "id,label\r1,5\r2,6\r3,7\r", problems: []string{"submission.csv: its lines end with CR alone; they must end with LF"}},
		"CR in a quoted name":   {text: "\"id\rx\",label\n1,5\n", problems: []string{`line 1: the header is "id\rx,label"`, "no column"}},
		"a byte order mark":     {text: "\ufeffid,label\n1,5\n2,6\n3,7\n", note: "byte order mark", rows: 3},
		"empty":                 {text: "", problems: []string{`submission.csv: is empty: it must have the header "id,label" and the rows of the sample`}},
		"a quote in the middle": {text: "id,label\n1,5\n2,a\"b\n3,7\n", problems: []string{"submission.csv line 3:"}, rows: 1},
		"an open quote":         {text: "id,label\n1,\"5\n2,6\n3,7\n", problems: []string{"submission.csv line"}},
		"an endless quote":      {text: "id,label\n1,5\n2,\"" + strings.Repeat("x\n", 2<<20), problems: []string{"after line 2: a record takes more than 1MiB; is a quote not closed?"}, rows: 1},
		"a control character":   {text: "id\x1b[2J,label\n1,5\n2,6\n3,7\n", problems: []string{`"id\x1b[2J,label"`, "no column"}},
		"another name":          {text: sample, rule: Rule{Name: "other.csv"}, problems: []string{`other.csv: does not exist, and ./final has "submission.csv": the script must write ./final/other.csv`}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := finalWith(t, "submission.csv", test.text)
			test.rule.Sample = filepath.Join(dir, "sample.csv")
			treetest.File(t, test.rule.Sample, sample)
			check := test.rule.Check(t.Context(), dir)
			require.Len(t, check.Problems, len(test.problems), "%q", check.Problems)
			for i, want := range test.problems {
				require.Contains(t, check.Problems[i], want)
			}
			require.Equal(t, len(test.problems) == 0, check.OK)
			require.Contains(t, strings.Join(check.Notes, "\n"), test.note)
			require.Equal(t, test.note == "", len(check.Notes) == 0)
			require.Equal(t, test.rows, check.Rows)
		})
	}
}

// TestSampleWithOneColumn: it has predictions and no IDs, unless somebody says that they are.
func TestSampleWithOneColumn(t *testing.T) {
	for name, test := range map[string]struct {
		text     string
		column   string
		problems []string
		notes    int
	}{
		"other predictions": {text: "y\n1\n2\n", notes: 1},
		"missing":           {text: "y\n1\nnan\n", notes: 2},
		"rows":              {text: "y\n1\n", problems: []string{"1 row, expected 2"}, notes: 1},
		"header":            {text: "x\n1\n2\n", problems: []string{`the header is "x"`}},
		"named as the IDs":  {text: "y\n1\n2\n", column: "y", problems: []string{"the IDs are not the sample's"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := finalWith(t, "submission.csv", test.text)
			rule := Rule{Sample: filepath.Join(dir, "sample.csv"), IDColumn: test.column}
			treetest.File(t, rule.Sample, "y\n0\n0\n")
			check := rule.Check(t.Context(), dir)
			require.Len(t, check.Problems, len(test.problems), "%q", check.Problems)
			for i, want := range test.problems {
				require.Contains(t, check.Problems[i], want)
			}
			require.Len(t, check.Notes, test.notes, "%q", check.Notes)
		})
	}
	sample := filepath.Join(t.TempDir(), "sample.csv")
	treetest.File(t, sample, "y\n0\n")
	require.ErrorContains(t, Rule{Sample: sample, SameOrder: true}.CheckSample(), "has one column, so there are no IDs whose order could be compared")
}

// TestManyNotes: the notes of a wide submission are bounded.
func TestManyNotes(t *testing.T) {
	row := func(first, other string) string { return first + strings.Repeat(","+other, 500) + "\n" }
	var header strings.Builder
	header.WriteString("id")
	for i := range 500 {
		fmt.Fprintf(&header, ",c%d", i)
	}
	dir := finalWith(t, "submission.csv", header.String()+"\n"+row("1", "nan"))
	rule := Rule{Sample: filepath.Join(dir, "sample.csv")}
	treetest.File(t, rule.Sample, header.String()+"\n"+row("1", "0"))
	check := rule.Check(t.Context(), dir)
	require.Len(t, check.Notes, maxProblems)
	require.Equal(t, "and 481 further notes", check.Notes[maxProblems-1])
}

// TestIDsThatLookAlike: two whole numbers of the same length are two IDs, even if a float is one for both.
func TestIDsThatLookAlike(t *testing.T) {
	require.Empty(t, idAdvice("1234567890123456789", "1234567890123456790"))
	require.NotEmpty(t, idAdvice("1.0", "1"))
	require.NotEmpty(t, idAdvice("007", "7"))
}

func TestCheckSubmissionBounds(t *testing.T) {
	var text, sample strings.Builder
	text.WriteString("id,label\n")
	sample.WriteString("id,label\n")
	for i := range 5000 {
		fmt.Fprintf(&text, "%d\n", i)
		fmt.Fprintf(&sample, "%d,0\n", i)
	}
	dir := finalWith(t, "submission.csv", text.String())
	rule := Rule{Sample: filepath.Join(dir, "sample.csv")}
	treetest.File(t, rule.Sample, sample.String())
	check := rule.Check(t.Context(), dir)
	require.Len(t, check.Problems, maxProblems)
	require.Equal(t, "and 4981 further problems", check.Problems[maxProblems-1])

	treetest.File(t, filepath.Join(dir, "final", "submission.csv"), "id,"+strings.Repeat("é", 100_000)+"\n")
	for _, problem := range rule.Check(t.Context(), dir).Problems {
		require.Less(t, len(problem), 1000)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	treetest.File(t, filepath.Join(dir, "final", "submission.csv"), sample.String())
	for want, check := range map[string]Check{
		"canceled":           rule.Check(ctx, dir),
		"does not exist":     Rule{Sample: filepath.Join(dir, "nowhere.csv")}.Check(t.Context(), dir),
		"sample: is missing": Rule{}.Check(t.Context(), dir),
		`has no column "k"`:  Rule{Sample: rule.Sample, IDColumn: "k"}.Check(t.Context(), dir),
	} {
		require.Contains(t, check.Failure, want)
		require.False(t, check.OK)
		require.Empty(t, check.Problems, "it is no fault of the submission")
	}
}
