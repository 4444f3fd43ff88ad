package gate_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/record/recordtest"
	sandboxspec "github.com/evalbox/evalbox/sandbox/spec"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/spec"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// fake stands in for a runner and its store. Its gates print what pytest does and leave
// its report; program may change that.
type fake struct {
	sandbox.Box // panics if anything else is called
	store       *record.Store
	program     func(req sandbox.Request, gate *fakeGate) error
	// ran counts gates, not probes.
	ran int
}

// fakeGate is what one run of a gate comes to.
type fakeGate struct {
	result.Result
	report string
	// outputs are files that it made in the workspace.
	outputs map[string]string
}

const fakeImage = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func newFake(t *testing.T) *fake { return &fake{store: recordtest.Open(t)} }

func (f *fake) Store() *record.Store { return f.store }

func (f *fake) Run(_ context.Context, req sandbox.Request, _ ...sandbox.RunOption) (*result.Result, error) {
	g := fakeGate{
		Result: result.Result{
			ID: req.ID, Status: result.StatusExited, Fault: result.FaultNone, OutputComplete: true,
			Image:    result.Image{Name: req.Image, ID: fakeImage, Platform: "linux/amd64", Locked: true},
			Enforced: result.Enforced{Engine: "Fake 1.0", Runtime: "runc"},
			Observed: &result.Observed{NetworkAttempts: new(int64), Watched: []string{"/etc/shadow"}, Opened: []string{}},
		},
		outputs: map[string]string{},
	}
	if req.Labels["gate.index"] == "probe" {
		g.Stdout = "timezone\tUTC\nlocale\tC.UTF-8\npython3\tPython 3.11.2\npytest\tpytest 7.2.1\n"
		return &g.Result, nil
	}
	f.ran++
	g.Stdout = ".                                                                        [100%]\n1 passed in 0.01s\n"
	g.report = `<?xml version="1.0"?><testsuites><testsuite name="pytest" errors="0" failures="0" skipped="0" tests="1">` +
		`<testcase classname="test_a" name="test_one" time="0.001"/></testsuite></testsuites>`
	var err error
	if f.program != nil {
		err = f.program(req, &g)
	}
	if errors.Is(err, sandbox.ErrEngineUnavailable) {
		return nil, err
	}
	return f.record(g, err)
}

// record leaves what a run leaves in the store.
func (f *fake) record(g fakeGate, err error) (*result.Result, error) {
	dir := f.store.RecordDir(g.ID)
	write := func(name, text string) {
		file := filepath.Join(dir, filepath.FromSlash(name))
		err = errors.Join(err, os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600))
	}
	write("stdout.log", g.Stdout)
	write("stderr.log", g.Stderr)
	if g.report != "" {
		write("final/report.xml", g.report)
	}
	tree := result.Tree{Target: sandboxspec.RepoDir, Complete: true}
	for name, text := range g.outputs {
		write("trees/0/"+name, text)
		tree.Created = append(tree.Created, result.TreeEntry{Path: name, Kind: "file", SizeBytes: int64(len(text)), Mode: "0644"})
	}
	g.Trees = append(g.Trees, tree)
	g.StdoutBytes, g.StderrBytes = int64(len(g.Stdout)), int64(len(g.Stderr))
	return &g.Result, err
}

// seal seals a wish of a test.
func seal(t *testing.T, text string, toolchain evidence.Toolchain) spec.Lock {
	t.Helper()
	w, err := spec.Parse([]byte(text), "wish.yaml")
	require.NoError(t, err)
	lock, err := spec.Seal(w, toolchain)
	require.NoError(t, err)
	return lock
}

// executed is the mode of a run.
func executed() evidence.Mode { return evidence.Mode{Execute: true, Tools: true, Repeats: 1} }

// testJob is a job with its harness.
type testJob struct {
	gate.Job
	gate.Options
	box sandbox.Box
}

func (o testJob) run(ctx context.Context) (gate.Report, error) {
	h, err := gate.New(o.box, o.Options)
	if err != nil {
		return gate.Report{}, err
	}
	return h.Run(ctx, o.Job)
}

func (o testJob) replay(ctx context.Context, r gate.ReplayOptions) (gate.ReplayReport, error) {
	h, err := gate.New(o.box, o.Options)
	if err != nil {
		return gate.ReplayReport{}, err
	}
	return h.Replay(ctx, r)
}

// options are those of a run over the fake.
func options(t *testing.T, f *fake, text string) testJob {
	t.Helper()
	dir := treetest.Dir(t, map[string]string{"test_a.py": "def test_one(): pass\n"})
	return testJob{box: f, Job: gate.Job{
		WishDir: dir, OutDir: filepath.Join(dir, ".gate"), Mode: executed(),
		Lock: seal(t, text, evidence.Toolchain{Image: "debian", ImageID: fakeImage, Locked: true}), Sealed: true,
	}}
}

// reasons are the stop reasons of the findings.
func reasons(v evidence.Verdict) (all []evidence.StopReason) {
	for _, f := range v.Findings {
		all = append(all, f.Reason)
	}
	return all
}

// commit commits everything in a directory.
func commit(t *testing.T, repo *gogit.Repository, message string) string {
	t.Helper()
	tree, err := repo.Worktree()
	require.NoError(t, err)
	_, err = tree.Add(".")
	require.NoError(t, err)
	who := &object.Signature{Name: "T", Email: "t@example.com", When: time.Unix(1700000000, 0)}
	hash, err := tree.Commit(message, &gogit.CommitOptions{Author: who, Committer: who})
	require.NoError(t, err)
	return hash.String()
}
