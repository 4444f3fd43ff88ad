package sweep

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
)

// Options steer [Run].
type Options struct {
	// Dir is the directory of the sweep. It must not exist, unless Resume is set.
	Dir string
	// Resume goes on with the sweep that is in Dir, if there is one. It must be the same
	// one. Runs that succeeded and are as they were are kept; all others run again, in a
	// new directory.
	Resume bool
	// Verify are the demands on the artifacts of kept runs: the same as those of the
	// harness.
	Verify invoke.VerifyOptions
	// Parallel is how many runs go on at once; 0 is 1.
	Parallel int
	// KeepGoing goes on after a run that failed. The manifest then has null for its hash.
	KeepGoing bool
	// Log, if set, keeps every run as a job. LogFailed is that of [trial.Queue].
	Log       *trial.Log
	LogFailed func(error)
	// Setup is what else the runs depend on, such as the command line. Resume demands the
	// same. A secret is given as a hash, under a name that begins with [SetupHashed].
	Setup map[string]string
	// Resumed, if set, is called with the number of kept runs, before the others begin.
	Resumed func(kept int)
	// Begun and Ended, if set, are called as a run begins, and after it has ended and is on
	// the disk, one call at a time.
	Begun func()
	Ended func(End)
	// Events, if set, gets each event of the queue, one call at a time.
	Events func(trial.Event)
}

// Status is the state of a run.
type Status string

// The statuses of a run.
const (
	StatusSucceeded Status = "succeeded"
	StatusFailed    Status = "failed"
	// StatusMissing is a run that has not ended: not begun, interrupted, or one that we
	// failed to run.
	StatusMissing Status = "missing"
	// StatusPlanned is every run of a [Plan.Report].
	StatusPlanned Status = "planned"
)

// ReportSchemaV1 names the wire form of [Report].
const ReportSchemaV1 = "evalbox/sweep-report/v1"

// Report describes a sweep.
type Report struct {
	// Schema is always [ReportSchemaV1].
	Schema    string `json:"schema"`
	TotalRuns int    `json:"total_runs"`
	// Dir is the directory. Manifest is the file of the manifest; empty if none was written.
	Dir      string `json:"dir"`
	Manifest Text   `json:"manifest"`
	// Runs are in the order of the plan.
	Runs []End `json:"runs"`
	// Table has the numbers of the manifests, a row for each combination of values.
	Table []Row `json:"table"`
}

// Text is a text whose wire form is null if it is empty.
type Text string

// MarshalJSON writes the text, or null.
func (t Text) MarshalJSON() ([]byte, error) {
	if t == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(t))
}

// An End describes a run, as far as it is known.
type End struct {
	Name string `json:"name"`
	Point
	Status Status `json:"status"`
	// Kept means that it ended in an earlier call.
	Kept bool `json:"kept"`
	// ManifestHash is the SHA-256 of its manifest.json, if it succeeded.
	ManifestHash Text `json:"manifest_hash"`
	ExitCode     *int `json:"exit_code"`
	TimedOut     bool `json:"timed_out"`
	// Failure says why it failed, or why it is missing although it began.
	Failure Text `json:"failure"`

	err error // why it is missing
}

// Report is the report before the first run, in this directory.
func (p Plan) Report(dir string) Report {
	r := Report{Schema: ReportSchemaV1, TotalRuns: p.Len(), Dir: dir, Runs: make([]End, p.Len()), Table: []Row{}}
	for i := range r.Runs {
		r.Runs[i] = End{Name: p.names[i], Point: p.points[i], Status: StatusPlanned}
	}
	return r
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
	// Stopped means that no more runs began for that.
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
	logs := RunsName + "/" + e.Name + "/" + StderrName + " has what it printed; "
	if e.Stopped {
		return logs + "the same command goes on once it is fixed; with --keep-going the other runs do not wait for that"
	}
	return logs + "the same command runs again what failed"
}

