package execute

import (
	"context"
	"time"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// Runner runs single programs; *sandbox.Runner is one.
type Runner interface {
	Run(ctx context.Context, req sandbox.Request, opts ...sandbox.RunOption) (*result.Result, error)
}

// Store is where the runner keeps the records of runs; *sandbox.Store is one.
type Store interface {
	RecordDir(id string) string
	TreeDir(id string, i int) string
	Remove(id string) error
}

// Options say how the gates are run, never what: that is the manifest's.
type Options struct {
	// Store has the records of the runner's runs. It is needed.
	Store Store
	// Request is what all containers have in common: User, Runtime, Transfer and Labels.
	// Everything else is the manifest's.
	Request sandbox.Request
	// IO shows the output of the gates live. They have no stdin.
	IO    sandbox.IO
	Hooks sandbox.Hooks
	// Keep leaves the records of the runs in the store; else they are removed once
	// their files are in the evidence.
	Keep bool
	// TempDir is where the workspace is copied to while gates run; empty is the system's.
	TempDir string
	// Progress, if not nil, hears what happens, from the goroutine of [Run].
	Progress func(Event)
	// Now is the clock, for the IDs of runs; nil is the real one.
	Now func() time.Time
}

// Event is one step of a run.
type Event struct {
	Stage Stage
	// Set is empty for the gates themselves, else "baseline" or "repeat-K".
	Set string
	// Gate counts from 1, Gates is how many there are, Cmd is the command; zero for
	// stages that are no gate's.
	Gate, Gates int
	Cmd         string
	// Result is what the sandbox saw of a gate that has ended. It must not be changed.
	Result *result.Result
}

// Stage is where a run is.
type Stage string

// Stages of a run.
const (
	StageManifest  Stage = "manifest"  // node 1
	StageSnapshot  Stage = "snapshot"  // node 2: what the gates run in
	StageStart     Stage = "start"     // node 2: a gate begins
	StageEnd       Stage = "end"       // node 2: a gate has ended
	StageNormalize Stage = "normalize" // node 3
	StageHash      Stage = "hash"      // node 4
	StageJudge     Stage = "judge"     // node 5
)
