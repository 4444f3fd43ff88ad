package invoke

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/tree"
)

// fakeBox stands in for a runner and its store: program says what a tool does, and
// what it leaves in left is carried over as the real store would.
type fakeBox struct {
	sandbox.Box
	program func(req sandbox.Request) result.Result
	left    map[string]string
	report  tree.Report
	// incomplete says that the changes are not all that there were.
	incomplete bool
	err        error
	applyErr   error
	requests   []sandbox.Request
	io         sandbox.IO
	applied    int
	// late are files of somebody else that appear during ApplyTree, and apply is called by it.
	late  map[string]string
	apply func()
}

func (f *fakeBox) Run(_ context.Context, req sandbox.Request, opts ...sandbox.RunOption) (*result.Result, error) {
	f.requests = append(f.requests, req)
	for _, opt := range opts {
		if streams, ok := opt.(sandbox.IO); ok {
			f.io = streams
		}
	}
	if f.program == nil {
		return nil, f.err
	}
	res := f.program(req)
	res.ID, res.OutputComplete, res.Image.ID = "run-1", true, "sha256:0123"
	if res.Status == 0 {
		res.Status = result.StatusExited
	}
	if res.Fault == 0 {
		res.Fault = result.FaultProgram
	}
	if !slices.ContainsFunc(res.Trees, func(t result.Tree) bool { return t.Target == OutputDir }) {
		res.Trees = append(res.Trees, result.Tree{Target: OutputDir, Complete: true})
	}
	for i := range res.Trees {
		for _, name := range slices.Sorted(maps.Keys(f.left)) {
			if _, err := os.Lstat(filepath.Join(req.Trees[0].Source, name)); res.Trees[i].Target == OutputDir && err != nil {
				res.Trees[i].Created = append(res.Trees[i].Created, result.TreeEntry{Path: name, Kind: "file", SHA256: hashOf(f.left[name])})
			}
		}
	}
	return &res, f.err
}

func (f *fakeBox) Plan(_ context.Context, req sandbox.Request) (spec.Spec, error) {
	f.requests = append(f.requests, req)
	return spec.Spec{Job: spec.Job{Command: req.Command}}, f.err
}

func (f *fakeBox) ApplyTree(ctx context.Context, id, target string, opts tree.ApplyOptions) (tree.Report, error) {
	if ctx.Err() != nil {
		return tree.Report{}, context.Cause(ctx)
	}
	f.applied++
	if f.apply != nil {
		f.apply()
	}
	if id != "run-1" || target != OutputDir || opts.Deny != nil {
		panic("applied " + id + " " + target)
	}
	for name, text := range f.left {
		if err := os.WriteFile(filepath.Join(f.requests[len(f.requests)-1].Trees[0].Source, name), []byte(text), 0o600); err != nil {
			panic(err)
		}
	}
	for name, text := range f.late {
		if err := os.WriteFile(filepath.Join(f.requests[len(f.requests)-1].Trees[0].Source, name), []byte(text), 0o600); err != nil {
			panic(err)
		}
	}
	report := f.report
	report.Complete = !f.incomplete
	for _, name := range slices.Sorted(maps.Keys(f.left)) {
		report.Changes = append(report.Changes, tree.Change{Path: name, Change: "created", State: tree.Applied})
	}
	return report, f.applyErr
}

// exits is a tool that prints and ends.
func exits(code int) func(sandbox.Request) result.Result {
	return func(sandbox.Request) result.Result {
		return result.Result{ExitCode: code, Stdout: "out\n", Stderr: "err\n", StdoutBytes: 4, StderrBytes: 4, DurationSeconds: 1.5,
			Explanation: "The program ended."}
	}
}

func ends(status result.Status, code int) func(sandbox.Request) result.Result {
	return func(req sandbox.Request) result.Result {
		res := exits(code)(req)
		res.Status, res.TimedOut = status, status == result.StatusTimedOut
		return res
	}
}

var good = map[string]string{ManifestName: goodManifest, TracePackName: goodTrace}

func newFake(t *testing.T, fake *fakeBox) *Harness {
	t.Helper()
	return newTool(t, fake, Options{})
}

