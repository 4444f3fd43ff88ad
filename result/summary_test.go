package result

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSummary(t *testing.T) {
	score := 0.9722
	res := &Result{
		ID: "r1", Status: StatusExited, DurationSeconds: 1.42, Score: &score,
		Resources: Resources{PeakMemoryBytes: 150 << 20},
		Outputs:   make([]Output, 2),
	}
	require.Equal(t, "exited 0 · score 0.9722 · 1.42s · peak 150 MiB · 2 outputs in /out · id r1", res.Summary("/out", nil))
	require.Equal(t, "exited 0 · score 0.9722 · 1.42s · peak 150 MiB · 2 outputs · id r1", fmt.Sprint(res))

	bare := &Result{ID: "r2", Status: StatusExited, ExitCode: 3, DurationSeconds: 75.4}
	require.Equal(t, "exited 3 · 1m15s · id r2", bare.Summary("/out", nil))
	bare.Outputs = make([]Output, 1)
	bare.OutputsSkipped, bare.OutputsLeftOut = make([]SkippedOutput, 1), 20_003
	require.Contains(t, bare.String(), "· 1 output (20003 left out) ·")
	bare.Outputs = nil
	require.Contains(t, bare.Summary("/out", nil), "· (20003 left out) ·")
}

func TestEnding(t *testing.T) {
	enforced := Enforced{TimeoutSeconds: 3600, MemoryBytes: 2 << 30, DiskBytes: 1 << 20, OutputLimitBytes: 1 << 10}
	tests := map[string]Result{
		"out of memory (limit 1500MiB)":      {Status: StatusOutOfMemory, Enforced: Enforced{MemoryBytes: 1500 << 20}},
		"exited 0":                           {Status: StatusExited},
		"exited 0 · traceback in stderr":     {Status: StatusExited, IsError: true},
		"exit code 139 (SIGSEGV)":            {Status: StatusSignaled, ExitCode: 139, Signal: 11},
		"stopped by somebody else (SIGTERM)": {Status: StatusSignaled, ExitCode: 143, Signal: 15, Fault: FaultOperator},
		"timed out after 1h0m0s":             {Status: StatusTimedOut},
		"out of memory (limit 2GiB)":         {Status: StatusOutOfMemory},
		"stopped for what ./final holds":     {Status: StatusDiskLimit},
		"stopped because the disk is full": {Status: StatusDiskLimit,
			Explanation: "The program was stopped because the disk is full. It did not end on SIGTERM and was killed."},
		"printed too much (limit 1KiB)": {Status: StatusOutputLimit},
		"canceled":                      {Status: StatusCanceled},
		"did not start":                 {Status: StatusStartFailed, ExitCode: -1},
		"did not start: the command is not in the image": {Status: StatusStartFailed, ExitCode: 127},
		"did not start: the command cannot be executed":  {Status: StatusStartFailed, ExitCode: 126},
		"the engine was lost":                            {Status: StatusEngineLost},
		"stopped by the rule metric.loss is nan": {Status: StatusStoppedByRule,
			StoppedBy: &StoppedBy{Rule: "metric.loss is nan"}},
	}
	seen := map[Status]bool{}
	for want, res := range tests {
		if res.Enforced.MemoryBytes == 0 {
			res.Enforced = enforced
		}
		require.Equal(t, want, res.Ending())
		seen[res.Status] = true
	}
	for _, status := range Statuses() {
		require.True(t, seen[status], status.String())
	}
}

func TestOK(t *testing.T) {
	require.True(t, Result{Status: StatusExited}.OK())
	require.False(t, Result{}.OK())
	require.False(t, Result{Status: StatusExited, ExitCode: 1}.OK())
	require.False(t, Result{Status: StatusExited, IsError: true}.OK(), "a traceback in stderr")
	require.False(t, Result{Status: StatusCanceled}.OK())
}

func TestSizes(t *testing.T) {
	for bytes, want := range map[int64]string{0: "0 B", 1023: "1023 B", 10328 << 10: "10.09 MiB", 143 << 20: "143 MiB", 3 << 30: "3 GiB"} {
		require.Equal(t, want, size(bytes))
	}
	for n, want := range map[float64]string{0: "0.00s", 1.234: "1.23s", 12.34: "12.3s", 61: "1m1s", 7200: "2h0m0s"} {
		require.Equal(t, want, seconds(n))
	}
	for bytes, want := range map[int64]string{0: "0B", 1000: "1000B", 1 << 10: "1KiB", 1500 << 20: "1500MiB", 2 << 40: "2048GiB"} {
		require.Equal(t, want, limit(bytes))
	}
}
