package render

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/record"
)

func TestSummary(t *testing.T) {
	score := 0.9722
	res := &result.Result{
		ID: "r1", Status: result.StatusExited, DurationSeconds: 1.42, Score: &score,
		Resources: result.Resources{PeakMemoryBytes: 150 << 20},
		Outputs:   make([]result.Output, 2),
	}
	require.Equal(t, "exited 0 · score 0.9722 · 1.42s · peak 150 MiB · 2 outputs in /out · id r1", summary(res, "/out", false))
	require.Contains(t, summary(res, "/out", true), "\x1b[32mexited 0\x1b[0m")
	require.Contains(t, summary(res, "/\x1b[2J", false), "2 outputs in /^[[2J")

	bare := &result.Result{ID: "r2", Status: result.StatusExited, ExitCode: 3, DurationSeconds: 75.4}
	require.Equal(t, "exited 3 · 1m15s · id r2", summary(bare, "/out", false))
	bare.Outputs = make([]result.Output, 1)
	bare.OutputsSkipped = make([]result.SkippedOutput, 3)
	require.Contains(t, summary(bare, "", false), "· 1 output (3 left out) ·")
	bare.Outputs = nil
	require.Contains(t, summary(bare, "/out", false), "· (3 left out) ·")
}

func TestStatusText(t *testing.T) {
	enforced := result.Enforced{TimeoutSeconds: 3600, MemoryBytes: 2 << 30, DiskBytes: 1 << 20, OutputLimitBytes: 1 << 10}
	tests := map[string]result.Result{
		"exited 0":                           {Status: result.StatusExited},
		"exited 0 · traceback in stderr":     {Status: result.StatusExited, IsError: true},
		"exit code 139 (SIGSEGV)":            {Status: result.StatusSignaled, ExitCode: 139, Signal: 11},
		"stopped by somebody else (SIGTERM)": {Status: result.StatusSignaled, ExitCode: 143, Signal: 15, Fault: result.FaultOperator},
		"timed out after 1h0m0s":             {Status: result.StatusTimedOut},
		"out of memory (limit 2GiB)":         {Status: result.StatusOutOfMemory},
		"stopped for what ./final holds":     {Status: result.StatusDiskLimit},
		"stopped because the disk is full": {Status: result.StatusDiskLimit,
			Explanation: "The program was stopped because the disk is full. It did not end on SIGTERM and was killed."},
		"printed too much (limit 1KiB)": {Status: result.StatusOutputLimit},
		"canceled":                      {Status: result.StatusCanceled},
		"did not start":                 {Status: result.StatusStartFailed, ExitCode: -1},
		"did not start: the command is not in the image": {Status: result.StatusStartFailed, ExitCode: 127},
		"did not start: the command cannot be executed":  {Status: result.StatusStartFailed, ExitCode: 126},
		"the engine was lost":                            {Status: result.StatusEngineLost},
	}
	seen := map[result.Status]bool{}
	for want, res := range tests {
		res.Enforced = enforced
		require.Equal(t, want, status(&res, false))
		seen[res.Status] = true
	}
	for _, status := range result.Statuses() {
		require.True(t, seen[status], status.String())
	}
}

func TestDescribe(t *testing.T) {
	traceback := "Traceback (most recent call last):\n  File \"a.py\"\nValueError: \x1b[2J"
	kept := record.Record{
		ID: "r1", Dir: "/state/runs/r1", State: record.Finished, Created: time.Unix(0, 0),
		Result: &result.Result{
			ID: "r1", Status: result.StatusExited, Fault: result.FaultProgram, ExitCode: 1, ErrorTraceback: &traceback,
			Outputs:        []result.Output{{Path: "a.txt", SizeBytes: 3, SHA256: strings.Repeat("ab", 32)}},
			OutputsSkipped: []result.SkippedOutput{{Path: "link", Kind: "symlink", Reason: "is not a regular file"}},
			Warnings:       []string{"be careful"},
		},
	}
	text := Record(kept, nil, "/out", "")
	for _, want := range []string{"exited 1", "fault      program\n", "1 output in /out", "a.txt  3 B  sha256:abababababab\n", "left out   link (symlink)", "be careful", "ValueError"} {
		require.Contains(t, text, want)
	}
	kept.Result = nil
	kept.State = record.Lost
	require.Contains(t, Record(kept, nil, "", ""), "status     lost")
}