func newTool(t *testing.T, fake *fakeBox, o Options) *Harness {
	t.Helper()
	o.Executable = "python -m tool.cli"
	h, err := New(fake, o)
	require.NoError(t, err)
	return h
}

// newInvocation has a configuration and an empty output directory.
func newInvocation(t *testing.T) Invocation {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "c.json"), []byte("{}"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "out"), 0o755))
	return Invocation{Config: filepath.Join(dir, "c.json"), OutputDir: filepath.Join(dir, "out")}
}

func TestNewRefuses(t *testing.T) {
	for want, o := range map[string]Options{
		"must not be empty":    {Executable: " "},
		"must be positive":     {Timeout: -1},
		"timeout -1s":          {Timeout: -time.Second},
		"CUDA_VISIBLE_DEVICES": {Env: map[string]string{"CUDA_VISIBLE_DEVICES": "0"}},
		"root":                 {Root: "/no/such/folder"},
		"is not a directory":   {Root: "harness.go"},
		"must be a path below": {Verify: VerifyOptions{Profile: Profile{Artifacts: []Declared{{Path: ".."}}}}},
	} {
		if o.Executable == "" {
			o.Executable = "tool"
		}
		_, err := New(&fakeBox{}, o)
		require.ErrorContains(t, err, want)
	}
	_, err := New(nil, Options{Executable: "tool"})
	require.ErrorContains(t, err, "a box is needed")
	require.Equal(t, 300*time.Second, newFake(t, &fakeBox{}).o.Timeout)
}

// TestArguments: the order is always the same, and paths are absolute (M3-05, M3-10).
func TestArguments(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	empty, dash, minus, most := "", "--help", NewSeed(-7), NewSeed(uint64(math.MaxUint64))
	for _, test := range []struct {
		inv  Invocation
		want []string
	}{
		{Invocation{Config: "c.json", OutputDir: "./out/."}, []string{"--config", dir + "/c.json", "--output", dir + "/out"}},
		{Invocation{Config: "-c.json", OutputDir: "/o", Seed: &minus}, []string{"--config", dir + "/-c.json", "--output", "/o", "--seed", "-7"}},
		{Invocation{Config: "/c", OutputDir: "/o", Adapter: &empty}, []string{"--config", "/c", "--output", "/o", "--adapter", ""}},
		{Invocation{Config: "/c", OutputDir: "/o", Adapter: &dash, Seed: &minus}, []string{"--config", "/c", "--output", "/o", "--adapter", "--help", "--seed", "-7"}},
		{Invocation{Config: "/c", OutputDir: "/o", Seed: &most}, []string{"--config", "/c", "--output", "/o", "--seed", "18446744073709551615"}},
	} {
		inv, err := test.inv.absolute()
		require.NoError(t, err)
		require.Equal(t, test.want, inv.arguments(inv.Config, inv.OutputDir))
	}
	nul := "a\x00"
	for _, inv := range []Invocation{{OutputDir: "o"}, {Config: "c"}, {Config: nul, OutputDir: "o"}, {Config: "c", OutputDir: nul}, {Config: "c", OutputDir: "o", Adapter: &nul}} {
		_, err := inv.absolute()
		var field *policy.FieldError
		require.ErrorAs(t, err, &field)
	}
}

