//go:build unix

package evaluate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/evaluate/submission"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/result"
)

// long is an evaluation of a script that prints a lot.
func long(name string, size int) Result {
	e := scored(name, new(0.5))
	text := strings.Repeat("File \"x\\y\", line 1\n", size/20)
	e.Stdout, e.Stderr, e.ErrorTraceback, e.ErrorSummary = text, text, &text, text
	e.Run = &RunFacts{Status: result.StatusExited, Fault: result.FaultNone, Explanation: text}
	e.Grading = &Grading{Run: &RunFacts{Status: result.StatusExited, Fault: result.FaultNone, Explanation: text}, Failure: text, Traceback: &text, Ended: true}
	e.Warnings = slices.Repeat([]string{text}, 3*maxWarnings)
	return e
}

// TestEveryTextIsBounded, so that no script decides how long a line is.
func TestEveryTextIsBounded(t *testing.T) {
	e := long("a", 32<<10)
	before, err := json.Marshal(e)
	require.NoError(t, err)
	short := e.Bounded()
	for name, text := range map[string]string{
		"stdout": short.Stdout, "stderr": short.Stderr, "traceback": *short.ErrorTraceback, "summary": short.ErrorSummary,
		"explanation": short.Run.Explanation, "grading": short.Grading.Failure, "grader's traceback": *short.Grading.Traceback,
		"grader's run": short.Grading.Run.Explanation, "warning": short.Warnings[0],
	} {
		require.Less(t, len(text), textLimit+200, name)
		require.Contains(t, text, "File", name)
	}
	require.Len(t, short.Warnings, maxWarnings+1)
	require.Equal(t, "and 200 further warnings", short.Warnings[maxWarnings])
	require.True(t, short.Run.OutputTruncated)
	after, err := json.Marshal(e)
	require.NoError(t, err)
	require.Equal(t, before, after, "the argument does not change")
}

// manyLines is a results file whose scripts printed size bytes to each stream.
func manyLines(t testing.TB, n, size int) string {
	t.Helper()
	e := long("a", size).Bounded()
	e.Warnings = []string{}
	e.Grading = nil
	e.Run.Explanation = "The program ended."
	var text bytes.Buffer
	for i := range n {
		e.Name = fmt.Sprint("script-", i)
		line, err := json.Marshal(e)
		require.NoError(t, err)
		text.Write(append(line, '\n'))
	}
	path := filepath.Join(t.TempDir(), "results.jsonl")
	require.NoError(t, os.WriteFile(path, text.Bytes(), 0o600))
	return path
}

