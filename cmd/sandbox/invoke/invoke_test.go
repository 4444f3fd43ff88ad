package invoke

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/harness/trial"
)

func TestInvokedCode(t *testing.T) {
	interrupted := cli.SignalError{Signal: syscall.SIGINT}
	for _, test := range []struct {
		res  invoke.Result
		err  error
		want int
	}{
		{invoke.Result{OK: true}, nil, 0},
		{invoke.Result{}, nil, cli.ExitProblem},
		{invoke.Result{Reason: invoke.ReasonMissingArtifact}, nil, cli.ExitProblem},
		{invoke.Result{Reason: invoke.ReasonNonzeroExit, ExitCode: new(7)}, nil, 7},
		{invoke.Result{Reason: invoke.ReasonLimit, ExitCode: new(137)}, nil, 137},
		{invoke.Result{Reason: invoke.ReasonLimit, ExitCode: new(0)}, nil, cli.ExitProblem},
		{invoke.Result{Reason: invoke.ReasonTimeout}, nil, cli.ExitTimeLimit},
		{invoke.Result{Reason: invoke.ReasonCannotExecute}, nil, cli.ExitNotExecutable},
		{invoke.Result{Reason: invoke.ReasonNotFound}, nil, cli.ExitNotFound},
		{invoke.Result{Reason: invoke.ReasonCanceled}, interrupted, cli.ExitInterrupted},
		{invoke.Result{Reason: invoke.ReasonUnverified}, interrupted, cli.ExitInterrupted},
		{invoke.Result{Reason: invoke.ReasonUnverified}, errors.New("gone"), cli.ExitSandbox},
		{invoke.Result{Reason: invoke.ReasonEngine}, errors.New("gone"), cli.ExitSandbox},
		{invoke.Result{Reason: invoke.ReasonNotWritten}, errors.New("gone"), cli.ExitSandbox},
	} {
		end, err := test.res.Trial(trial.Job{})
		require.NoError(t, err)
		require.Equal(t, test.want, cli.ExitCode(&end, test.err), "%v", test.res.Reason)
	}
}