func TestRun(t *testing.T) {
	fake := &fakeBox{program: exits(0), left: good}
	root := t.TempDir()
	// Of what all calls have in common nothing is shown to the tool that the call does not name.
	common := sandbox.Request{Stdin: true, Mounts: []sandbox.Mount{{Source: "/etc", Target: "/etc2"}}, Script: "s.py", Final: "/final"}
	h := newTool(t, fake, Options{Request: common, Timeout: 7 * time.Second, Root: root, Env: map[string]string{"A": "1"},
		IO: sandbox.IO{Stdin: strings.NewReader("x"), Stdout: io.Discard}})
	inv := newInvocation(t)
	inv.Seed, inv.Adapter = new(NewSeed(3)), new("x")
	res, err := h.Run(t.Context(), inv)
	require.NoError(t, err)
	require.NoError(t, res.Err())
	require.True(t, res.OK)
	report := *res.Verification
	require.True(t, report.OK, report.Problems)
	res.Verification = nil
	zero := 0
	require.Equal(t, Result{
		Schema: ResultSchemaV1, Engine: "sandbox", OK: true, RunID: "run-1", Image: "sha256:0123",
		Command: []string{"python", "-m", "tool.cli", "--config", "/work/config/c.json", "--output", "/work/output", "--adapter", "x", "--seed", "3"},
		WorkDir: "/repo", ManifestPath: filepath.Join(inv.OutputDir, ManifestName), TracePackPath: filepath.Join(inv.OutputDir, TracePackName),
		Stdout: "out\n", Stderr: "err\n", StdoutBytes: 4, StderrBytes: 4, OutputComplete: true, ExitCode: &zero, DurationSeconds: 1.5,
		GPUs: []string{}, NotWritten: []string{}, Unenforced: []string{}, Warnings: []string{},
	}, res)
	req := fake.requests[0]
	require.Equal(t, []sandbox.Mount{{Source: inv.Config, Target: "/work/config/c.json"}, {Source: root, Target: "/repo"}}, req.Mounts)
	require.Equal(t, []sandbox.Tree{{Source: inv.OutputDir, Target: "/work/output"}}, req.Trees)
	require.Equal(t, 7*time.Second, req.Limits.Timeout)
	require.Equal(t, map[string]string{"A": "1"}, req.Env)
	require.Equal(t, "/repo", req.WorkDir)
	require.False(t, req.Stdin)
	require.Equal(t, sandbox.IO{Stdout: io.Discard}, fake.io, "tools have no stdin")
	again, err := Verify(t.Context(), inv.OutputDir, VerifyOptions{})
	require.NoError(t, err)
	require.Equal(t, report, again)
	// The tool's files are as the tool wrote them.
	for name, text := range good {
		written, err := os.ReadFile(filepath.Join(inv.OutputDir, name))
		require.NoError(t, err)
		require.Equal(t, text, string(written))
	}
}

// TestRunIsRepeatable: two runs with the same input differ in the volatile fields only.
func TestRunIsRepeatable(t *testing.T) {
	inv := newInvocation(t)
	var texts []string
	for i := range 2 {
		fake := &fakeBox{left: good, program: func(req sandbox.Request) result.Result {
			res := exits(0)(req)
			res.DurationSeconds = float64(i)
			return res
		}}
		res, err := newFake(t, fake).Run(t.Context(), inv)
		require.NoError(t, err)
		text, err := json.Marshal(res)
		require.NoError(t, err)
		var fields map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(text, &fields))
		for _, name := range VolatileFields() {
			require.Contains(t, fields, name)
			delete(fields, name)
		}
		text, err = json.Marshal(fields)
		require.NoError(t, err)
		texts = append(texts, string(text))
		for name := range good {
			require.NoError(t, os.Remove(filepath.Join(inv.OutputDir, name)))
		}
	}
	require.Equal(t, texts[0], texts[1])
}

