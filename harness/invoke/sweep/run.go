package sweep

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/evalbox/evalbox/internal/schedule"
	"github.com/evalbox/evalbox/policy"
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
}

// Invoke runs the tool once. It may be called concurrently, and is called at most once
// for each run. An error means that we failed to run it: the sweep then begins nothing
// more. What the tool itself does wrong is told by the outcome.
type Invoke func(ctx context.Context, job Job) (Outcome, error)

// Status is how a run stands.
type Status string

// The statuses of a run.
const (
	StatusSucceeded Status = "succeeded"
	StatusFailed    Status = "failed"
	// StatusMissing is a run that has not ended: not begun, interrupted, or one that we
	// failed to run.
	StatusMissing Status = "missing"
)

// An End is what is known of a run.
type End struct {
	// Index is its place in the plan, from 0.
	Index int
	Name  string
	Point
	Status Status
	// ManifestHash is the SHA-256 of its manifest.json, if it succeeded.
	ManifestHash string
	ExitCode     *int
	TimedOut     bool
	// Failure says why it failed.
	Failure string
	// Kept says that it ended in an earlier call.
	Kept bool
	// Err is why it is missing, if it began.
	Err error
}

// Options steer [Run].
type Options struct {
	// Dir is the folder of the sweep. It must not exist, unless Resume is set.
	Dir string
	// Resume goes on with the sweep that is in Dir, if there is one. It must be the same
	// one. What has succeeded is kept; all else is done again, in a fresh folder.
	Resume bool
	// Parallel is how many runs go on at once; 0 is 1.
	Parallel int
	// KeepGoing goes on after a run that failed. The manifest then has null for its hash.
	KeepGoing bool
	// Setup is what else the runs depend on, such as the command line. Resume demands the
	// same.
	Setup map[string]string
	// Resumed, if set, is called with the number of runs that were kept, before the others begin.
	Resumed func(kept int)
	// Begun and Ended, if set, are called as a run begins, possibly several calls at the
	// same time, and after it has ended and is on the disk, one call at a time.
	Begun func(index int)
	Ended func(End)
}

// Report is what came of a sweep.
type Report struct {
	// Dir is its folder. Manifest is the file of its manifest; empty if none was written.
	Dir, Manifest string
	// Runs are in the order of the plan.
	Runs []End
}

// Count is the number of runs of a status.
func (r Report) Count(status Status) int {
	n := 0
	for _, end := range r.Runs {
		if end.Status == status {
			n++
		}
	}
	return n
}

// A FailuresError is a sweep of which runs failed.
type FailuresError struct {
	// Failed of All runs failed; Name is the first of them, in the order of the plan.
	Failed, All   int
	Name, Failure string
	// Stopped says that nothing more was begun for that.
	Stopped bool
}

func (e *FailuresError) Error() string {
	text := "run " + e.Name + " failed: " + e.Failure
	if e.Failed > 1 {
		text = fmt.Sprintf("%d of %d runs failed; the first is %s: %s", e.Failed, e.All, e.Name, e.Failure)
	}
	if e.Stopped {
		text += "; nothing more was started"
	}
	return text
}

// Hint says how to go on.
func (e *FailuresError) Hint() string {
	if e.Stopped {
		return "go on with --resume once it is mended; --keep-going runs the others all the same"
	}
	return "--resume runs again what failed"
}

// Run carries a plan out (MI-10, MI-11): one run after the other, or Parallel at once,
// in the order of the plan. A run that fails ends the sweep, once those that had begun
// have ended, unless KeepGoing is set.
//
// Once every run has succeeded, or ended with KeepGoing set, the manifest is written; it
// does not depend on Parallel. The report is complete on every way to end. The error is
// a [*FailuresError] for runs that failed; the cause of ctx if that ended, and then what
// was under way counts as missing; or why we failed. Nothing is left behind of a sweep
// that is refused.
func Run(ctx context.Context, plan Plan, invoke Invoke, opts Options) (report Report, err error) {
	definition, err := opts.check(plan)
	if err != nil {
		return Report{}, err
	}
	if ctx.Err() != nil {
		return Report{}, context.Cause(ctx)
	}
	f, resumed, err := openFolder(opts.Dir, definition, opts.Resume)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	s := &sweep{plan: plan, invoke: invoke, opts: opts, folder: f, again: resumed, report: Report{Dir: f.path, Runs: make([]End, plan.Len())}}
	todo, err := s.resume()
	if err != nil {
		return s.report, err
	}
	s.run(ctx, todo)
	return s.report, s.end(ctx)
}

func (o Options) check(plan Plan) ([]byte, error) {
	switch {
	case o.Dir == "":
		return nil, &policy.FieldError{Field: "output", Rule: "must not be empty"}
	case o.Parallel < 0:
		return nil, &policy.FieldError{Field: "parallel", Value: strconv.Itoa(o.Parallel), Rule: "must not be negative"}
	case plan.Len() == 0:
		return nil, &policy.FieldError{Field: "sweep", Rule: "has no runs"}
	}
	return plan.definition(o.Setup)
}