// Check refuses what [Run] would refuse before its first run, as far as that can be seen
// without changing anything. Another process may use the directory.
func Check(plan Plan, opts Options) error {
	definition, err := opts.check(plan)
	if err != nil {
		return err
	}
	dir, err := findDir(opts.Dir, opts.Resume)
	if err != nil || dir.root == nil {
		return err
	}
	_, err = dir.recognize(definition)
	return errors.Join(err, dir.close())
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

// Run carries a plan out (MI-10, MI-11) with a harness of jobs of [invoke.JobSchemaV1]: one
// run after the other, or Parallel at once, in the order of the plan. A run that fails ends
// the sweep, once those that had begun have ended, unless KeepGoing is set.
//
// Once every run has succeeded, or ended with KeepGoing set, the manifest is written; it
// does not depend on Parallel. The report is complete in every case. The error is a
// [*FailuresError] for runs that failed; the cause of ctx if that ended, and then
// unfinished runs are missing; or why we failed. A refused sweep leaves nothing behind.
func Run(ctx context.Context, tool trial.Harness, plan Plan, opts Options) (report Report, err error) {
	definition, err := opts.check(plan)
	if err != nil {
		return Report{}, err
	}
	if ctx.Err() != nil {
		return Report{}, context.Cause(ctx)
	}
	dir, begun, err := openDir(opts.Dir, definition, opts.Resume)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, dir.close()) }()
	s := &sweep{Harness: tool, plan: plan, opts: opts, dir: dir, again: begun, made: make([]bool, plan.Len()), report: plan.Report(dir.path)}
	for i := range s.report.Runs {
		s.report.Runs[i].Status = StatusMissing
	}
	if err := s.resume(ctx); err != nil {
		return s.report, err
	}
	queue := trial.Queue{
		Parallel: opts.Parallel, Log: opts.Log, LogFailed: opts.LogFailed,
		Retry: trial.Retry{Max: 1, If: isDisturbed, Alone: true}, Failed: s.failed,
	}
	if opts.Events != nil {
		queue.Emit = func(e trial.Event) error {
			opts.Events(e)
			return nil
		}
	}
	if !opts.KeepGoing {
		queue.Budget.Failures = 1
	}
	_, _ = queue.Run(ctx, s, s.jobs) // the report says why it ended early
	err = s.finish(ctx)
	s.report.Table = s.table(ctx)
	return s.report, err
}

// isDisturbed says which runs are done once more when all others have ended: those that their
// environment or an operator ended, such as another run that filled the disk.
func isDisturbed(res trial.Result) bool { return res.Reason == string(invoke.ReasonDisturbed) }

// failed ends a sweep for an error, unless only the one run was disturbed.
func (s *sweep) failed(job trial.Job, err error) error {
	var call *invoke.InvocationError
	if errors.As(err, &call) && call.Reason == invoke.ReasonDisturbed {
		return nil
	}
	return fmt.Errorf("job %s: %w", job.Name, err)
}

// sweep is a sweep on its way: a harness that gives each job a directory.
type sweep struct {
	trial.Harness // of the tool
	plan          Plan
	opts          Options
	dir           *sweepDir
	again         bool   // the directory existed
	made          []bool // the directories of these runs are of this call

	mu     sync.Mutex // of the report, Begun and Ended
	report Report
}

// resume finds the runs that are kept, before any other one begins.
func (s *sweep) resume(ctx context.Context) error {
	if !s.again {
		return nil
	}
	kept := 0
	for i := range s.report.Runs {
		end := &s.report.Runs[i]
		spec, err := s.plan.Spec(i)
		if err != nil {
			return err
		}
		r, known, err := s.dir.known(ctx, end.Name, spec, s.opts.Verify)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case known:
			end.Status, end.ManifestHash, end.ExitCode, end.Kept = r.Status, Text(r.ManifestHash), r.ExitCode, true
			kept++
		}
	}
	if s.opts.Resumed != nil {
		s.opts.Resumed(kept)
	}
	if kept == s.plan.Len() {
		return nil
	}
	if err := s.dir.root.Remove(ManifestName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &DirError{Path: s.dir.path, Rule: "its former manifest cannot be deleted", Err: err}
	}
	return nil
}

// jobs are the runs that are not kept, in the order of the plan.
func (s *sweep) jobs(yield func(trial.Job) bool) {
	parent := trial.NewID()
	for _, run := range s.report.Runs {
		job := trial.Job{Name: run.Name, Parent: parent}
		if n, unsigned := run.Seed.Uint64(); unsigned {
			job.Seed = &n
		}
		at := func(name string) string { return filepath.Join(s.dir.path, runDir(run.Name, name)) }
		job.Spec, _ = invoke.JobSpec(invoke.Invocation{Config: at(SpecName), OutputDir: at(OutputName), Adapter: s.plan.config.Adapter, Seed: &run.Seed}) // texts and a number
		if !run.Kept && !yield(job) {
			return
		}
	}
}