// TestInvocationErrors: how a tool ends, and what that is called.
func TestInvocationErrors(t *testing.T) {
	code := func(n int) *int { return &n }
	errLost := errors.New("the engine is gone")
	for name, test := range map[string]struct {
		fake   fakeBox
		reason Reason
		code   *int
		text   string
	}{
		"non-zero": {fakeBox{program: exits(3)}, ReasonNonzeroExit, code(3), "the tool exited with code 3"},
		"signal": {fakeBox{program: func(sandbox.Request) result.Result {
			return result.Result{Status: result.StatusSignaled, ExitCode: 137, Signal: 9}
		}}, ReasonNonzeroExit, code(137), "ended by signal 9"},
		"disk full": {fakeBox{program: func(sandbox.Request) result.Result {
			return result.Result{Status: result.StatusDiskLimit, Fault: result.FaultEnvironment, Stdout: "out\n", Explanation: "The disk was nearly full."}
		}}, ReasonDisturbed, code(0), "did not end by itself: The disk was nearly full."},
		"killed": {fakeBox{program: func(sandbox.Request) result.Result {
			return result.Result{Status: result.StatusSignaled, Fault: result.FaultOperator, Stdout: "out\n", ExitCode: 137, Signal: 9}
		}}, ReasonDisturbed, code(137), "did not end by itself"},
		"143":         {fakeBox{program: exits(143)}, ReasonNonzeroExit, code(143), "exited with code 143"},
		"time":        {fakeBox{program: ends(result.StatusTimedOut, -1)}, ReasonTimeout, nil, "timed out after 300 seconds"},
		"memory":      {fakeBox{program: ends(result.StatusOutOfMemory, 137)}, ReasonLimit, code(137), "The program ended."},
		"disk":        {fakeBox{program: ends(result.StatusDiskLimit, 0)}, ReasonLimit, code(0), "did not end by itself"},
		"start":       {fakeBox{program: ends(result.StatusStartFailed, 127)}, ReasonNotFound, nil, "could not be executed"},
		"no right":    {fakeBox{program: ends(result.StatusStartFailed, 126)}, ReasonCannotExecute, nil, "could not be executed"},
		"no start":    {fakeBox{program: ends(result.StatusStartFailed, -1)}, ReasonEngine, nil, "did not end by itself"},
		"canceled":    {fakeBox{program: ends(result.StatusCanceled, 0), err: context.Canceled}, ReasonCanceled, nil, "did not end by itself"},
		"lost":        {fakeBox{program: ends(result.StatusEngineLost, -1), err: errLost}, ReasonEngine, nil, "did not end by itself"},
		"nothing":     {fakeBox{program: exits(0)}, ReasonMissingArtifact, code(0), "required artifact missing: "},
		"no trace":    {fakeBox{program: exits(0), left: map[string]string{ManifestName: "{}"}}, ReasonMissingArtifact, code(0), TracePackName},
		"not written": {fakeBox{program: exits(0), left: good, applyErr: errLost}, ReasonNotWritten, code(0), "could not be written to"},
	} {
		inv := newInvocation(t)
		res, runErr := newFake(t, &test.fake).Run(t.Context(), inv)
		err := res.Err()
		require.Equal(t, test.reason.ours(), runErr != nil, "%s: an error means that we failed, or were asked to end", name)
		var failed *InvocationError
		require.ErrorAs(t, err, &failed, name)
		require.Equal(t, test.reason, failed.Reason, name)
		require.Equal(t, test.code, failed.ExitCode, name)
		require.ErrorContains(t, err, test.text, name)
		require.Equal(t, res, failed.Result, name)
		require.Equal(t, failed.Error(), res.Error, name)
		require.Equal(t, res.Stdout, failed.Stdout, name)
		if name != "signal" {
			require.Equal(t, "out\n", failed.Stdout, "%s: what was printed is kept", name)
		}
		var late *TimeoutError
		require.Equal(t, test.reason == ReasonTimeout, errors.As(err, &late), name)
		if late != nil {
			require.Equal(t, DefaultTimeout, late.Timeout)
			require.True(t, res.TimedOut)
		}
		if test.fake.err != nil {
			require.ErrorIs(t, err, test.fake.err, name)
			require.Zero(t, test.fake.applied, "%s: what was not seen to its end stays in the record", name)
		}
	}
	// The sandbox refuses, or cannot be reached: nothing was run.
	res, err := newFake(t, &fakeBox{err: errLost}).Run(t.Context(), newInvocation(t))
	require.Equal(t, errLost, err)
	require.Equal(t, ReasonEngine, res.Reason)
	refusal := &policy.FieldError{Field: "memory", Value: "1 TiB", Rule: "above the policy's maximum"}
	res, err = newFake(t, &fakeBox{err: errors.Join(refusal)}).Run(t.Context(), newInvocation(t))
	require.NoError(t, err)
	require.Equal(t, ReasonRefused, res.Reason)
	require.ErrorIs(t, res.Err(), refusal)
	require.Empty(t, res.RunID)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	res, err = newFake(t, &fakeBox{err: context.Canceled}).Run(ctx, newInvocation(t))
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, ReasonCanceled, res.Reason)
}

