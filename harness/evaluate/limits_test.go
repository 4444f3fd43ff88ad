//go:build unix

package evaluate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// TestEverythingThatEndedIsAnItem: also what ends after Done has failed.
func TestEverythingThatEndedIsAnItem(t *testing.T) {
	full, both := errors.New("disk full"), make(chan struct{})
	var failed sync.WaitGroup
	failed.Add(1)
	runner := &fakeRunner{}
	runner.program = func(run fakeRun) fakeEnd {
		if run.request.Name == "second" {
			close(both)
			failed.Wait() // it ends after the first one was told
		} else {
			<-both
		}
		return prints("1")
	}
	told := 0
	items, err := newEvaluator(t, runner, Options{}).EvaluateBatch(t.Context(), scripts("a", "b"), newTask(t), DefaultPipelineConfig(), BatchOptions{
		Parallel: 2, Workspace: t.TempDir(), Names: []string{"first", "second"},
		Done: func(int, BatchItem) error {
			told++
			failed.Done()
			return full
		},
	})
	require.ErrorIs(t, err, full)
	require.Equal(t, 1, told, "who failed is not asked again")
	for _, item := range items {
		require.NoError(t, item.Err, item.Name)
		require.Equal(t, 1.0, *item.Evaluation.Score, item.Name)
	}
}

// TestInOrder: programs start in the order of the schedule, whichever is ready first.
func TestInOrder(t *testing.T) {
	const n = 6
	var mu sync.Mutex
	var order []int
	admit := InOrder(sandbox.Slots(1))
	asked := make([]chan struct{}, n+1)
	for i := range asked {
		asked[i] = make(chan struct{})
	}
	close(asked[n])
	err := Schedule{Parallel: n}.Run(t.Context(), n, func(ctx context.Context, i int) BatchItem {
		<-asked[i+1] // the last one is ready first
		close(asked[i])
		if i == 2 {
			return BatchItem{Err: errFake} // it ends without having been admitted
		}
		release, err := admit(ctx)
		if err != nil {
			return BatchItem{Err: err}
		}
		mu.Lock()
		order = append(order, i)
		mu.Unlock()
		release()
		release, err = admit(ctx) // as its grader is
		if err != nil {
			return BatchItem{Err: err}
		}
		release()
		return BatchItem{}
	})
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 3, 4, 5}, order)

	release, err := admit(t.Context())
	require.NoError(t, err, "outside of a schedule nobody waits")
	release()

	ctx, cancel := context.WithCancel(t.Context())
	err = Schedule{Parallel: 2}.Run(ctx, 2, func(ctx context.Context, i int) BatchItem {
		if i == 0 {
			<-ctx.Done()
			return BatchItem{}
		}
		cancel()
		_, err := admit(ctx)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("admitted out of order: %v", err)
		}
		return BatchItem{}
	})
	require.ErrorIs(t, err, context.Canceled)
}

// long is an evaluation of a script that prints a lot.
func long(name string, size int) Evaluation {
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
	for i, e := range full.Evaluations {
		e.Stdout, e.Stderr, e.ErrorTraceback, e.ErrorSummary = "", "", nil, ""
		require.Equal(t, e, report.Evaluations[i])
	}
}

// BenchmarkReadAndRank10000 is the requirement: less than a second.
func BenchmarkReadAndRank10000(b *testing.B) {
	path := manyLines(b, 10_000, 2000) // lines of 9 KiB
	for b.Loop() {
		report, err := ReadResults(path, ReadOptions{Brief: true})
		require.NoError(b, err)
		latest, _ := Latest(report.Evaluations)
		_, err = RankEvaluations(latest, Maximize)
		require.NoError(b, err)
	}
}

// TestBriefIsTheSame but for what was printed, whatever stands around it.
func TestBriefIsTheSame(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1}`:                        `{"a":1}`,
		`{"stdout":"x"}`:                 `{}`,
		`{"stdout":"\\\\\"}","a":"{[,"}`: `{"a":"{[,"}`,
		`{ "stderr" : "}" , "b":{"stdout":"kept"},"c":[1,"]"] }`:    `{ "b":{"stdout":"kept"},"c":[1,"]"] }`,
		`{"a":1,"error_traceback":null,"error_summary":"\"","d":2}`: `{"a":1,"d":2}`,
		`[1]`: `[1]`, ``: ``,
	} {
		got, err := withoutTexts([]byte(text))
		require.NoError(t, err, text)
		require.Equal(t, want, string(got))
	}
	for _, text := range []string{`{`, `{"a`, `{"a":"\"`, `{"a":[1`, `{"stdout":"x"`} {
		_, err := withoutTexts([]byte(text))
		require.ErrorIs(t, err, errCutObject, text)
	}
}

func FuzzWithoutTexts(f *testing.F) {
	f.Add(`{"schema":"evalbox/evaluation/v1","stdout":"a\"b","score":1}`)
	f.Fuzz(func(t *testing.T, text string) {
		short, err := withoutTexts([]byte(text))
		var members map[string]any
		if json.Unmarshal([]byte(text), &members) != nil || members == nil {
			return
		}
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		var left map[string]any
		if err := json.Unmarshal(short, &left); err != nil {
			t.Fatalf("%q became %q: %v", text, short, err)
		}
	})
}

// TestReadersDoNotWait for a pipe that nobody writes.
func TestReadersDoNotWait(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for name, open := range map[string]func() error{
		"results": func() error { _, err := ReadResults(pipe, ReadOptions{}); return err },
		"writing": func() error { _, _, err := OpenResults(pipe, ReadOptions{}); return err },
		"task":    func() error { _, err := LoadTask(pipe); return err },
		"sample":  func() error { return SubmissionRule{Sample: pipe}.CheckSample() },
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

// TestTreeMemoryIsWrittenTheFirstTime, also when the folder of the cache is new.
func TestTreeMemoryIsWrittenTheFirstTime(t *testing.T) {
	task, dir := newTask(t), filepath.Join(t.TempDir(), "new", "cache")
	old := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(task.DataDir, "train.csv"), old, old))
	e := newEvaluator(t, echo(), Options{Cache: &Cache{Dir: dir}})
	require.DirExists(t, dir)
	_, err := e.Evaluate(t.Context(), Job{Solution: NewSolution("score 1", PhaseInit), Task: task, Timeout: time.Second})
	require.NoError(t, err)
	// The kernel's own time of the file is now, so that nothing is remembered of it yet.
	m := loadTreeMemory("")
	m.seen["a"], m.fresh = rememberedFile{Hash: "x"}, true
	m.save(e.opts.Cache.memoryOf(task.DataDir))
	require.NotEmpty(t, loadTreeMemory(e.opts.Cache.memoryOf(task.DataDir)).known)
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
	require.NoError(t, CheckWorkingFolder(dir))
	writeFile(t, filepath.Join(dir, "f"), "x")
	for name, want := range map[string]string{"none": "does not exist", "f": "is not a folder", "final": "has no final/"} {
		err := CheckWorkingFolder(filepath.Join(dir, name))
		require.ErrorContains(t, err, want)
		var workspace *WorkspaceError
		require.ErrorAs(t, err, &workspace)
		require.Equal(t, "give the folder that holds final/", workspace.Hint())
	}
	require.ErrorIs(t, CheckWorkingFolder(filepath.Join(dir, "none")), fs.ErrNotExist)
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
