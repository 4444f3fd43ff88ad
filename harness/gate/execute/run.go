package execute

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// maxManifest bounds RunManifest.json, in bytes.
const maxManifest = 16 << 20

// run is one execution of a manifest.
type run struct {
	root   *os.Root
	runner Runner
	o      Options
	m      evidence.RunManifest
	// path is the search path of the gates, empty for that of the image.
	path string
	// temp is a folder of ours; workspace and baseline are the copies in it that gates
	// start from.
	temp, workspace, baseline string
	// lost are declared outputs that could not be kept.
	lost []error
}

// set is one pass over all gates: the gates themselves, those on the baseline, or a
// repetition.
type set struct {
	// name is empty for the gates themselves.
	name      string
	workspace string
	// kept and keptBytes are what was kept of its outputs so far.
	kept      int
	keptBytes int64
}

// Run executes the gates of the manifest in root, a gate directory, one after the
// other, and writes what happened below evidence/. It goes on after a gate that failed:
// all of them are to be known. With a baseline the same gates run on that first; with
// repeats all run again.
//
// A [*FindingError] says that the manifest cannot be carried out, or that the workspace
// was not the same all the time. Every other error is a failure of ours or the end of
// ctx. What had been seen by then is in the files. It must not be called twice for a
// directory.
func Run(ctx context.Context, root *os.Root, r Runner, o Options) (err error) {
	if r == nil || o.Store == nil {
		return errors.New("execute: a runner and its store are needed")
	}
	x := &run{root: root, runner: r, o: o}
	if err := evidence.Read(root, evidence.RunManifestFile, maxManifest, &x.m); err != nil {
		return err
	}
	if err := refused(x.m); err != nil {
		return err
	}
	if err := root.MkdirAll(evidence.RawDir, 0o755); err != nil {
		return fmt.Errorf("gate directory: %w", err)
	}
	defer func() {
		if x.temp != "" {
			err = errors.Join(err, fsx.Remove(x.temp))
		}
	}()
	if err := x.takeCopies(ctx); err != nil {
		return err
	}
	if err := x.committed(ctx); err != nil {
		return err
	}
	before, err := x.snapshot(ctx)
	if err != nil {
		return err
	}
	for _, name := range evidence.Sets(x.m) {
		s := &set{name: name, workspace: x.workspace}
		if name == evidence.BaselineSet {
			s.workspace = x.baseline
		}
		for _, g := range x.m.Gates {
			if err := x.gate(ctx, s, g); err != nil {
				return err
			}
		}
	}
	return errors.Join(append(x.lost, x.unchanged(ctx, before))...)
}

// refused is why a manifest must not be executed, whoever made it (RT-07, RT-14). It is
// pure.
func refused(m evidence.RunManifest) error {
	switch {
	case !m.Mode.Execute:
		return refuse(evidence.ReasonModeViolation, 0, "", "in plan mode nothing may run", nil)
	case !m.Mode.Tools:
		return refuse(evidence.ReasonToolsDisabled, 0, "", "running anything is switched off", nil)
	case !m.Mode.Sealed:
		return refuse(evidence.ReasonNotSealed, 0, "", "only a sealed wish is executed", nil)
	case len(m.Gates) == 0:
		return refuse(evidence.ReasonNoCommands, 0, "gate_commands", "there is nothing to run", nil)
	case m.Workspace == "":
		return refuse(evidence.ReasonNoWorkspace, 0, "workspace", "the manifest names none", nil)
	}
	return nil
}

// RepeatDir is the folder of the k-th pass over the gates; the second is the first that
// repeats.
func RepeatDir(k int) string { return evidence.SetDir(evidence.RepeatSet(k)) }

// gate runs one gate and keeps what it left.
func (x *run) gate(ctx context.Context, s *set, g evidence.Gate) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	event := Event{Stage: StageStart, Set: s.name, Gate: g.Index, Gates: len(x.m.Gates), Cmd: g.Cmd}
	x.tell(event)
	req, err := x.request(s, g)
	if err != nil {
		return err
	}
	res, err := x.runner.Run(ctx, req, sandbox.IO{Stdout: x.o.IO.Stdout, Stderr: x.o.IO.Stderr}, x.o.Hooks)
	if res == nil {
		return errors.Join(refusal(err, g.Index), x.discard(req.ID))
	}
	// What was seen is kept, also of a run that was canceled or lost its engine.
	err = errors.Join(err, x.keep(s, g, req.ID, *res))
	event.Stage, event.Result = StageEnd, res
	x.tell(event)
	err = errors.Join(err, x.discard(req.ID))
	if err == nil {
		err = context.Cause(ctx)
	}
	return err
}

// unchanged makes sure that what is said of the workspace beside the gates, such as its
// commit and how it differs from the baseline, is said of what they got.
func (x *run) unchanged(ctx context.Context, before string) error {
	after, err := HashWorkspace(ctx, x.m)
	if errors.Is(err, fs.ErrNotExist) {
		after, err = "", nil
	}
	if err != nil {
		return fmt.Errorf("hashing the workspace again: %w", err)
	}
	if after != before {
		return refuse(evidence.ReasonEnvironment, 0, "workspace", "its files changed while the gates ran: they ran on others than are there now", nil)
	}
	return nil
}

func (x *run) tell(e Event) {
	if x.o.Progress != nil {
		x.o.Progress(e)
	}
}

func (x *run) now() time.Time {
	if x.o.Now != nil {
		return x.o.Now()
	}
	return time.Now()
}
