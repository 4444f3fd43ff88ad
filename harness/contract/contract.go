// Package contract executes code execution contracts: documents that say what a tool is run
// with, what it may do and what it must give. The answer is a document too, an [Outcome].
//
// A contract is parsed and checked as text ([Rules]), resolved against the files of the host
// ([Resolve]), approved if its levels need it ([Approval]), executed in a sandbox, and compared
// with its expectations. A contract that breaks a rule never starts.
package contract

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Options are what all executions of a [Harness] share.
type Options struct {
	// Rules check every contract.
	Rules Rules
	// Root is the host directory that paths of contracts are relative to. Programs find it
	// at /repo.
	Root string
	// Forbidden are host paths that no level opens, such as the state directory, the
	// engine's data and its socket.
	Forbidden []string
	// Dependencies are host directories outside of the root that the level extended may
	// read.
	Dependencies []string
	// Request has the image, the runtime, the user and the limits that contracts do not
	// name, and in Egress the names and the limits of the proxy of the network levels. The
	// contract decides the rest.
	Request sandbox.Request
	// Approvals remembers approvals.
	Approvals Approvals
	// Policy bounds the network of adapters that call a server themselves. Programs have the
	// policy of the runner.
	Policy policy.Policy
	// Remote permits a call that an adapter makes from this process, or says why not. done gets the
	// time of a permitted one. Nil permits all.
	Remote func(e Effective) (done func(took time.Duration), err error)
	// Jitter returns the pause before an attempt of an adapter, from the one that doubles each
	// time; nil is between half and the whole of it.
	Jitter func(wait time.Duration) time.Duration
}

// Job is one contract: a document, or a parsed one.
type Job struct {
	// Text is the document in YAML or JSON.
	Text []byte
	// Contract is used if Text is nil.
	Contract *Contract

	// Approval is an approval of [Approvals.Grant]; nil for none.
	Approval *Approval
	// Approver consents to whatever the contract needs, for this execution only. An
	// Approval takes precedence.
	Approver Approver

	// IO shows the output as it is written. The stdin is that of the contract. The stdout of an
	// adapter is not shown: its value is in the outcome.
	IO    sandbox.IO
	Hooks sandbox.Hooks

	labels map[string]string // of the run
	emit   func(trial.Event) // may be nil
	used   *trial.Usage      // counts all attempts of the job; may be nil
}

// Harness executes contracts. Its methods may be called concurrently.
type Harness struct {
	box sandbox.Box
	Options
	// clocks has the path of libfaketime by image ID, empty for an image without it.
	clocks sync.Map
	// session has the outcomes of calls that are the same during a session (DT-02).
	session session
}

// New returns a harness that runs programs in a box.
func New(box sandbox.Box, o Options) (*Harness, error) {
	if box == nil || o.Root == "" {
		return nil, errors.New("contract: there is no box, or no root")
	}
	return &Harness{box: box, Options: o, session: newSession()}, nil
}

// Plan is [Harness.Run] up to the moment before the start: the outcome has the status planned,
// and Executed says what would be run.
func (h *Harness) Plan(ctx context.Context, job Job) (Outcome, error) {
	run := h.newExecution(job)
	err := run.prepare(ctx)
	return run.end(ctx, err), err
}

// Run executes a contract. A contract that breaks a rule, and a program that fails, are
// outcomes. An error means that we failed; the outcome then says how far the execution came.
func (h *Harness) Run(ctx context.Context, job Job) (Outcome, error) {
	run := h.newExecution(job)
	if run.Effective.Adapted != nil && len(run.outcome.Violations) == 0 {
		return h.viaAdapter(ctx, job, run)
	}
	return run.carryOut(ctx)
}

func (run *execution) carryOut(ctx context.Context) (Outcome, error) {
	err := run.prepare(ctx)
	if err == nil && len(run.outcome.Violations) == 0 {
		if run.Effective.Adapted.isRemote() {
			err = run.callRemote(ctx)
		} else {
			err = run.execute(ctx)
		}
	}
	if run.job.used != nil {
		*run.job.used = run.job.used.Plus(run.usage())
	}
	return run.end(ctx, err), err
}

// NotBegun is the outcome of a job that could not be given to a harness, for a reason outside
// of the contract. It lists the rules that the text of the contract breaks.
func NotBegun(ctx context.Context, rules Rules, job Job, err error) Outcome {
	run := (&Harness{Options: Options{Rules: rules}}).newExecution(job)
	return run.end(ctx, err)
}

