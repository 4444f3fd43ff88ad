// Package gate runs the tests of a workspace, keeps the evidence, judges it and runs it again
// (RT-01 to RT-17). No test, no pass.
//
// [Harness.Run] writes a gate directory in five nodes, each of which sees only the files of
// those before it:
//
//  1. manifest: the sealed wish, the state of the repository and the flags become
//     RunManifest.json;
//  2. execute: the commands run in fresh containers; what they print and write is kept below
//     evidence/raw;
//  3. normalize: run_log.txt, tests.json and observations.json follow from it;
//  4. hash: artifacts.json and evidence.manifest;
//  5. judge: ExecutionVerdict.json and GATES.json.
//
// A failing gate is a verdict, not an error. An error is a failure of the sandbox; even then
// the directory contains a verdict, never PASS. A directory that a crash left incomplete is
// judged as blocked, because it has no manifest.
//
// [Judge] and [Verify] need only the directory, on any machine. [Harness.Replay] runs the same
// commands again and compares.
package gate

import (
	"context"
	"errors"
	"fmt"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/execute"
	"github.com/evalbox/evalbox/harness/gate/spec"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

// Options say how gates run on this machine.
type Options struct {
	// Request, IO, Hooks, Keep and Progress are those of [execute.Options].
	// Request also says which image a wish means that names none.
	Request  sandbox.Request
	IO       sandbox.IO
	Hooks    sandbox.Hooks
	Keep     bool
	Progress func(Event)
	// Policy has the limits of this machine, and what may be reached. It is the runner's.
	Policy policy.Policy
	// Tools, if set, says which commands may run. ToolRegistry is the SHA-256 of its document.
	Tools        spec.Tools
	ToolRegistry string
}

// Event is one step of a gate.
type Event = execute.Event

// Harness runs gates. It is safe for concurrent use if its options are.
type Harness struct {
	box sandbox.Box
	o   Options
}

// New returns a harness over a box.
func New(box sandbox.Box, o Options) (*Harness, error) {
	if box == nil {
		return nil, errors.New("gate: a box is needed")
	}
	return &Harness{box, o}, nil
}

// Job is one gate run. [Harness.Load] makes it of a [Document].
type Job struct {
	// Lock is the wish. Sealed reports whether it matches its seal; if not, NotSealed is a
	// sentence that explains why.
	Lock      spec.Lock
	Sealed    bool
	NotSealed string
	// WishDir is the directory of the wish, which its boundary is relative to.
	WishDir string
	// OutDir is the gate directory. It must be new, empty or an earlier one, whose run moves aside: to
	// OutDir.1, and from there to OutDir.2 and OutDir.3. With Replace it is removed instead. OutDir
	// may lie in the workspace: no gate sees it, nor the earlier runs.
	OutDir  string
	Replace bool
	// Ignore lists further paths relative to WishDir that do not make a tree dirty, such as
	// the lock of the wish.
	Ignore []string
	// Mode has the flags: without Execute and Tools nothing runs. Sealed and ToolRegistry
	// are set by the harness. Repeats is how often everything runs to prove that it is
	// deterministic.
	Mode evidence.Mode
	// Baseline is a revision on which the gates run first; empty for none.
	Baseline string
	// Commit, if set, is a revision whose files the gates get instead of those of the
	// workspace, which may be dirty. The mode is strict then.
	Commit string
}

// Plan is what a job would do.
type Plan struct {
	Manifest evidence.RunManifest `json:"manifest"`
	// Findings say why nothing would run.
	Findings []evidence.Finding `json:"findings"`
}

// Plan decides what a job would do. Nothing starts, and nothing is written.
func (h *Harness) Plan(ctx context.Context, job Job) (Plan, error) {
	g := &run{Harness: h, job: job}
	err := g.decide(ctx)
	return Plan{g.m, append([]evidence.Finding{}, g.findings...)}, err
}

// Report is the result of a gate run.
type Report struct {
	// Dir is the gate directory.
	Dir      string
	Manifest evidence.RunManifest
	Tests    evidence.Tests
	Verdict  evidence.Verdict
	Gates    evidence.Gates

	// inconclusive says that a run of the gates says nothing about its command.
	inconclusive bool
}

// Err returns nil if the gate passed, and else a [*VerdictError].
func (r Report) Err() error {
	if r.Verdict.Status == evidence.Pass {
		return nil
	}
	return &VerdictError{r.Verdict}
}

// A VerdictError is a verdict that is not PASS.
type VerdictError struct{ Verdict evidence.Verdict }

func (e *VerdictError) Error() string {
	text := fmt.Sprintf("%s: %s", e.Verdict.Status, e.Verdict.StopReason)
	if len(e.Verdict.Findings) > 0 {
		text += ": " + e.Verdict.Findings[0].Detail
	}
	return text
}