// Run does one run in its directory, and records its end.
func (s *sweep) Run(ctx context.Context, job trial.Job, emit func(trial.Event)) (trial.Result, error) {
	i := slices.Index(s.plan.names, job.Name)
	s.mu.Lock()
	end := s.report.Runs[i]
	end.err = nil // of a run that was disturbed
	if s.opts.Begun != nil {
		s.opts.Begun()
	}
	s.mu.Unlock()
	res, err := s.one(ctx, job, emit, i, &end)
	if err != nil {
		end.Status, end.Failure, end.err = StatusMissing, Text(err.Error()), err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Runs[i] = end
	if s.opts.Ended != nil {
		s.opts.Ended(end)
	}
	return res, err
}

func (s *sweep) one(ctx context.Context, job trial.Job, emit func(trial.Event), i int, end *End) (trial.Result, error) {
	spec, err := s.plan.Spec(i)
	if err != nil {
		return trial.Result{}, err
	}
	if err := s.dir.begin(end.Name, spec, s.again || s.made[i]); err != nil {
		return trial.Result{}, err
	}
	s.made[i] = true
	res, err := s.Harness.Run(ctx, job, emit)
	if err == nil && (res.Verdict == trial.Refused || res.Verdict == trial.Inconclusive) && len(res.Problems) > 0 {
		err = errors.New(res.Problems[0].Rule) // every other run would be refused as well
	}
	var call invoke.Result
	if err == nil {
		err = json.Unmarshal(res.Detail, &call)
	}
	if err != nil {
		return res, fmt.Errorf("run %s: %w", end.Name, err)
	}
	r := runFile{Status: StatusSucceeded, ExitCode: call.ExitCode, TimedOut: call.TimedOut, Artifacts: map[string]string{}}
	for _, file := range res.Files {
		r.Artifacts[file.Path] = file.SHA256
	}
	r.ManifestHash = r.Artifacts[invoke.ManifestName]
	if res.Verdict != trial.Passed {
		r.Status, r.ManifestHash, r.Artifacts, r.Failure = StatusFailed, "", nil, failure(call)
	}
	end.Status, end.ManifestHash, end.ExitCode, end.TimedOut, end.Failure = r.Status, Text(r.ManifestHash), r.ExitCode, r.TimedOut, Text(r.Failure)
	return res, s.dir.end(end.Name, r, call.Stdout, call.Stderr)
}

// failure is a sentence about a call that failed.
func failure(call invoke.Result) string {
	v := call.Verification
	if call.Error != "" || v == nil || len(v.Problems) == 0 {
		return cmp.Or(call.Error, string(call.Reason), "it failed")
	}
	text := v.Problems[0].Error()
	if more := len(v.Problems) + v.ProblemsDropped - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

// finish writes the manifest, if it is due, and returns the failures.
func (s *sweep) finish(ctx context.Context) error {
	var errs []error
	var failures *FailuresError
	hashes := make([]Text, s.plan.Len())
	for i, end := range s.report.Runs {
		hashes[i] = end.ManifestHash
		if end.err != nil && len(errs) < maxProblems {
			errs = append(errs, end.err)
		}
		if end.Status == StatusFailed {
			if failures == nil {
				failures = &FailuresError{All: s.plan.Len(), Name: end.Name, Failure: string(end.Failure)}
			}
			failures.Failed++
		}
	}
	missing := s.report.Count(StatusMissing)
	switch {
	case missing > 0 && ctx.Err() != nil:
		errs = []error{context.Cause(ctx)}
	case missing == 0 && (failures == nil || s.opts.KeepGoing):
		text, err := s.plan.Manifest(hashes)
		if err == nil {
			err = fsx.WriteIn(s.dir.root, ManifestName, text, 0o644, true)
		}
		if err != nil {
			errs = append(errs, &DirError{Path: s.dir.path, Rule: "its manifest cannot be written", Err: err})
			break
		}
		s.report.Manifest = Text(filepath.Join(s.dir.path, ManifestName))
	}
	if failures != nil {
		failures.Stopped = missing > 0 && len(errs) == 0
		errs = append(errs, failures)
	}
	return errors.Join(errs...)
}
