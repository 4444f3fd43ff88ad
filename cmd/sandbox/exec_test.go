package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/schematest"
)

// Whoever waits for a contract on stdin is interrupted at once.
func TestInterruptedStdin(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	for _, args := range [][]string{
		{"exec", "-f", "-"}, {"contract", "validate", "-"}, {"contract", "approve", "-", "--by", "Ada", "--reason", "r"},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		never, writer := io.Pipe()
		t.Cleanup(func() { _ = writer.Close() })
		cancel(cli.SignalError{Signal: os.Interrupt})
		var out, errs bytes.Buffer
		require.Equal(t, cli.ExitInterrupted, Run(ctx, args, cli.Streams{In: never, Out: &out, Err: &errs}), "%q", args)
		require.Equal(t, "sandbox: interrupted (Ctrl-C)\n", errs.String())
		require.Empty(t, out.String())
	}
}

// With --json there is an outcome also when there is no engine.
func TestOutcomeWithoutEngine(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	const text = "tool_id: TL-010\ninputs: {command: python3}\n"
	for _, args := range [][]string{{}, {"--dry-run"}} {
		var out, errs bytes.Buffer
		args = append([]string{"exec", "-H", "unix:///no/such.sock", "-f", "-", "--root", t.TempDir(), "--json"}, args...)
		require.Equal(t, cli.ExitSandbox, Run(t.Context(), args, cli.Streams{In: strings.NewReader(text), Out: &out, Err: &errs}))
		require.Contains(t, errs.String(), "no/such.sock")
		var o contract.Outcome
		require.NoError(t, json.Unmarshal(out.Bytes(), &o))
		schematest.Valid(t, schematest.Load(t, contract.OutcomeSchemaJSON), out.Bytes())
		require.Equal(t, contract.StatusFailed, o.Status)
		require.False(t, o.Started)
		require.Nil(t, o.ExitCode)
		require.Contains(t, o.Error, "no/such.sock")
	}
}