// sweep is one on its way.
type sweep struct {
	plan   Plan
	invoke Invoke
	opts   Options
	folder *folder
	again  bool // the folder was there
	report Report
}

// resume finds out what is to be done.
func (s *sweep) resume() (todo []int, err error) {
	for i := range s.report.Runs {
		end := &s.report.Runs[i]
		*end = End{Index: i, Name: s.plan.Name(i), Point: s.plan.Point(i), Status: StatusMissing}
		if s.again {
			spec, err := s.plan.Spec(i)
			if err != nil {
				return nil, err
			}
			if known, ok := s.folder.known(end.Name, spec); ok {
				end.Status, end.ManifestHash, end.ExitCode, end.Kept = known.Status, known.ManifestHash, known.ExitCode, true
				continue
			}
		}
		todo = append(todo, i)
	}
	if s.again && s.opts.Resumed != nil {
		s.opts.Resumed(s.plan.Len() - len(todo))
	}
	if len(todo) > 0 {
		err = s.folder.forgetManifest()
	}
	return todo, err
}

// run does what is to be done. The ends tell what went wrong.
func (s *sweep) run(ctx context.Context, todo []int) {
	steps := schedule.Schedule[End]{
		Parallel: s.opts.Parallel,
		Enough: func(_ int, end End) error {
			if end.Err != nil || end.Status == StatusFailed && !s.opts.KeepGoing {
				return errStopped
			}
			return nil
		},
		Ended: func(_ int, end End) {
			s.report.Runs[end.Index] = end
			if s.opts.Ended != nil {
				s.opts.Ended(end)
			}
		},
	}
	_ = steps.Run(ctx, len(todo), func(ctx context.Context, i int) End {
		if s.opts.Begun != nil {
			s.opts.Begun(todo[i])
		}
		return s.one(ctx, todo[i])
	}) // why it ended early stands in the report
}

// errStopped means that nothing more begins.
var errStopped = errors.New("a run failed")

// one does one run and writes down how it ended.
func (s *sweep) one(ctx context.Context, i int) End {
	end := s.report.Runs[i]
	missing := func(err error) End {
		end.Status, end.Err = StatusMissing, err
		return end
	}
	spec, err := s.plan.Spec(i)
	if err != nil {
		return missing(err)
	}
	job, err := s.folder.begin(end.Name, spec, s.again)
	if err != nil {
		return missing(err)
	}
	job.Adapter, job.Seed = s.plan.config.Adapter, end.Seed
	outcome, err := s.invoke(ctx, job)
	if err != nil {
		return missing(fmt.Errorf("run %s: %w", end.Name, err))
	}
	end.Status, end.ExitCode, end.TimedOut, end.Failure = StatusSucceeded, outcome.ExitCode, outcome.TimedOut, outcome.Failure
	if end.Failure == "" {
		if end.ManifestHash, err = s.folder.manifestHash(end.Name); err != nil {
			end.Failure = err.Error()
		} else if !s.folder.hasSpec(end.Name, spec) {
			end.Failure = "its spec was changed while it ran"
		}
	}
	if end.Failure != "" {
		end.Status, end.ManifestHash = StatusFailed, ""
	}
	if err := s.folder.end(end, outcome); err != nil {
		return missing(err)
	}
	return end
}

// end writes the manifest, if it is due, and says what went wrong.
func (s *sweep) end(ctx context.Context) error {
	missing, failures := s.report.Count(StatusMissing), s.failures()
	var errs []error
	switch {
	case missing > 0 && ctx.Err() != nil:
		errs = append(errs, context.Cause(ctx))
	case missing > 0:
		for _, end := range s.report.Runs {
			if end.Err != nil && len(errs) < maxTold {
				errs = append(errs, end.Err)
			}
		}
	case failures == nil || s.opts.KeepGoing:
		var err error
		if s.report.Manifest, err = s.writeManifest(); err != nil {
			errs = append(errs, err)
		}
	}
	if failures != nil {
		failures.Stopped = missing > 0 && len(errs) == 0
		errs = append(errs, failures)
	}
	return errors.Join(errs...)
}

func (s *sweep) writeManifest() (string, error) {
	hashes := make([]string, s.plan.Len())
	for i, end := range s.report.Runs {
		hashes[i] = end.ManifestHash
	}
	text, err := s.plan.Manifest(hashes)
	if err != nil {
		return "", err
	}
	return s.folder.writeManifest(text)
}

// failures tells which runs failed; nil for none.
func (s *sweep) failures() *FailuresError {
	var failures *FailuresError
	for _, end := range s.report.Runs {
		if end.Status != StatusFailed {
			continue
		}
		if failures == nil {
			failures = &FailuresError{All: s.plan.Len(), Name: end.Name, Failure: end.Failure}
		}
		failures.Failed++
	}
	return failures
}