// execution is one contract on its way. Each step adds to it.
type execution struct {
	*Harness
	job Job
	Examination
	resolved Resolved
	approval *Approval
	request  sandbox.Request
	spec     spec.Spec
	// id is the ID of the run, and record the directory of its record.
	id, record string
	result     *result.Result
	// remoteEgress is the network of a remote call, and ended says that it was accounted for.
	remoteEgress policy.Egress
	ended        bool
	// asked is the contract before its adapter. before are the earlier attempts of the call, and
	// wait is the pause after the last one.
	asked Contract
	// lingered says that we ended the program after the talk with it.
	lingered bool
	before   []Attempt
	wait     time.Duration

	outcome Outcome
	// conclusive says that the outcome is about the contract and its program.
	conclusive bool
	checks     map[string]CheckPoint
}

// newExecution checks the text of the contract.
func (h *Harness) newExecution(job Job) *execution {
	run := &execution{Harness: h, job: job, checks: map[string]CheckPoint{}}
	if job.Text == nil && job.Contract != nil {
		run.Contract = *job.Contract
		run.Effective, run.Violations, run.Stripped = h.Rules.Validate(run.Contract)
	} else {
		run.Examination = h.Rules.Examine(job.Text)
	}
	run.asked = run.Contract
	if a := run.Effective.Adapted; a != nil {
		run.Contract, run.outcome.Call = a.Contract, a.newCall()
	}
	c := run.Contract
	run.outcome = Outcome{
		Schema: OutcomeSchemaV1, ExecutionID: c.ExecutionID, ToolID: c.ToolID, AdapterID: c.AdapterID,
		ContractSHA256: run.Effective.ContractSHA256, Metadata: c.Metadata, Call: run.outcome.Call,
		Violations: run.Violations, Stripped: run.Stripped, Warnings: run.Effective.Warnings,
	}
	if c.ExecutionID == "" {
		run.outcome.ExecutionID = uuid.NewString()
	}
	return run
}

// refuse adds violations that earlier checks did not report.
func (run *execution) refuse(violations []Violation) {
	addLines(violations, run.lines)
	earlier := slices.Clone(run.outcome.Violations)
	for _, v := range violations {
		if !violates(earlier, v.Field) {
			run.outcome.Violations = append(run.outcome.Violations, v)
		}
	}
}

// prepare makes all checks before the start, so that all violations are reported at once.
func (run *execution) prepare(ctx context.Context) error {
	e := run.Effective
	if e.FilesystemLevel != "" && !e.Adapted.isRemote() {
		var violations []Violation
		run.resolved, violations = Resolve(e.Contract, run.Root, e, run.Dependencies, run.Forbidden)
		run.refuse(violations)
		run.outcome.Warnings = append(run.outcome.Warnings, run.resolved.Warnings...)
	}
	missing, err := run.approve()
	run.outcome.Violations = append(run.outcome.Violations, missing...)
	if err != nil {
		return err
	}
	broken := len(run.outcome.Violations) > 0
	if e.Adapted.isRemote() {
		if broken {
			return nil
		}
		return run.planRemote()
	}
	if broken && (e.FilesystemLevel == "" || e.NetworkLevel == "" || e.Contract.Inputs.Command == "") {
		return nil
	}
	run.buildRequest()
	run.spec, err = run.box.Plan(ctx, run.request)
	refused := run.refusals(err)
	run.refuse(refused)
	switch {
	case broken || len(refused) > 0:
		return nil // an unreachable engine does not hide the violations
	case err != nil:
		return err
	}
	if err := run.fakeClock(ctx); err != nil || len(run.outcome.Violations) > 0 {
		return err
	}
	run.outcome.Executed = executed(e.Contract, run.spec, run.resolved)
	return nil
}

// execute runs the program and accounts for it.
func (run *execution) execute(ctx context.Context) error {
	hooks, streams := run.hooks(), sandbox.IO{Stdout: run.job.IO.Stdout, Stderr: run.job.IO.Stderr}
	if run.Effective.Adapted != nil {
		streams.Stdout = nil
	}
	if text := run.Contract.Inputs.Stdin; text != nil {
		streams.Stdin = strings.NewReader(*text)
	}
	var begun error
	hooks.Begin = func(id string) error {
		begun = run.begin(id)
		return begun
	}
	res, answer, err := run.runProgram(ctx, streams, hooks)
	if used, ok := errors.AsType[*ApprovalUsedError](begun); ok {
		run.refuse([]Violation{used.violation()})
		return nil
	}
	if res == nil {
		refused := run.refusals(err)
		run.refuse(refused)
		if len(refused) > 0 {
			return nil
		}
		return err
	}
	run.result = res
	run.id, run.record = res.ID, run.box.Store().RecordDir(res.ID) // also if the program did not begin
	run.account(ctx, res)
	if a := run.Effective.Adapted; a != nil {
		if a.Read != nil {
			answer = a.Read(run.outcome)
		}
		if ctx.Err() != nil && answer.Err == nil && a.Talk != nil {
			answer.Err = context.Cause(ctx)
		}
		run.answered(answer)
		run.outcome.Call.Attempts = append(slices.Clone(run.before), run.attempt())
	}
	run.finish()
	return errors.Join(err, write(run.record, OutcomeFile, run.outcome.ExecutionID, run.outcome.Encode))
}