// TestOddArtifacts: the error names the thing in place of an artifact.
func TestOddArtifacts(t *testing.T) {
	inv := newInvocation(t)
	fake := &fakeBox{left: map[string]string{TracePackName: ""}, program: func(req sandbox.Request) result.Result {
		res := exits(0)(req)
		res.Trees = []result.Tree{{Target: "/other"}, {Target: OutputDir, Complete: true, Skipped: []result.SkippedOutput{{Path: ManifestName, Kind: "fifo", Reason: "not a regular file"}}}}
		return res
	}, report: tree.Report{Changes: []tree.Change{
		{Path: ".git/x", Change: "created", State: tree.Skipped, Reason: "is what Git executes"},
	}}}
	res, err := newFake(t, fake).Run(t.Context(), inv)
	require.NoError(t, err)
	require.ErrorContains(t, res.Err(), "manifest.json (is a fifo: not a regular file)")
	require.Equal(t, []string{".git/x: created, but is what Git executes", "manifest.json: is a fifo: not a regular file"}, res.NotWritten)
	require.Empty(t, res.ManifestPath)
	require.NotEmpty(t, res.TracePackPath)
	// The other problems are reported all the same.
	require.False(t, res.Verification.OK)
	require.EqualError(t, res.Verification.Problems[0], "manifest.json: does not exist")
}

// TestWrongArtifacts: wrong artifacts are in the result, and its error names them.
func TestWrongArtifacts(t *testing.T) {
	fake := &fakeBox{left: map[string]string{ManifestName: "{}", TracePackName: "[]\n"}, program: exits(0)}
	res, err := newFake(t, fake).Run(t.Context(), newInvocation(t))
	require.NoError(t, err)
	require.False(t, res.OK)
	require.Empty(t, res.Reason)
	require.EqualError(t, res.Err(), "manifest.json: required fields are missing: artifacts, run_id, seed, timestamp\n"+
		"trace_pack.jsonl:1: is not a JSON object but an array")
	require.Equal(t, KindMissingFields, kindOf(t, res.Err()))
}

// TestChangedSince: a file that somebody else writes over the run's is not the run's.
func TestChangedSince(t *testing.T) {
	fake := &fakeBox{left: good, program: func(req sandbox.Request) result.Result {
		res := exits(0)(req)
		res.Trees = []result.Tree{{Target: OutputDir, Complete: true, Created: []result.TreeEntry{{Path: TracePackName, Kind: "file", SHA256: hashOf("other")}}}}
		return res
	}}
	fake.left = map[string]string{ManifestName: goodManifest}
	fake.late = map[string]string{TracePackName: goodTrace}
	res, err := newFake(t, fake).Run(t.Context(), newInvocation(t))
	require.NoError(t, err)
	require.EqualError(t, res.Err(), "trace_pack.jsonl: was changed by somebody else since the run")
}

// TestUnverified: the result of a call is not lost if its artifacts cannot be looked at.
func TestUnverified(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("interrupted")
	fake := &fakeBox{left: good, program: exits(0), apply: func() { cancel(stop) }}
	res, err := newFake(t, fake).Run(ctx, newInvocation(t))
	require.ErrorIs(t, err, stop)
	require.Equal(t, ReasonUnverified, res.Reason)
	require.Equal(t, "exited 0, but its artifacts were not verified: interrupted", res.Error)
	require.Nil(t, res.Verification)
	require.False(t, res.OK)
	require.NotEmpty(t, res.ManifestPath)
}

