package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/evalbox/evalbox/harness/invoke"
)

// Runner calls a tool; *invoke.Runner is one.
type Runner interface {
	Run(ctx context.Context, inv invoke.Invocation) (invoke.RunResult, error)
}

// Tool is the [Invoke] that calls a runner, and checks what the tool left as verify
// demands. Artifacts that are wrong make the run fail.
func Tool(runner Runner, verify invoke.VerifyOptions) Invoke {
	return func(ctx context.Context, job Job) (Outcome, error) {
		res, err := runner.Run(ctx, invoke.Invocation{Config: job.Config, OutputDir: job.OutputDir, Adapter: job.Adapter, Seed: &job.Seed})
		outcome := Outcome{Stdout: res.Stdout, Stderr: res.Stderr, ExitCode: res.ExitCode, TimedOut: res.TimedOut}
		if err != nil {
			failed := new(invoke.InvocationError)
			if !errors.As(err, &failed) || notTheTools(failed.Reason) {
				return outcome, err
			}
			outcome.Failure = cmp.Or(err.Error(), string(failed.Reason)) // never empty: that is a success
			return outcome, nil
		}
		report, err := res.Verify(ctx, verify)
		if err != nil {
			return outcome, err
		}
		found := verified(report)
		outcome.Artifacts, outcome.Failure = found.Artifacts, found.Failure
		return outcome, nil
	}
}

// Artifacts is the [Verify] of what verify demands.
func Artifacts(verify invoke.VerifyOptions) Verify {
	return func(ctx context.Context, outputDir string) (Verified, error) {
		report, err := invoke.Verify(ctx, outputDir, verify)
		return verified(report), err
	}
}

func verified(report invoke.Report) Verified {
	found := Verified{Artifacts: map[string]string{}}
	for _, artifact := range report.Artifacts {
		found.Artifacts[artifact.Path] = artifact.SHA256
	}
	if len(report.Problems) == 0 {
		return found
	}
	found.Failure = report.Problems[0].Error()
	if more := len(report.Problems) + report.ProblemsDropped - 1; more > 0 {
		found.Failure += fmt.Sprintf(" (and %d more)", more)
	}
	return found
}

// notTheTools says that a call ended for a reason that is not the tool's.
func notTheTools(reason invoke.Reason) bool {
	switch reason {
	case invoke.ReasonCanceled, invoke.ReasonEngine, invoke.ReasonNotWritten:
		return true
	default:
		return false
	}
}
