// Package execute is node 2 of a gate: it runs the commands of a RunManifest.json, each in a
// fresh container, and records what happened (RT-11). It judges nothing. RunManifest.json is
// all that it reads (RT-17). It writes below evidence/, for the gate NN:
//
//	raw/NN.stdout.log, raw/NN.stderr.log   the streams, byte for byte
//	raw/NN.result.json                     evalbox/result/v1 without the streams
//	raw/NN.report                          the report file of the gate, if it wrote one
//	raw/NN.outputs.json                    which files were kept, and which were not, and why
//	outputs/NN/…                           the files of artifact_paths that it created or changed
//
// and env_snapshot.json and workspace.json with the environment of the gates. The gates on the baseline write to
// raw/baseline, and the K-th repetition to raw/repeat-K. A gate that never ran has no files.
package execute

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/record"
)

// Options say how gates run. The manifest says which ones.
type Options struct {
	// Request has what all containers share: User, Runtime, Transfer, Labels, and the addresses
	// of names in Egress. The manifest has everything else.
	Request sandbox.Request
	// IO shows the output of the gates live. They have no stdin.
	IO    sandbox.IO
	Hooks sandbox.Hooks
	// Keep leaves the records of the runs in the store. Otherwise they are removed when their
	// files are in the evidence.
	Keep bool
	// Recorded, if set, is the hash that the files of the workspace must have; see
	// [evidence.EnvSnapshot].
	Recorded string
	// RecordedEntries, if set, are those of [evidence.Workspace]: they name what differs.
	RecordedEntries map[string]string
	// Progress, if set, gets every event, from the goroutine of [Run].
	Progress func(Event)
}

// Event is one step of a gate.
type Event struct {
	Stage Stage
	// Set is empty for the gates themselves, else "baseline" or "repeat-K".
	Set string
	// Gate counts from 1, Gates is how many there are, Cmd is the command; zero for stages
	// of no gate.
	Gate, Gates int
	Cmd         string
	// Result is the result of a gate that ended. It must not be changed.
	Result *result.Result
	// Moved is where an earlier run moved, and Removed is where the oldest run was that was removed
	// for it; empty for none.
	Moved, Removed string
}

// Stage names a step.
type Stage string

// Stages.
const (
	StageMoved     Stage = "moved"     // an earlier run moved aside
	StageManifest  Stage = "manifest"  // node 1
	StageSnapshot  Stage = "snapshot"  // node 2: the environment of the gates
	StageStart     Stage = "start"     // node 2: a gate starts
	StageEnd       Stage = "end"       // node 2: a gate ended
	StageNormalize Stage = "normalize" // node 3
	StageHash      Stage = "hash"      // node 4
	StageJudge     Stage = "judge"     // node 5
)

// maxManifest bounds RunManifest.json, in bytes.
const maxManifest = 16 << 20

// run is one execution of a manifest.
type run struct {
	box  sandbox.Box
	o    Options
	root *os.Root
	m    evidence.RunManifest
	// path is the search path of the gates; empty is that of the image.
	path string
	// workspace and baseline are the copies that gates start from, in a private directory that
	// removeTemp removes; nil for none.
	workspace, baseline string
	removeTemp          func() error
	// snapshot is written after the first gate, and versions is what was found for it.
	snapshot evidence.EnvSnapshot
	versions map[string]string
	findings []evidence.Finding
}

// pass is one pass over all gates: the gates themselves, those on the baseline, or a
// repetition.
type pass struct {
	name      string // empty for the gates themselves
	workspace string
	// kept and keptBytes count its outputs so far.
	kept      int
	keptBytes int64
}

// errRefused ends a run that has a finding which says why.
var errRefused = errors.New("refused")

// Run executes the gates of the manifest in root, a gate directory, one after the other. It
// continues after a gate that failed. With a baseline the gates run on that first; with
// repeats all gates run again.
//
// The findings say why the manifest cannot be carried out, or that its workspace changed
// meanwhile. The error is a failure of the sandbox or the end of ctx. The files have
// what was seen by then. Run must be called once for a directory.
func Run(ctx context.Context, root *os.Root, box sandbox.Box, o Options) ([]evidence.Finding, error) {
	x := &run{box: box, o: o, root: root}
	err := evidence.Read(root, evidence.RunManifestFile, maxManifest, &x.m)
	if err == nil {
		err = x.all(ctx)
	}
	if errors.Is(err, errRefused) {
		err = nil
	}
	if x.removeTemp != nil {
		err = errors.Join(err, x.removeTemp())
	}
	return x.findings, err
}

func (x *run) all(ctx context.Context) error {
	if err := x.mayRun(); err != nil {
		return err
	}
	if err := x.root.MkdirAll(evidence.RawDir, 0o755); err != nil {
		return fmt.Errorf("gate directory: %w", err)
	}
	if err := x.takeCopies(ctx); err != nil {
		return err
	}
	if err := x.prepare(ctx); err != nil {
		return err
	}
	for _, name := range evidence.Passes(x.m) {
		p := &pass{name: name, workspace: x.workspace}
		if name == evidence.BaselinePass {
			p.workspace = x.baseline
		}
		for _, g := range x.m.Gates {
			if err := x.gate(ctx, p, g); err != nil {
				return err
			}
		}
	}
	return x.unchanged(ctx)
}

