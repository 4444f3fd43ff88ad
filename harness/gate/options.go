package gate

import (
	"context"
	"time"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/execute"
	"github.com/evalbox/evalbox/harness/gate/spec"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

// Engine is what runs gates, and how.
type Engine struct {
	// Runner and Store run programs and hold their records. Both are needed where
	// anything is to run.
	Runner execute.Runner
	Store  execute.Store
	// Request, IO and Hooks are what all containers have in common; see [execute.Options].
	Request sandbox.Request
	IO      sandbox.IO
	Hooks   sandbox.Hooks
	// Keep leaves the records of the runs in the store.
	Keep bool
	// TempDir is where the workspace is copied to, the baseline is checked out and repeats
	// are compared; empty is the system's.
	TempDir string
	// Progress, if not nil, hears what happens, from the goroutine of the call.
	Progress func(Event)
	// Now is the clock, for the IDs of runs; nil is the real one.
	Now func() time.Time
}

// Event is one step; see [execute.Event].
type Event = execute.Event

// Options are one gate run.
type Options struct {
	Engine

	// Lock is the wish, and Sealed whether it is what was sealed. NotSealed is a sentence
	// that says why it is not.
	Lock      spec.Lock
	Sealed    bool
	NotSealed string
	// WishDir is the folder of the wish, which its boundary is relative to.
	WishDir string
	// OutDir is the gate directory. It must be new or empty, or with Replace an earlier
	// gate directory, which is emptied. It may lie in the workspace: no gate sees it, and
	// it makes no tree dirty.
	OutDir  string
	Replace bool
	// Ignore are further paths relative to WishDir that make no tree dirty, such as the
	// lock of the wish.
	Ignore []string
	// Mode are the flags: without Execute and Tools nothing runs. Sealed is taken from
	// above. Repeats is how often everything runs to prove that it is deterministic.
	Mode evidence.Mode
	// Baseline is a revision on which the gates run first; empty is none.
	Baseline string
	// Tools, if not nil, says which commands may be run.
	Tools spec.Tools
	// Policy has the limits of this machine, and what may be reached. It is that of the
	// runner.
	Policy policy.Policy
}

// Report is what a gate run came to.
type Report struct {
	// Dir is the gate directory.
	Dir      string
	Manifest evidence.RunManifest
	Tests    evidence.Tests
	Verdict  evidence.Verdict
	Gates    evidence.Gates
}

func (e Engine) tell(stage execute.Stage) {
	if e.Progress != nil {
		e.Progress(Event{Stage: stage})
	}
}

func (e Engine) options() execute.Options {
	return execute.Options{Store: e.Store, Request: e.Request, IO: e.IO, Hooks: e.Hooks, Keep: e.Keep, TempDir: e.TempDir, Progress: e.Progress, Now: e.Now}
}

// detached is a context for what must be written down also when the caller has gone.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	const budget = 5 * time.Minute
	return context.WithTimeout(context.WithoutCancel(ctx), budget)
}
