package result

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExplainExit(t *testing.T) {
	known, lateBy := ExitContext{Known: true}, func(n int) ExitContext { return ExitContext{Known: true, TimedOut: true, Signal: n} }
	canceledBy := func(n int) ExitContext { return ExitContext{Known: true, Canceled: true, Signal: n} }
	nothing, late, oom := ExitContext{}, ExitContext{TimedOut: true}, ExitContext{OOM: true}
	for _, c := range []struct {
		code            int
		ctx             ExitContext
		meaning, action string
		signal          int
		text            string
	}{
		{0, nothing, "success", "continue", 0, "The program exited with 0."},
		{0, oom, "success", "continue", 0, "The program exited with 0. The kernel killed a process of the run for memory."},
		{1, nothing, "tool_error", "log_and_handle", 0, "The program exited with 1."},
		{1, oom, "tool_error", "log_and_handle", 0, "The program exited with 1. The kernel killed a process of the run for memory."},
		{124, nothing, "tool_error", "log_and_handle", 0, "The program exited with 124."},
		{125, nothing, "tool_error", "log_and_handle", 0, "The program exited with 125."},
		{126, nothing, "permission_denied", "escalate", 0, "The command could not be executed, or the program exited with 126 itself."},
		{127, nothing, "command_not_found", "check_allowlist", 0, "The command was not found, or the program exited with 127 itself."},
		{128, nothing, "signal", "log_signal_number", 0, "The program exited with 128 itself: the code is in the range for signals, but stands for none."},
		{129, nothing, "signal", "log_signal_number", 1, "The program was ended by signal 1 (SIGHUP), or exited with 129 itself."},
		{139, nothing, "signal", "log_signal_number", 11, "The program was ended by signal 11 (SIGSEGV), or exited with 139 itself."},
		{137, nothing, "signal", "log_signal_number", 9, "The program was ended by signal 9 (SIGKILL), or exited with 137 itself."},
		{137, oom, "out_of_memory", "more_memory_or_fail", 9, "The kernel killed the program at its memory limit."},
		{137, late, "timeout_sigterm", "extend_timeout_or_fail", 9, "The time limit ended the program with signal 9 (SIGKILL)."},
		{137, ExitContext{TimedOut: true, OOM: true}, "timeout_sigterm", "extend_timeout_or_fail", 9, "The time limit ended the program with signal 9 (SIGKILL)."},
		{139, oom, "signal", "log_signal_number", 11, "The program was ended by signal 11 (SIGSEGV), or exited with 139 itself. The kernel killed a process of the run for memory."},
		{143, nothing, "timeout_sigterm", "extend_timeout_or_fail", 15, "The program was ended by signal 15 (SIGTERM), or exited with 143 itself."},
		{143, late, "timeout_sigterm", "extend_timeout_or_fail", 15, "The time limit ended the program with signal 15 (SIGTERM)."},
		{143, known, "signal", "log_signal_number", 15, "The program was ended by signal 15 (SIGTERM), or exited with 143 itself."},
		{143, lateBy(15), "timeout_sigterm", "extend_timeout_or_fail", 15, "The time limit ended the program with signal 15 (SIGTERM)."},
		{143, lateBy(9), "timeout_sigterm", "extend_timeout_or_fail", 9, "The time limit ended the program with signal 9 (SIGKILL)."},
		{143, lateBy(0), "timeout_sigterm", "extend_timeout_or_fail", 0, "The time limit ended the run; the program ended by itself when it was asked to."},
		{-1, lateBy(9), "timeout_sigterm", "extend_timeout_or_fail", 9, "The time limit ended the program with signal 9 (SIGKILL)."},
		{-1, lateBy(0), "timeout", "extend_timeout_or_fail", 0, "The time limit ended the run."},
		{0, lateBy(0), "timeout", "extend_timeout_or_fail", 0, "The time limit ended the run; the exit code is 0."},
		{137, ExitContext{Known: true, OOM: true}, "out_of_memory", "more_memory_or_fail", 9, "The kernel killed the program at its memory limit."},
		{143, canceledBy(15), "canceled", "none", 15, "The caller ended the program with signal 15 (SIGTERM)."},
		{143, canceledBy(0), "canceled", "none", 0, "The caller ended the run."},
		{137, canceledBy(9), "canceled", "none", 9, "The caller ended the program with signal 9 (SIGKILL)."},
		{0, canceledBy(0), "canceled", "none", 0, "The caller ended the run; the exit code is 0."},
		{-1, canceledBy(0), "canceled", "none", 0, "The caller ended the run."},
		{-1, ExitContext{Canceled: true}, "canceled", "none", 0, "The caller ended the run."},
		{143, ExitContext{Canceled: true}, "canceled", "none", 15, "The caller ended the program with signal 15 (SIGTERM)."},
		{162, nothing, "signal", "log_signal_number", 34, "The program was ended by signal 34, or exited with 162 itself."},
		{192, nothing, "signal", "log_signal_number", 64, "The program was ended by signal 64, or exited with 192 itself."},
		{255, nothing, "signal", "log_signal_number", 0, "The program exited with 255 itself: the code is in the range for signals, but stands for none."},
		{256, nothing, "tool_error", "log_and_handle", 0, "The program exited with 256."},
		{265, nothing, "tool_error", "log_and_handle", 0, "The program exited with 265."},
		{-1, late, "timeout", "extend_timeout_or_fail", 0, "The time limit ended the run."},
		{-1, nothing, "signal", "log_signal_number", 1, "The program has no exit code, or was ended by signal 1 (SIGHUP)."},
		{-9, nothing, "signal", "log_signal_number", 9, "The program was ended by signal 9 (SIGKILL)."},
		{-9, oom, "out_of_memory", "more_memory_or_fail", 9, "The kernel killed the program at its memory limit."},
		{-15, nothing, "signal", "log_signal_number", 15, "The program was ended by signal 15 (SIGTERM)."},
		{-15, late, "timeout_sigterm", "extend_timeout_or_fail", 15, "The time limit ended the program with signal 15 (SIGTERM)."},
		{-100, nothing, "tool_error", "log_and_handle", 0, "The program exited with -100."},
		{0, late, "timeout", "extend_timeout_or_fail", 0, "The time limit ended the run; the exit code is 0."},
		{3, late, "timeout", "extend_timeout_or_fail", 0, "The time limit ended the run; the exit code is 3."},
	} {
		got := ExplainExit(c.code, c.ctx)
		require.Equal(t, ExitMeaning{c.meaning, c.action, c.signal, SignalName(c.signal), c.text}, got, "%d %+v", c.code, c.ctx)
	}
}

