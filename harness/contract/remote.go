package contract

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
)

// Statuses of a remote call, beside timed_out, canceled and refused.
const (
	// StatusAnswered is a call that the server answered, with whatever.
	StatusAnswered = "answered"
	// StatusUnreachable is a call whose server could not be reached, or went away.
	StatusUnreachable = "unreachable"
	// StatusBlocked is a call that a rule of the network ended: a host or an address that the
	// contract does not permit.
	StatusBlocked = "blocked"
)

// planRemote checks the network of a remote call.
func (run *execution) planRemote() error {
	run.refuse(run.withoutProgram())
	asked := run.egress()
	if asked == nil {
		run.refuse([]Violation{{Code: "CX-04", Field: "sandbox.network.level", Value: string(policy.Offline),
			Rule: fmt.Sprintf("does not permit the call: adapter %s calls a server", run.Effective.Adapted.ID), Hint: hintRemote}})
		return nil
	}
	applied, err := run.Policy.ApplyEgress(asked)
	if refused := run.refusals(err); len(refused) > 0 {
		run.refuse(refused)
		return nil
	}
	if err != nil {
		return err
	}
	run.remoteEgress = *applied
	return nil
}

// withoutProgram are the parts of the contract that only a program can give.
func (run *execution) withoutProgram() (violations []Violation) {
	out := run.Effective.Contract.Outputs
	for _, part := range []struct {
		code, field string
		given       bool
	}{
		{"CX-05", "outputs.output_files", len(out.OutputFiles) > 0},
		{"CX-05", "outputs.artifacts", len(out.Artifacts) > 0},
		{"CX-05", "outputs.stderr", out.Stderr != Stream{}},
		{"CX-05", "outputs.exit_code", *out.ExitCode != 0},
		{"DT-01", "determinism.clock", !run.Effective.Clock.IsZero()},
	} {
		if part.given {
			violations = append(violations, Violation{Code: part.code, Field: part.field,
				Rule: fmt.Sprintf("is for programs: adapter %s calls a server", run.Effective.Adapted.ID)})
		}
	}
	return violations
}

// callRemote makes a remote call, and accounts for it.
func (run *execution) callRemote(ctx context.Context) error {
	e, o := run.Effective, &run.outcome
	if run.Remote != nil {
		done, err := run.Remote(e)
		if err != nil {
			run.refuse([]Violation{{Code: "CK-01", Field: "adapter_id", Value: quoted(e.Adapted.ID), Rule: err.Error()}})
			return nil
		}
		defer func() { done(time.Duration(o.DurationMS) * time.Millisecond) }()
	}
	if run.approval != nil {
		err := run.Approvals.Use(*run.approval, o.ExecutionID, time.Now())
		if used, ok := errors.AsType[*ApprovalUsedError](err); ok {
			run.refuse([]Violation{used.violation()})
			return nil
		}
		if err != nil {
			return err
		}
	}
	limited, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	began := time.Now()
	answer := e.Adapted.Remote(limited, e, run.remoteEgress)
	if len(answer.Refused) > 0 {
		run.refuse(answer.Refused)
		return nil
	}
	o.Started, o.Approval, o.DurationMS = true, run.approval, time.Since(began).Milliseconds()
	o.Status = answer.Status
	switch {
	case ctx.Err() != nil && answer.Err != nil:
		o.Status, answer.Err = result.StatusCanceled.String(), context.Cause(ctx)
	case limited.Err() != nil && answer.Err != nil:
		o.Status, o.TimedOut = result.StatusTimedOut.String(), true
		answer.Err = fmt.Errorf("Execution timed out after %v", e.Timeout) //nolint:staticcheck // the sentence of a contract that timed out
	}
	run.conclusive = o.Status == StatusAnswered || o.TimedOut || o.Status == StatusBlocked
	body := stream{name: "stdout", text: answer.Text, bytes: answer.TextBytes, cut: answer.TextBytes > int64(len(answer.Text))}
	if !body.cut {
		body.raw = []byte(answer.Text)
	}
	o.Stdout, o.Truncated = body.captured(int64(e.Stdout))
	o.StdoutBytes = answer.TextBytes
	if d := body.compare(e.Contract.Outputs.Stdout); d != nil {
		o.Differences = append(o.Differences, *d)
	}
	o.Success = answer.Err == nil && len(o.failures()) == 0
	if !o.Success && answer.Err == nil {
		o.Error = o.failures()[0].String()
	}
	run.answered(answer)
	o.Call.Attempts = append(slices.Clone(run.before), run.attempt())
	run.checkRemote()
	o.Checklist = run.checklist()
	run.ended = true
	run.finish()
	return nil
}

// checkRemote sets the points of a remote call.
func (run *execution) checkRemote() {
	o, e := run.outcome, run.Effective
	run.checkBefore()
	run.check("evidence_capture_started", true, "the outcome is the evidence: no program ran")
	run.check("timeout_enforced", true, "%d of %d ms", o.DurationMS, e.Timeout.Milliseconds())
	run.check("streams_captured", !o.Truncated, "%d of %d bytes", len(o.Stdout), o.StdoutBytes)
	run.check("errors_logged", true, "%s", strings.TrimSpace(o.Status+" "+o.Error))
	if o.Call.Code != nil {
		run.check("exit_code_interpreted", true, "status %d", *o.Call.Code)
	}
	run.check("outputs_validated", o.Success, "%s", o.Status)
	run.check("evidence_captured", true, "in the outcome")
	run.check("cleanup_performed", true, "nothing is left")
}
