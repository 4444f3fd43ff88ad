package contract

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/tree"
)

// Runner plans and runs single programs; *sandbox.Runner is one.
type Runner interface {
	Run(ctx context.Context, req sandbox.Request, opts ...sandbox.RunOption) (*result.Result, error)
	Plan(ctx context.Context, req sandbox.Request) (spec.Spec, error)
	ApplyTree(ctx context.Context, id, target string, opts tree.ApplyOptions) (tree.Report, error)
}

// Store has the records of runs; *record.Store is one.
type Store interface {
	RecordDir(id string) string
	TreeDir(id string, i int) string
	Remove(id string) error
}

// Executor carries contracts out. It may be used concurrently.
type Executor struct {
	Runner Runner
	// Rules are what every contract is checked against.
	Rules Rules
	// Root is the host folder that paths of contracts are relative to. Programs find
	// it at /repo.
	Root string
	// Forbidden are host paths that no contract may open, whatever its level, such as
	// the state folder, the engine's data folder and its socket.
	Forbidden []string
	// Dependencies are host folders outside of the root that level extended may read.
	// It may read nothing else there: everything else takes level elevated, and so an
	// approval.
	Dependencies []string
	// Request is what all executions have in common: image, runtime, user, limits
	// that contracts do not name. What a contract says takes its place.
	Request sandbox.Request
	// IO shows the output live. The stdin is that of the contract.
	IO    sandbox.IO
	Hooks sandbox.Hooks
	// AddHosts maps names to addresses for the proxy of the network levels.
	AddHosts map[string][]netip.Addr

	// Approval is a consent from a file; nil is none.
	Approval *Approval
	// Approver consents to whatever the contract needs, for this execution only. It
	// is not used beside an Approval.
	Approver Approver
	// Ledger remembers which approvals were used.
	Ledger ApprovalLedger

	// Store has the records of the runner, each with its outcome in it; nil for none.
	// Without one nothing that a program changes reaches the host.
	Store Store
	// Now is the clock of approvals and of run IDs; nil is the real one.
	Now func() time.Time

	clocks clockCache
}

// Approver is a person who consents on the spot.
type Approver struct{ Name, Reason string }

// Status of an outcome that no run had.
const (
	// StatusRefused is a contract that breaks a rule.
	StatusRefused = "refused"
	// StatusPlanned is a contract that would be carried out, see [Executor.DryRun].
	StatusPlanned = "planned"
)

// Execute carries a contract out and accounts for it. A contract that breaks a rule is
// an outcome like any other, with Started false: it is not retried, because nothing
// would change. An error means that the execution itself failed; the outcome then says
// how far it came, and is nil if it did not begin.
func (x *Executor) Execute(ctx context.Context, c Contract) (*Outcome, error) {
	e, violations, stripped := x.Rules.Validate(c)
	return x.carryOut(ctx, x.newExecution(c, e, violations, stripped), false)
}

// ExecuteText is [Executor.Execute] of a document. Whatever is wrong with its form is
// told with everything else.
func (x *Executor) ExecuteText(ctx context.Context, text []byte, source string) (*Outcome, error) {
	return x.carryOut(ctx, x.examine(text, source), false)
}

// DryRun is [Executor.ExecuteText] up to the moment before the program would be run:
// the outcome has the status planned, and Executed is what would be.
func (x *Executor) DryRun(ctx context.Context, text []byte, source string) (*Outcome, error) {
	return x.carryOut(ctx, x.examine(text, source), true)
}

// execution is one contract on its way.
type execution struct {
	*Executor
	contract  Contract
	effective Effective
	resolved  Resolved
	approval  *Approval
	// lines are those of the fields in the document.
	lines map[string]int
	// request and spec are what is run; final is where ./final is kept.
	request sandbox.Request
	spec    spec.Spec
	record  string
	final   string

	outcome *Outcome
	checks  checklist
}

func (x *Executor) newExecution(c Contract, e Effective, violations, stripped []Violation) *execution {
	id := c.ExecutionID
	if id == "" {
		id = uuid.NewString()
	}
	return &execution{
		Executor: x, contract: c, effective: e,
		outcome: &Outcome{
			Schema: OutcomeSchemaV1, ExecutionID: id, ToolID: c.ToolID, AdapterID: c.AdapterID,
			ContractSHA256: e.ContractSHA256, Status: StatusRefused,
			Violations: violations, Stripped: stripped, Metadata: c.Metadata, Warnings: e.Warnings,
		},
	}
}

// examine begins the execution of a document.
func (x *Executor) examine(text []byte, source string) *execution {
	run := x.newExecution(x.Rules.Examine(text, source))
	_, run.lines, _ = parse(text)
	return run
}

func (x *Executor) now() time.Time {
	if x.Now != nil {
		return x.Now()
	}
	return time.Now()
}

// carryOut is the whole way of a contract.
func (x *Executor) carryOut(ctx context.Context, run *execution, dry bool) (*Outcome, error) {
	if err := run.check(); err != nil {
		return nil, err
	}
	if len(run.outcome.Violations) > 0 {
		run.planRefused(ctx)
		return run.refused(), nil
	}
	run.planRequest()
	spec, err := x.Runner.Plan(ctx, run.request)
	if refused := run.refusals(err); len(refused) > 0 {
		run.outcome.Violations = refused
		return run.refused(), nil
	}
	if err != nil {
		return nil, err
	}
	run.spec = spec
	rule, err := run.findClock(ctx)
	if rule != "" {
		run.outcome.Violations = []Violation{{Code: "DT-01", Field: "determinism.clock", Value: run.contract.Determinism.Clock, Rule: rule}}
		return run.refused(), nil
	}
	if err != nil {
		return nil, err
	}
	if run.request.FakeClock != nil {
		if run.spec, err = x.Runner.Plan(ctx, run.request); err != nil {
			return nil, err
		}
	}
	run.outcome.Executed = run.executed()
	if dry {
		return run.planned(), nil
	}
	return run.run(ctx)
}