// mayRun refuses a manifest that must not be executed; anybody may have written it (RT-07, RT-14).
func (x *run) mayRun() error {
	switch {
	case !x.m.Mode.Execute:
		return x.refuse(evidence.ReasonModeViolation, 0, "", "in plan mode nothing may run")
	case !x.m.Mode.Tools:
		return x.refuse(evidence.ReasonToolsDisabled, 0, "", "running anything is switched off")
	case !x.m.Mode.Sealed:
		return x.refuse(evidence.ReasonNotSealed, 0, "", "only a sealed wish is executed")
	case len(x.m.Gates) == 0:
		return x.refuse(evidence.ReasonNoCommands, 0, "gate_commands", "there is nothing to run")
	case x.m.Workspace == "":
		return x.refuse(evidence.ReasonNoWorkspace, 0, "workspace", "the manifest names none")
	}
	return nil
}

// gate runs one gate and keeps its files.
func (x *run) gate(ctx context.Context, p *pass, g evidence.Gate) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	event := Event{Stage: StageStart, Set: p.name, Gate: g.Index, Gates: len(x.m.Gates), Cmd: g.Cmd}
	x.emit(event)
	req, err := x.request(p, g)
	if err != nil {
		return err
	}
	res, err := x.box.Run(ctx, req, sandbox.IO{Stdout: x.o.IO.Stdout, Stderr: x.o.IO.Stderr}, x.o.Hooks, x.work())
	if res == nil {
		return cmp.Or(x.discard(req.ID), x.refused(err, g.Index))
	}
	// The evidence also has a run that was canceled or lost its engine.
	err = errors.Join(err, x.keep(p, g, req.ID, *res))
	if x.versions != nil {
		err = errors.Join(err, x.writeSnapshot(res))
	}
	event.Stage, event.Result = StageEnd, res
	x.emit(event)
	return cmp.Or(errors.Join(err, x.discard(req.ID)), context.Cause(ctx))
}

// work is the work of the gate directory. One run of it is in progress at a time; if a kill left one behind,
// the next run ends it.
func (x *run) work() sandbox.Work {
	dir, _ := filepath.Abs(x.root.Name()) // fails only without a current directory
	return sandbox.Work{Key: "gate " + dir}
}

// unchanged checks that the workspace is still what the gates ran on: the evidence describes
// it, with its commit and its differences from the baseline. A run from a commit has no part
// that can change.
func (x *run) unchanged(ctx context.Context) error {
	if x.fromCommit() {
		return nil
	}
	after, err := x.hashOf(ctx, x.m.Workspace, nil)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("hashing the workspace again: %w", err)
	}
	if after != x.snapshot.Workspace {
		return x.refuse(evidence.ReasonEnvironment, 0, "workspace", "its files changed while the gates ran: they ran on others than are there now")
	}
	return nil
}

// refuse adds a finding.
func (x *run) refuse(reason evidence.StopReason, gate int, subject, detail string) error {
	x.findings = append(x.findings, evidence.Finding{Reason: reason, Gate: gate, Subject: subject, Detail: detail})
	return errRefused
}

// refused turns a refusal of the sandbox into a finding. A failure of the sandbox stays an
// error.
func (x *run) refused(err error, gate int) error {
	var unlocked *lock.UnlockedError
	var missing *images.NotFoundError
	var place *sandbox.PathError
	var field *policy.FieldError
	switch {
	case errors.As(err, &unlocked):
		return x.refuse(evidence.ReasonUnpinned, gate, unlocked.Name, err.Error())
	case errors.As(err, &missing):
		return x.refuse(evidence.ReasonMissingDependency, gate, missing.Ref, err.Error())
	case errors.As(err, &place) && place.Field != "state directory":
		reason := evidence.ReasonIncomplete
		if errors.Is(place, fs.ErrNotExist) {
			reason = evidence.ReasonMissingDependency
			if place.Field == "tree" {
				reason = evidence.ReasonNoWorkspace
			}
		}
		return x.refuse(reason, gate, place.Field, "the sandbox refuses: "+err.Error())
	case errors.As(err, &field):
		return x.refuse(evidence.ReasonIncomplete, gate, field.Field, "the sandbox refuses: "+err.Error())
	}
	return err
}

// discard removes the record of a run: its files are in the evidence.
func (x *run) discard(id string) error {
	if x.o.Keep {
		return nil
	}
	if err := x.box.Store().Remove(id); err != nil && !errors.Is(err, record.ErrNoRecord) {
		return fmt.Errorf("removing the record of run %s: %w", id, err)
	}
	return nil
}

func (x *run) emit(e Event) {
	if x.o.Progress != nil {
		x.o.Progress(e)
	}
}
