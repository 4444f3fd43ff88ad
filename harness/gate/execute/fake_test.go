package execute_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
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
	records string
	probe   string
	program func(req sandbox.Request) (*result.Result, error)
	ran     []sandbox.Request
	removed []string
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

// record is what a run leaves in the store.
func (f *fake) record(id, stdout, stderr string) error {
	dir := f.RecordDir(id)
	return errors.Join(
		os.MkdirAll(dir, 0o700),
		os.WriteFile(filepath.Join(dir, "stdout.log"), []byte(stdout), 0o600),
		os.WriteFile(filepath.Join(dir, "stderr.log"), []byte(stderr), 0o600),
	)
}

func (f *fake) RecordDir(id string) string { return filepath.Join(f.records, id) }

func (f *fake) TreeDir(id string, i int) string {
	return filepath.Join(f.RecordDir(id), "trees", fmt.Sprint(i))
}

func (f *fake) Remove(id string) error {
	f.removed = append(f.removed, id)
	if _, err := os.Stat(f.RecordDir(id)); err != nil {
		return record.ErrNoRecord
	}
	return os.RemoveAll(f.RecordDir(id))
}

func ended(code int) *result.Result {
	return &result.Result{Status: result.StatusExited, Fault: result.FaultNone, ExitCode: code, OutputComplete: true}
}