// Whatever the number, there is an answer, and a signal is one of Linux.
func TestExplainExitIsTotal(t *testing.T) {
	codes := []int{math.MinInt, math.MinInt + 1, math.MaxInt}
	for code := -300; code <= 300; code++ {
		codes = append(codes, code)
	}
	for _, code := range codes {
		for _, ctx := range []ExitContext{{}, {TimedOut: true}, {OOM: true}, {TimedOut: true, OOM: true},
			{Known: true}, {Known: true, TimedOut: true, Signal: -3}, {Canceled: true}, {Known: true, Canceled: true, Signal: 9}} {
			m := ExplainExit(code, ctx)
			require.NotEmpty(t, m.Meaning)
			require.NotEmpty(t, m.Action)
			require.NotEmpty(t, m.Text)
			require.True(t, m.Signal >= 0 && m.Signal <= 64, "%d", code)
		}
	}
}

func TestExitMeaningWireNames(t *testing.T) {
	text, err := json.Marshal(ExitMeaning{"m", "a", 9, "SIGKILL", "t"})
	require.NoError(t, err)
	require.JSONEq(t, `{"meaning":"m","action":"a","signal":9,"signal_name":"SIGKILL","text":"t"}`, string(text))
}

func TestSignalName(t *testing.T) {
	for n, want := range map[int]string{
		-1: "", 0: "", 1: "SIGHUP", 9: "SIGKILL", 10: "SIGUSR1", 15: "SIGTERM",
		17: "SIGCHLD", 31: "SIGSYS", 32: "", 64: "", math.MaxInt: "",
	} {
		require.Equal(t, want, SignalName(n), "%d", n)
	}
	for n := 1; n <= 31; n++ {
		require.NotEmpty(t, SignalName(n), "%d", n)
	}
}