// TestLeftOut: files that were not written are listed, and incomplete output is not a
// success.
func TestLeftOut(t *testing.T) {
	many := make([]tree.Change, 150)
	for i := range many {
		many[i] = tree.Change{Path: fmt.Sprint("y", i), State: tree.Skipped}
	}
	oneTree := func(complete bool, skipped ...result.SkippedOutput) []result.Tree {
		return []result.Tree{{Target: "/other"}, {Target: OutputDir, Complete: complete, Skipped: skipped}}
	}
	for name, test := range map[string]struct {
		trees      []result.Tree
		changes    []tree.Change
		incomplete bool
		reason     Reason
		text       string
		listed     int
		last       string
	}{
		"nothing": {},
		"odd":     {trees: oneTree(true, result.SkippedOutput{Path: "p", Kind: "fifo", Reason: "not a regular file"}), listed: 1, last: "p: is a fifo: not a regular file"},
		"many":    {changes: many, listed: 101, last: "and 50 more"},
		"conflict": {
			changes: []tree.Change{{Path: "x", Change: "created", State: tree.Conflict, Reason: "is there already"}},
			reason:  ReasonNotWritten, text: "could not be written to ", listed: 1, last: "x: created, but is there already",
		},
		"too many": {
			trees:  oneTree(true, result.SkippedOutput{Path: "d/1", Kind: "other", Reason: "more than 10000 entries"}),
			reason: ReasonLimit, text: "left what the sandbox does not carry over: d/1: more than 10000 entries", listed: 2, last: "and maybe more: what is beyond a limit is not looked at",
		},
		"too large": {
			trees:  oneTree(true, result.SkippedOutput{Path: "big", Kind: "file", Reason: "larger than 5 bytes"}),
			reason: ReasonLimit, text: "big: larger than 5 bytes", listed: 2, last: "and maybe more: what is beyond a limit is not looked at",
		},
		"cut":    {trees: oneTree(false), reason: ReasonLimit, text: "not whole", listed: 1, last: "and maybe more: what is beyond a limit is not looked at"},
		"report": {incomplete: true, reason: ReasonLimit, text: "not whole", listed: 1, last: "and maybe more: what is beyond a limit is not looked at"},
	} {
		fake := &fakeBox{left: good, report: tree.Report{Changes: test.changes}, incomplete: test.incomplete,
			program: func(req sandbox.Request) result.Result {
				res := exits(0)(req)
				res.Trees = test.trees
				return res
			}}
		res, err := newFake(t, fake).Run(t.Context(), newInvocation(t))
		require.Len(t, res.NotWritten, test.listed, name)
		if test.listed > 0 {
			require.Equal(t, test.last, res.NotWritten[test.listed-1], name)
		}
		require.Equal(t, test.reason, res.Reason, name)
		require.Equal(t, test.reason.ours(), err != nil, name)
		if test.reason != "" {
			require.ErrorContains(t, res.Err(), test.text, name)
		}
	}
}

// TestLost: the loss of the tool's files is reported, however the tool ended.
func TestLost(t *testing.T) {
	errLost, errRecord := errors.New("the directory is gone"), errors.New("the record cannot be written")
	for name, test := range map[string]struct {
		program func(sandbox.Request) result.Result
		reason  Reason
	}{
		"non-zero": {exits(3), ReasonNonzeroExit},
		"time":     {ends(result.StatusTimedOut, -1), ReasonTimeout},
		"memory":   {ends(result.StatusOutOfMemory, 137), ReasonLimit},
		"good":     {exits(0), ReasonNotWritten},
	} {
		fake := &fakeBox{program: test.program, applyErr: errLost, err: errRecord}
		res, _ := newFake(t, fake).Run(t.Context(), newInvocation(t))
		err := res.Err()
		require.Equal(t, test.reason, res.Reason, name)
		require.Equal(t, test.reason == ReasonTimeout, errors.As(err, new(*TimeoutError)), name)
		for _, why := range []error{errLost, errRecord} {
			require.ErrorIs(t, err, why, name)
			require.ErrorContains(t, err, why.Error(), name)
		}
		require.Equal(t, []string{"all other changes: the directory is gone"}, res.NotWritten, name)
	}
	// A good end of the tool is not one of the call if the engine failed after it.
	fake := &fakeBox{program: exits(0), left: good, err: errRecord}
	_, err := newFake(t, fake).Run(t.Context(), newInvocation(t))
	var failed *InvocationError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, ReasonEngine, failed.Reason)
	require.ErrorIs(t, err, errRecord)
}