// planRefused tells of a contract that breaks rules what the sandbox would refuse
// beside them, such as a network level that the settings do not permit. An engine that
// cannot be asked is no reason not to tell the rest.
func (run *execution) planRefused(ctx context.Context) {
	o, e := run.outcome, run.effective
	if e.FilesystemLevel == "" || e.NetworkLevel == "" || e.Contract.Inputs.Command == "" {
		return
	}
	run.planRequest()
	_, err := run.Runner.Plan(ctx, run.request)
	text := slices.Clone(o.Violations)
	for _, v := range run.refusals(err) {
		if !violates(text, v.Field) {
			v.Line = lineOf(run.lines, v.Field)
			o.Violations = append(o.Violations, v)
		}
	}
}

// check is everything that is looked at before the engine is asked: the files of the
// host, and approvals.
func (run *execution) check() error {
	o := run.outcome
	if run.contract.AdapterID != "" && !violates(o.Violations, "adapter_id") {
		o.Violations = append(o.Violations, Violation{Code: "CK-01", Field: "adapter_id", Value: quoted(run.contract.AdapterID),
			Rule: fmt.Sprintf("No adapter found '%s'", text.Short(run.contract.AdapterID, mostShown))})
	}
	if run.effective.FilesystemLevel != "" {
		text := o.Violations
		resolved, wrong := Resolve(run.effective.Contract, run.Root, run.effective, run.Dependencies, run.Forbidden)
		run.resolved = resolved
		for _, v := range wrong {
			// What is wrong as text is wrong on the host as well.
			if v.Line = lineOf(run.lines, v.Field); !violates(text, v.Field) {
				o.Violations = append(o.Violations, v)
			}
		}
		o.Warnings = append(o.Warnings, resolved.Warnings...)
	}
	missing, err := run.approve()
	o.Violations = append(o.Violations, missing...)
	return err
}

// violates reports whether a field is named, or a part of it, or what it is a part of.
func violates(violations []Violation, field string) bool {
	return slices.ContainsFunc(violations, func(v Violation) bool { return within(v.Field, field) || within(field, v.Field) })
}

// approve looks for the consent that the contract needs.
func (run *execution) approve() ([]Violation, error) {
	needs, now := run.effective.Needs, run.now()
	of := NewApprovable(run.effective, run.Root, run.Request.Image)
	switch {
	case len(needs) == 0:
		return nil, nil
	case run.Approval != nil:
		run.approval = run.Approval
	case run.Approver != Approver{}:
		run.approval = &Approval{
			Schema: ApprovalSchemaV1, ID: uuid.NewString(), ContractSHA256: run.effective.ContractSHA256,
			ApprovedBy: run.Approver.Name, Reason: run.Approver.Reason,
			ApprovedAt: now.UTC().Format(time.RFC3339), ExpiresAt: now.Add(onTheSpot).UTC().Format(time.RFC3339),
			Root: of.Root, Image: of.Image, Levels: needs,
		}
	default:
		var missing []Violation
		for _, level := range needs {
			missing = append(missing, Violation{Code: "CK-01", Field: "approval", Value: level, Rule: ruleNoApproval})
		}
		return missing, nil
	}
	violations := CheckApproval(*run.approval, of, now)
	if run.Approval == nil {
		return violations, nil
	}
	sealed, err := run.Ledger.Check(*run.Approval)
	run.approval = new(*run.Approval)
	run.approval.MAC = "" // it is of no use to whoever reads the outcome
	return append(violations, sealed...), err
}

// ruleNoApproval is broken by a contract that needs an approval and has none.
const ruleNoApproval = "needs an approval, and there is none"

// onTheSpot is how long an approval lasts that is given with the execution: until
// that begins.
const onTheSpot = 10 * time.Minute

// run runs the program and accounts for what it did.
func (run *execution) run(ctx context.Context) (*Outcome, error) {
	hooks := run.Hooks
	var early error
	hooks.Admit = func(ctx context.Context) (func(), error) {
		if early = run.begin(); early != nil {
			return nil, early
		}
		if admit := run.Hooks.Admit; admit != nil {
			return admit(ctx)
		}
		return nil, nil
	}
	res, err := run.Runner.Run(ctx, run.request, run.streams(), hooks)
	var used *ApprovalUsedError
	if errors.As(early, &used) {
		run.outcome.Violations = []Violation{usedViolation(used)}
		return run.refused(), nil
	}
	if refused := run.refusals(err); res == nil && len(refused) > 0 {
		run.outcome.Violations = refused
		return run.refused(), nil
	}
	if res == nil {
		return nil, err
	}
	run.account(ctx, res)
	return run.outcome, errors.Join(err, run.writeOutcome())
}

// begin is the last step before the program starts: from here on the approval is used,
// and the record says what is run.
func (run *execution) begin() error {
	if run.approval != nil {
		if err := run.Ledger.Use(*run.approval, run.outcome.ExecutionID, run.now()); err != nil {
			return err
		}
	}
	return run.writeContract()
}
