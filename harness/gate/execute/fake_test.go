package execute_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/execute"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/record/recordtest"
)

var errStop = errors.New("stopped by the test")

// onWrite calls a function at the first write.
func onWrite(do func()) *firstWrite { return &firstWrite{do: sync.OnceFunc(do)} }

type firstWrite struct{ do func() }

func (w *firstWrite) Write(p []byte) (int, error) {
	w.do()
	return len(p), nil
}

// fake stands in for a runner and its store. program says what a gate does; the probe
// prints probe.
type fake struct {
	sandbox.Box // panics if anything else is called
	store       *record.Store
	probe       string
	program     func(req sandbox.Request) (*result.Result, error)
	ran         []sandbox.Request
}

func (f *fake) Run(_ context.Context, req sandbox.Request, _ ...sandbox.RunOption) (*result.Result, error) {
	f.ran = append(f.ran, req)
	res := ended(0)
	res.ID = req.ID
	res.Image = result.Image{Name: req.Image, ID: "sha256:01", Platform: "linux/amd64", Locked: true}
	res.Enforced = result.Enforced{Engine: "Fake 1.0", Runtime: "runc"}
	if req.Labels["gate.index"] == "probe" {
		res.Stdout = f.probe
		return res, nil
	}
	if f.program == nil {
		return res, nil
	}
	res, err := f.program(req)
	if res != nil {
		res.ID = req.ID
		if err := f.record(req.ID, res.Stdout, res.Stderr); err != nil {
			return nil, err
		}
	}
	return res, err
}

func newFake(t *testing.T) *fake { return &fake{store: recordtest.Open(t)} }

func (f *fake) Store() *record.Store { return f.store }

// kept counts the records.
func (f *fake) kept(t *testing.T) int {
	ids, err := f.store.IDs()
	require.NoError(t, err)
	return len(ids)
}

// run runs a manifest that has no finding.
func run(t *testing.T, ctx context.Context, root *os.Root, box sandbox.Box, o execute.Options) {
	t.Helper()
	findings, err := execute.Run(ctx, root, box, o)
	require.NoError(t, err)
	require.Empty(t, findings)
}

// record is what a run leaves in the store.
func (f *fake) record(id, stdout, stderr string) error {
	dir := f.store.RecordDir(id)
	return errors.Join(
		os.MkdirAll(dir, 0o700),
		os.WriteFile(filepath.Join(dir, "stdout.log"), []byte(stdout), 0o600),
		os.WriteFile(filepath.Join(dir, "stderr.log"), []byte(stderr), 0o600),
	)
}

func ended(code int) *result.Result {
	return &result.Result{Status: result.StatusExited, Fault: result.FaultNone, ExitCode: code, OutputComplete: true}
}