// TestOutputDirectory: what is refused before anything is started (MI-02, M3-12).
func TestOutputDirectory(t *testing.T) {
	profile := VerifyOptions{Profile: Profile{Artifacts: []Declared{{Path: "more/m.json", Optional: true}}}}
	for rule, change := range map[string]func(dir string) string{
		"does not exist":                        func(dir string) string { return filepath.Join(dir, "none") },
		"is not a directory":                    func(dir string) string { return filepath.Join(filepath.Dir(dir), "c.json") },
		"holds manifest.json from before":       leave(ManifestName),
		"holds trace_pack.jsonl from before":    leave(TracePackName),
		"holds adapter_metadata.json from befo": leave(AdapterMetadataName),
		"holds more/m.json from before":         leave("more/m.json"),
		"manifest.json from before: give":       func(dir string) string { _ = os.Symlink("nowhere", filepath.Join(dir, ManifestName)); return dir },
	} {
		fake := &fakeBox{program: exits(0), left: good}
		inv := newInvocation(t)
		inv.OutputDir = change(inv.OutputDir)
		before := contents(t, filepath.Dir(inv.Config))
		res, err := newTool(t, fake, Options{Verify: profile}).Run(t.Context(), inv)
		require.NoError(t, err)
		require.Equal(t, ReasonRefused, res.Reason)
		require.Contains(t, res.Error, rule)
		var field *policy.FieldError
		require.ErrorAs(t, res.Err(), &field)
		require.Equal(t, "output", field.Field)
		_, err = newTool(t, fake, Options{Verify: profile}).Plan(t.Context(), inv)
		require.ErrorContains(t, err, rule)
		require.Empty(t, fake.requests)
		require.Equal(t, before, contents(t, filepath.Dir(inv.Config)))
	}
	// A file in place of a directory of the profile is not an artifact.
	inv := newInvocation(t)
	require.NoError(t, os.WriteFile(filepath.Join(inv.OutputDir, "more"), nil, 0o600))
	res, err := newTool(t, &fakeBox{program: exits(0), left: good}, Options{Verify: profile}).Run(t.Context(), inv)
	require.NoError(t, err)
	require.Empty(t, res.Reason)
}

// TestRequiredByProfile: an artifact that a profile requires must exist (MI-05).
func TestRequiredByProfile(t *testing.T) {
	profile := VerifyOptions{Profile: Profile{Artifacts: []Declared{{Path: "model.bin"}, {Path: "more", Optional: true}}}}
	inv := newInvocation(t)
	res, err := newTool(t, &fakeBox{program: exits(0), left: good}, Options{Verify: profile}).Run(t.Context(), inv)
	require.NoError(t, err)
	require.EqualError(t, res.Err(), "required artifact missing: "+inv.OutputDir+"/model.bin")
	var failed *InvocationError
	require.ErrorAs(t, res.Err(), &failed)
	require.Equal(t, inv.OutputDir+"/model.bin", failed.Artifact)
}

func leave(name string) func(dir string) string {
	return func(dir string) string {
		_ = os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)
		_ = os.WriteFile(filepath.Join(dir, name), []byte("old"), 0o600)
		return dir
	}
}

// TestStale: what a manifest lists must be of the run. A name that was there before is
// not, whatever the tool did to it; nor is what somebody else made meanwhile.
func TestStale(t *testing.T) {
	inv := newInvocation(t)
	link := filepath.Join(filepath.Dir(inv.Config), "link")
	require.NoError(t, os.Symlink("out", link))
	inv.OutputDir = link // the same, by another name
	for _, name := range []string{"old", "changed"} {
		require.NoError(t, os.WriteFile(filepath.Join(inv.OutputDir, name), []byte("before"), 0o600))
	}
	fake := &fakeBox{left: map[string]string{ManifestName: manifestListing(`["old", "changed", "new", "alien"]`), TracePackName: "", "changed": "now", "new": "x"},
		program: func(req sandbox.Request) result.Result {
			_ = os.WriteFile(filepath.Join(inv.OutputDir, "alien"), nil, 0o600)
			return exits(0)(req)
		}}
	res, err := newFake(t, fake).Run(t.Context(), inv)
	require.NoError(t, err)
	var problems []string
	for _, problem := range res.Verification.Problems {
		require.Equal(t, KindStale, problem.Kind)
		problems = append(problems, problem.Error())
	}
	require.Equal(t, []string{"old: was not written by this run", "changed: was not written by this run", "alien: was not written by this run"}, problems)
}

// TestAliens: artifacts that somebody else leaves during the run are not the run's.
func TestAliens(t *testing.T) {
	inv := newInvocation(t)
	fake := &fakeBox{program: func(req sandbox.Request) result.Result {
		for name, text := range good {
			_ = os.WriteFile(filepath.Join(inv.OutputDir, name), []byte(text), 0o600)
		}
		return exits(0)(req)
	}}
	res, err := newFake(t, fake).Run(t.Context(), inv)
	require.NoError(t, err)
	require.ErrorContains(t, res.Err(), "manifest.json (was not written by this run)")
	require.Empty(t, res.ManifestPath)
	require.Empty(t, res.TracePackPath)
}

