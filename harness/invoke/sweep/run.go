package sweep

import (
	"context"
	"errors"
	"fmt"

	"github.com/evalbox/evalbox/internal/schedule"
)

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
	todo, err := s.resume(ctx)
	if err != nil {
		return s.report, err
	}
	s.run(ctx, todo)
	return s.report, s.end(ctx)
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
func (s *sweep) resume(ctx context.Context) (todo []int, err error) {
	for i := range s.report.Runs {
		s.report.Runs[i] = End{Index: i, Name: s.plan.Name(i), Point: s.plan.Point(i), Status: StatusMissing}
	}
	for i := range s.report.Runs {
		kept, err := s.keep(ctx, &s.report.Runs[i])
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			return nil, err
		case !kept:
			todo = append(todo, i)
		}
	}
	if s.again && s.opts.Resumed != nil {
		s.opts.Resumed(s.plan.Len() - len(todo))
	}
	if len(todo) > 0 {
		err = s.folder.forgetManifest()
	}
	return todo, err
}

// keep takes over how a run ended in an earlier call, if it needs not be done again.
func (s *sweep) keep(ctx context.Context, end *End) (bool, error) {
	if !s.again {
		return false, nil
	}
	spec, err := s.plan.Spec(end.Index)
	if err != nil {
		return false, err
	}
	known, ok, err := s.folder.known(ctx, end.Name, spec, s.opts.Verify)
	if ok {
		end.Status, end.ManifestHash, end.ExitCode, end.Kept = known.Status, known.ManifestHash, known.ExitCode, true
	}
	return ok, err
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
	planted, err := s.folder.takeAway(end.Name)
	if err != nil {
		return missing(err)
	}
	if end.Failure == "" {
		end.ManifestHash, end.Failure = s.judge(ctx, end.Name, spec, outcome, planted)
	}
	var artifacts map[string]string
	if end.Failure == "" {
		artifacts = withManifest(outcome.Artifacts, end.ManifestHash)
	} else {
		end.Status, end.ManifestHash = StatusFailed, ""
	}
	if err := s.folder.end(end, outcome, artifacts); err != nil {
		return missing(err)
	}
	return end
}

// judge is the hash of the manifest of a run that went well so far, or what is wrong all
// the same. planted is what it made where it must not.
func (s *sweep) judge(ctx context.Context, name string, spec []byte, outcome Outcome, planted string) (hash, failure string) {
	hash, err := s.folder.manifestHash(context.WithoutCancel(ctx), name)
	checked, was := outcome.Artifacts[toolManifest]
	switch {
	case err != nil:
		return "", err.Error()
	case was && checked != hash:
		return "", toolManifest + " was changed after it was checked"
	case !s.folder.hasSpec(name, spec):
		return "", "its spec was changed while it ran"
	case planted != "":
		return "", "it made " + planted + " beside its output folder"
	}
	return hash, ""
}

// withManifest are artifacts with the manifest, which every run has.
func withManifest(artifacts map[string]string, hash string) map[string]string {
	all := map[string]string{toolManifest: hash}
	for path, sum := range artifacts {
		if path != toolManifest {
			all[path] = sum
		}
	}
	return all
}
