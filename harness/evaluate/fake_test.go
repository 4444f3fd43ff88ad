package evaluate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/evaluate/mlestar"
	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
	boxtree "github.com/evalbox/evalbox/sandbox/tree"
)

// fakeRunner stands in for a sandbox: program says what a script does, and the
// result is made of it as a run makes it.
type fakeRunner struct {
	program func(run fakeRun) fakeEnd
	before  func() // if set, is called at the beginning of every run

	mu       sync.Mutex
	requests []sandbox.Request
	options  [][]sandbox.RunOption
	plans    int
	once     sync.Once
	store    *record.Store
	// filled is the run that filled each final last.
	filled map[string]*result.Result
	// forge, if set, is what the records say ran.
	forge string
	// running and most count the runs at the same time.
	running, most int
}

// fakeRun is what a program gets to know.
type fakeRun struct {
	ctx     context.Context
	request sandbox.Request
	script  string
	// n counts the runs from 1.
	n int
}

// leave writes a file into ./final.
func (r fakeRun) leave(name, text string) {
	if r.request.Final == "" {
		panic("this run keeps its outputs in its record, and leaves nothing in a directory of the harness")
	}
	if err := os.WriteFile(filepath.Join(r.request.Final, name), []byte(text), 0o600); err != nil {
		panic(err)
	}
}

// fakeEnd is how a program ends; the zero value is exit code 0 without a word.
type fakeEnd struct {
	stdout, stderr string
	code           int
	timedOut       bool
	status         result.Status // 0: exited, or timed out
	err            error         // the sandbox failed
	change         func(res *result.Result)
}

// usualFault is the fault of an end that nobody else caused.
func usualFault(status result.Status, isError bool) result.Fault {
	switch {
	case status == result.StatusExited && !isError:
		return result.FaultNone
	case status == result.StatusCanceled:
		return result.FaultOperator
	case status == result.StatusStartFailed, status == result.StatusEngineLost:
		return result.FaultEnvironment
	}
	return result.FaultProgram
}

// facts are those of a run that ended so, without another cause.
func facts(id string, status result.Status) *RunFacts {
	return &RunFacts{ID: id, Status: status, Fault: usualFault(status, false)}
}

// prints is a program that prints a score.
func prints(score string) fakeEnd {
	return fakeEnd{stdout: "Final Validation Performance: " + score + "\n"}
}

// crashes is a program that ends with a traceback.
func crashes(exception string) fakeEnd {
	return fakeEnd{code: 1, stderr: "Traceback (most recent call last):\n  File \"solution.py\", line 1, in <module>\n" + exception + "\n"}
}

func (f *fakeRunner) Run(ctx context.Context, req sandbox.Request, opts ...sandbox.RunOption) (*result.Result, error) {
	if f.before != nil {
		f.before()
	}
	script, err := os.ReadFile(req.Script)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.requests = append(f.requests, req)
	f.options = append(f.options, opts)
	n := len(f.requests)
	f.running++
	f.most = max(f.most, f.running)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.running--
		f.mu.Unlock()
	}()
	if req.Final != "" {
		if err := errors.Join(os.RemoveAll(req.Final), os.Mkdir(req.Final, 0o755)); err != nil {
			return nil, err
		}
	}
	end := f.program(fakeRun{ctx, req, string(script), n})
	if end.err != nil {
		return nil, end.err
	}
	e := result.BuildEvaluation(result.ExecutionRawResult{
		Stdout: end.stdout, Stderr: end.stderr, ExitCode: end.code, DurationSeconds: 1.5, TimedOut: end.timedOut,
	})
	res := &result.Result{
		Schema: result.SchemaV1, ID: fmt.Sprintf("run-%d", n), Name: req.Name, Status: result.StatusExited, Fault: result.FaultNone,
		Stdout: e.Stdout, Stderr: e.Stderr, ExitCode: e.ExitCode, TimedOut: end.timedOut, DurationSeconds: e.DurationSeconds,
		Score: e.Score, IsError: e.IsError, ErrorReason: e.ErrorReason, ErrorTraceback: e.ErrorTraceback, ErrorSummary: e.ErrorSummary,
		Image: result.Image{ID: "sha256:0123"}, OutputComplete: true, Warnings: e.Warnings, Explanation: "The program ended.",
	}
	if end.timedOut {
		res.Status = result.StatusTimedOut
	}
	if end.status != 0 {
		res.Status = end.status
	}
	res.Fault = usualFault(res.Status, res.IsError)
	if res.Outputs, err = outputsOf(req.Final); err != nil {
		return nil, err
	}
	if end.change != nil {
		end.change(res)
	}
	f.mu.Lock()
	if f.filled == nil {
		f.filled = map[string]*result.Result{}
	}
	f.filled[req.Final] = res
	f.mu.Unlock()
	return res, f.record(req, string(script), res)
}