// TestOneCallAtATime: the output directory is of one call alone.
func TestOneCallAtATime(t *testing.T) {
	inv := newInvocation(t)
	second := newFake(t, &fakeBox{program: exits(0), left: good})
	fake := &fakeBox{left: good, program: func(req sandbox.Request) result.Result {
		refused, err := second.Run(context.Background(), inv)
		var field *policy.FieldError
		if err != nil || !errors.As(refused.Err(), &field) || field.Rule != "is in use by another call: give each call a directory of its own" {
			return exits(9)(req)
		}
		return exits(0)(req)
	}}
	res, err := newFake(t, fake).Run(t.Context(), inv)
	require.NoError(t, errors.Join(err, res.Err()), "the second was refused")
	for name := range good {
		require.NoError(t, os.Remove(filepath.Join(inv.OutputDir, name)))
	}
	res, err = second.Run(t.Context(), inv)
	require.NoError(t, errors.Join(err, res.Err()), "and the directory is free again")
}

// TestCarriedOverToTheEnd: who cancels a call that has ended does not lose its output.
func TestCarriedOverToTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	fake := &fakeBox{left: good, program: func(req sandbox.Request) result.Result {
		cancel()
		return exits(0)(req)
	}}
	inv := newInvocation(t)
	res, err := newFake(t, fake).Run(ctx, inv)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, ReasonUnverified, res.Reason)
	require.FileExists(t, filepath.Join(inv.OutputDir, ManifestName))
}

// TestConfigName: a name that cannot be shown to a container is refused as the
// configuration's.
func TestConfigName(t *testing.T) {
	for _, name := range []string{"a\nb.json", "\xff"} {
		inv := newInvocation(t)
		inv.Config = filepath.Join(filepath.Dir(inv.Config), name)
		_, err := newFake(t, &fakeBox{}).Plan(t.Context(), inv)
		var field *policy.FieldError
		require.ErrorAs(t, err, &field)
		require.Equal(t, "config", field.Field)
	}
}

// TestWarningsWithoutID: what differs from run to run is in the volatile fields only.
func TestWarningsWithoutID(t *testing.T) {
	fake := &fakeBox{left: good, program: func(req sandbox.Request) result.Result {
		res := exits(0)(req)
		res.Warnings = []string{"outputs are incomplete: /state/runs/run-1/live/0"}
		return res
	}}
	res, err := newFake(t, fake).Run(t.Context(), newInvocation(t))
	require.NoError(t, err)
	require.Equal(t, []string{"outputs are incomplete: /state/runs/RUN/live/0"}, res.Warnings)
}

func TestPlan(t *testing.T) {
	fake := &fakeBox{}
	inv := newInvocation(t)
	plan, err := newFake(t, fake).Plan(t.Context(), inv)
	require.NoError(t, err)
	require.Equal(t, []string{"python", "-m", "tool.cli", "--config", "/work/config/c.json", "--output", "/work/output"}, plan.Command)
	require.Equal(t, plan.Command, plan.Spec.Job.Command)
	require.Equal(t, "/work", plan.WorkDir)
	require.InDelta(t, 300, plan.TimeoutSeconds, 0)

	// That the configuration is missing is for the tool to find out.
	inv.Config += ".none"
	_, err = newFake(t, fake).Plan(t.Context(), inv)
	require.NoError(t, err)
	require.Empty(t, fake.requests[1].Mounts)
	inv.Config = "/" + strings.Repeat("x", 5000)
	_, err = newFake(t, fake).Plan(t.Context(), inv)
	require.ErrorContains(t, err, "config")
	res, err := newFake(t, fake).Run(t.Context(), inv)
	require.NoError(t, err)
	require.ErrorContains(t, res.Err(), "config")
}

// waitingBox waits before each run.
type waitingBox struct{ fakeBox }

func (b *waitingBox) Run(ctx context.Context, req sandbox.Request, opts ...sandbox.RunOption) (*result.Result, error) {
	for _, opt := range opts {
		if hooks, ok := opt.(sandbox.Hooks); ok {
			hooks.Waiting("for a GPU")
		}
	}
	return b.fakeBox.Run(ctx, req, opts...)
}