// TestReadingTakesNoMemoryForTexts bounds what is allocated for a line of 40 KiB.
func TestReadingTakesNoMemoryForTexts(t *testing.T) {
	const n = 500
	path := manyLines(t, n, 9000)
	full, err := ReadResults(path, ReadOptions{})
	require.NoError(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	report, err := ReadResults(path, ReadOptions{Brief: true})
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	require.Less(t, (after.TotalAlloc-before.TotalAlloc)/n, uint64(8<<10))
	for i, e := range full.Results {
		e.Stdout, e.Stderr, e.ErrorTraceback, e.ErrorSummary = "", "", nil, ""
		require.Equal(t, e, report.Results[i])
	}
}

// BenchmarkReadAndRank10000 is the requirement: less than a second.
func BenchmarkReadAndRank10000(b *testing.B) {
	path := manyLines(b, 10_000, 2000) // lines of 9 KiB
	for b.Loop() {
		report, err := ReadResults(path, ReadOptions{Brief: true})
		require.NoError(b, err)
		latest, _ := Latest(report.Results)
		_, err = RankResults(latest, Maximize)
		require.NoError(b, err)
	}
}

// BenchmarkResume10000 is the same for a batch that goes on.
func BenchmarkResume10000(b *testing.B) {
	path := manyLines(b, 10_000, 2000)
	for b.Loop() {
		file, report, err := OpenResults(path, ReadOptions{Brief: true})
		require.NoError(b, err)
		require.NoError(b, file.Close())
		left := Resume(report.Results, report.Results, nil)
		require.Equal(b, 10_000, left.Done)
	}
}

// TestBriefSkipsWhatWasPrinted, whatever it is.
func TestBriefSkipsWhatWasPrinted(t *testing.T) {
	line := `{"schema":"evalbox/evaluation/v1","name":"a","stdout":"\\\"}","stderr":{"b":[1]},"error_traceback":null,"error_summary":7,"score":1}`
	got, err := decodeLine([]byte(line), ReadOptions{Brief: true})
	require.NoError(t, err)
	require.Equal(t, Result{Schema: ResultSchemaV1, Name: "a", EvaluationResult: EvaluationResult{Score: new(1.0)}}, got)
	for _, text := range []string{`{`, `{"stdout":"x"`, `[1]`} {
		_, err := decodeLine([]byte(text), ReadOptions{Brief: true})
		require.ErrorContains(t, err, "is not an evaluation", text)
	}
}

// TestReadersDoNotWait for a pipe that nobody writes.
func TestReadersDoNotWait(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for name, open := range map[string]func() error{
		"results": func() error { _, err := ReadResults(pipe, ReadOptions{}); return err },
		"writing": func() error { _, _, err := OpenResults(pipe, ReadOptions{}); return err },
		"task":    func() error { _, err := LoadTask(pipe); return err },
		"sample":  func() error { return submission.Rule{Sample: pipe}.CheckSample() },
		"grader": func() error {
			_, err := New(echo(), Options{Grader: &Grader{Script: pipe, Answers: t.TempDir()}})
			return err
		},
	} {
		require.ErrorContains(t, open(), "is not a regular file (a named pipe)", name)
	}
	_, err := ReadResults(pipe, ReadOptions{})
	require.ErrorAs(t, err, new(*fsx.NotRegularError))
}

// TestCleanOutputDirectoryOfAnyDepth deletes what no path can name.
func TestCleanOutputDirectoryOfAnyDepth(t *testing.T) {
	base := t.TempDir()
	final := filepath.Join(base, "final")
	require.NoError(t, os.Mkdir(final, 0o755))
	at, err := os.OpenRoot(final)
	require.NoError(t, err)
	name := strings.Repeat("d", 200)
	for range 3 * 4096 / 200 {
		require.NoError(t, at.Mkdir(name, 0o755))
		next, err := at.OpenRoot(name)
		require.NoError(t, err)
		require.NoError(t, at.Close())
		at = next
	}
	require.NoError(t, at.Close())
	require.NoError(t, CleanOutputDirectory(base))
	entries, err := os.ReadDir(final)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// TestCheckWorkingFolder names what is not one.
func TestCheckWorkingFolder(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "final"), 0o755))
	require.NoError(t, CheckWorkingDirectory(dir))
	writeFile(t, filepath.Join(dir, "f"), "x")
	for name, want := range map[string]string{"none": "does not exist", "f": "is not a directory", "final": "has no final/"} {
		err := CheckWorkingDirectory(filepath.Join(dir, name))
		require.ErrorContains(t, err, want)
		var workspace *FileError
		require.ErrorAs(t, err, &workspace)
		require.Equal(t, "give the directory that holds final/", workspace.Hint())
	}
	require.ErrorIs(t, CheckWorkingDirectory(filepath.Join(dir, "none")), fs.ErrNotExist)
}

// TestBaselineMustBeFinite: a task is written as JSON.
func TestBaselineMustBeFinite(t *testing.T) {
	for _, text := range []string{".nan", ".inf", "-.inf"} {
		path := filepath.Join(t.TempDir(), "task.yaml")
		writeFile(t, path, "competition_id: c\ntask_type: tabular\ndata_modality: tabular\nevaluation_metric: m\nmetric_direction: maximize\n"+
			"description: d\nbaseline_value: "+text+"\n")
		_, err := LoadTask(path)
		require.ErrorContains(t, err, "baseline_value")
		require.ErrorContains(t, err, "must be a number")
	}
}