// outputsOf lists the files of a directory with their hashes, as a run does.
func outputsOf(final string) ([]result.Output, error) {
	if final == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(final)
	if err != nil {
		return nil, err
	}
	var outputs []result.Output
	for _, entry := range entries {
		if !entry.Type().IsRegular() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(final, entry.Name()))
		if err != nil {
			return nil, err
		}
		outputs = append(outputs, result.Output{Path: entry.Name(), SizeBytes: int64(len(text)), SHA256: hashText(string(text))})
	}
	return outputs, nil
}

// Plan is as much of a plan as a cache looks at.
func (f *fakeRunner) Plan(_ context.Context, req sandbox.Request) (spec.Spec, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plans++
	spec := spec.Spec{Class: spec.Class{Image: spec.Image{ID: "sha256:0123" + req.Image}}, Job: spec.Job{
		RunID: fmt.Sprint(f.plans), Command: append([]string{"python3"}, req.Args...), TimeoutSeconds: req.Limits.Timeout.Seconds(),
		Script: req.Script, Input: req.Input, Final: req.Final,
	}}
	for _, name := range []string{"SEED", "PYTHONHASHSEED", ResourceVariable} {
		spec.Job.Env = append(spec.Job.Env, name+"="+req.Env[name])
	}
	return spec, nil
}

var errFake = errors.New("the engine is gone")

// echo is a sandbox in which a script's text is its program: "score X", "crash X",
// "hang", "lost", anything else does nothing.
func echo() *fakeRunner {
	return &fakeRunner{program: func(run fakeRun) fakeEnd {
		word, rest, _ := strings.Cut(strings.TrimSpace(run.script), " ")
		switch word {
		case "score":
			return prints(rest)
		case "crash":
			return crashes(rest)
		case "hang":
			return fakeEnd{code: -1, timedOut: true}
		case "lost":
			return fakeEnd{err: errFake}
		}
		return fakeEnd{}
	}}
}

func newEvaluator(t *testing.T, runner sandbox.Box, opts Options) *Harness {
	t.Helper()
	e, err := New(runner, opts)
	require.NoError(t, err)
	return e
}

// newTask is a task with a directory of its own and one file of data.
func newTask(t *testing.T) TaskDescription {
	t.Helper()
	base := t.TempDir()
	writeFile(t, filepath.Join(base, "input", "train.csv"), "id,x\n1,2\n")
	return TaskDescription{
		CompetitionID: "test", TaskType: "tabular", DataModality: "tabular", EvaluationMetric: "accuracy",
		MetricDirection: Maximize, Description: "a test", DataDir: filepath.Join(base, "input"),
	}
}

var writeFile, read = treetest.File, treetest.Read

func scripts(texts ...string) []mlestar.SolutionScript {
	solutions := make([]mlestar.SolutionScript, len(texts))
	for i, text := range texts {
		solutions[i] = mlestar.NewSolution(text, mlestar.PhaseInit)
	}
	return solutions
}

// recording is a fake sandbox with a program.
func recording(t *testing.T, program func(run fakeRun) fakeEnd) *fakeRunner {
	t.Helper()
	return &fakeRunner{program: program}
}

// TestMain removes the records of the fakes.
func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(fakeState())
	os.Exit(code)
}

// fakeState has the state directories of all fakes.
var fakeState = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "evaluate-test-*")
	if err != nil {
		panic(err)
	}
	return dir
})

// Store holds the records of the runs.
func (f *fakeRunner) Store() *record.Store {
	f.once.Do(func() {
		dir, err := os.MkdirTemp(fakeState(), "state-*")
		if err == nil {
			f.store, err = record.Open(dir)
		}
		if err != nil {
			panic(err)
		}
	})
	return f.store
}

// record writes the record of a run.
func (f *fakeRunner) record(req sandbox.Request, program string, res *result.Result) error {
	dir, err := f.Store().Create(res.ID)
	if err != nil {
		return err
	}
	if f.forge != "" {
		program = f.forge
	}
	return errors.Join(
		record.WriteJSON(filepath.Join(dir, record.SpecFile), spec.Spec{Schema: spec.SchemaV1, Job: spec.Job{Script: req.Script}}),
		record.WriteJSON(filepath.Join(dir, record.ResultFile), res),
		os.Mkdir(filepath.Join(dir, record.ProgramDir), 0o700),
		os.WriteFile(filepath.Join(dir, record.ProgramDir, filepath.Base(req.Script)), []byte(program), 0o600))
}

func (f *fakeRunner) Adopt(context.Context, string, ...sandbox.RunOption) (*result.Result, error) {
	return nil, record.ErrNoRecord
}

func (f *fakeRunner) LeftBy(_ context.Context, final string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.filled[final]
	outputs, err := outputsOf(final)
	if err != nil || last == nil || !slices.Equal(outputs, last.Outputs) {
		return ""
	}
	return last.ID
}

func (f *fakeRunner) ClearFinal(_ context.Context, final, keep string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last := f.filled[final]; keep != "" && last != nil && last.ID == keep {
		return "", nil
	}
	return "", errors.Join(os.RemoveAll(final), os.Mkdir(final, 0o755))
}

func (f *fakeRunner) ApplyTree(context.Context, string, string, boxtree.ApplyOptions) (boxtree.Report, error) {
	panic("an evaluation has no working copies")
}
