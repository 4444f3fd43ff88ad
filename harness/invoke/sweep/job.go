package sweep

import (
	"context"
)

// A Job is one run as the tool is told of it.
type Job struct {
	// Name is the name of the run's folder.
	Name string
	// Config is the absolute path of the run's spec, OutputDir that of an empty folder.
	Config, OutputDir string
	// Adapter is nil for none.
	Adapter *string
	Seed    int64
}

// An Outcome is what the tool did.
type Outcome struct {
	// Stdout and Stderr are what it printed, also when it failed.
	Stdout, Stderr string
	// ExitCode is nil if there is none, as when the time limit ended it.
	ExitCode *int
	TimedOut bool
	// Failure says in a sentence why the run failed, also for its artifacts; empty if it
	// succeeded.
	Failure string
	// Artifacts are those of a run that succeeded, see [Verified]. A sweep that goes on
	// demands that they are still the same. manifest.json need not be among them.
	Artifacts map[string]string
}

// Invoke runs the tool once. It may be called concurrently, and is called at most once
// for each run. An error means that we failed to run it: the sweep then begins nothing
// more. What the tool itself does wrong is told by the outcome.
type Invoke func(ctx context.Context, job Job) (Outcome, error)

// Verified is what a look at a run's output folder found.
type Verified struct {
	// Artifacts are the SHA-256 of the files that were read, by their paths in the
	// folder, with slashes; 64 lower-case hexadecimal digits.
	Artifacts map[string]string
	// Failure says in a sentence what is wrong with them; empty for nothing.
	Failure string
}

// Verify judges what a run left in its output folder, whose path is absolute. It may
// be called concurrently. The error means that it could not be judged, or is that of ctx.
type Verify func(ctx context.Context, outputDir string) (Verified, error)