// begin is the last step before the program starts: it uses up the approval, and records the
// contract.
func (run *execution) begin(id string) error {
	run.id, run.record = id, run.box.Store().RecordDir(id)
	if run.approval != nil {
		if err := run.Approvals.Use(*run.approval, run.outcome.ExecutionID, time.Now()); err != nil {
			return err
		}
	}
	return run.writeContract()
}

// end completes the outcome of an execution that was not accounted for.
func (run *execution) end(ctx context.Context, err error) Outcome {
	o := &run.outcome
	switch {
	case run.result != nil, run.ended:
		return *o
	case err != nil:
		o.Status, o.Error, o.Executed = StatusFailed, strings.TrimSpace(err.Error()), nil
		if ctx.Err() != nil {
			o.Status, o.Error = result.StatusCanceled.String(), context.Cause(ctx).Error()
		}
	case len(o.Violations) > 0:
		o.Status, o.Executed = StatusRefused, nil
		o.Error = refusedText(o.Violations)
		run.checkBefore()
		run.checkViolations()
	default:
		o.Status, o.Approval = StatusPlanned, run.approval
		run.checkBefore()
	}
	o.Checklist = run.checklist()
	run.finish()
	return *o
}

// finish completes the outcome for its readers. The verdict is inconclusive for an execution that
// could not begin, and for one whose run is not conclusive; see [result.Result.Conclusive]. A command
// that cannot be executed is a failure of the contract.
func (run *execution) finish() {
	o := &run.outcome
	switch {
	case o.Status == StatusRefused:
		o.Verdict = trial.Refused
	case !run.conclusive:
		o.Verdict = trial.Inconclusive
	case o.Success:
		o.Verdict = trial.Passed
	default:
		o.Verdict = trial.Failed
	}
	fillLists(reflect.ValueOf(o))
}

// refusedText is one sentence on why a contract was refused (CI-02).
func refusedText(violations []Violation) string {
	var all []string
	for _, v := range violations {
		if v.Sentence != "" {
			return v.Sentence
		}
		all = append(all, v.String())
	}
	return "Validation failed: " + text.First(all, mostListed, "; ")
}

// mostListed bounds the problems that an error lists.
const mostListed = 3

// executed describes what is run, from the plan that the engine carries out.
func executed(c Contract, plan spec.Spec, files Resolved) *Executed {
	class, job := plan.Class, plan.Job
	stdin := ""
	if c.Inputs.Stdin != nil {
		stdin = *c.Inputs.Stdin
	}
	env := map[string]string{} // the job replaces variables of the class
	for _, pair := range slices.Concat(class.Env, job.Env) {
		name, _, _ := strings.Cut(pair, "=")
		env[name] = pair
	}
	ex := &Executed{
		Command: slices.Clone(job.Command), Environment: slices.Sorted(maps.Values(env)), WorkingDirectory: class.WorkDir,
		StdinBytes: int64(len(stdin)), StdinSHA256: sha256Of(stdin), InputFiles: files.InputFiles,
		Image: class.Image.ID, Locked: class.Image.Locked,
		Profile: c.Sandbox.Profile, TimeoutMS: milliseconds(job.TimeoutSeconds), MemoryMB: class.Cgroup.MemoryBytes >> 20,
		CPUCores: class.Cgroup.NanoCPUs / 1e9, PIDs: class.Cgroup.PIDs, AllowFork: !job.NoFork,
		FilesystemLevel: c.Sandbox.Filesystem.Level, NetworkLevel: c.Sandbox.Network.Level,
		NetworkAllow: slices.Clone(c.Sandbox.Network.Allow), NetworkDeny: slices.Clone(c.Sandbox.Network.Deny),
	}
	for _, m := range job.Mounts {
		ex.Mounts = append(ex.Mounts, Mount{Source: m.Source, Target: m.Target, Mode: "ro"})
	}
	for _, t := range job.Trees {
		ex.Mounts = append(ex.Mounts, Mount{Source: t.Source, Target: t.Target, Mode: "rw"})
	}
	for _, m := range files.Masks {
		if !slices.Contains(files.absent, m) {
			ex.Mounts = append(ex.Mounts, Mount{Target: m, Mode: "hidden"})
		}
	}
	slices.SortStableFunc(ex.Mounts, func(a, b Mount) int { return strings.Compare(a.Target, b.Target) })
	return ex
}
