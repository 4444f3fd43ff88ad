package render

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/record"
)

// TestLimitOfProcesses: a limit that was not enforced is not shown as one of 0.
func TestLimitOfProcesses(t *testing.T) {
	require.Contains(t, enforcedText(result.Enforced{PIDs: 1024}), " 1024 processes, network")
	require.Contains(t, enforcedText(result.Enforced{Unenforced: []string{"swap", "pids"}}), " any number of processes, network")
}

func TestRun(t *testing.T) {
	res := &result.Result{ID: "r1", Status: result.StatusExited, Outputs: make([]result.Output, 2), Network: &result.Network{Requests: 1, Refused: 1}}
	run := func(color Palette) string { return Run(res, sandbox.Request{}, "/\x1b[2J", color)[0] }
	require.Equal(t, "exited 0 · 0.00s · 1 request, 1 refused · 2 outputs in /^[[2J · id r1", run(false))
	require.Contains(t, run(true), "\x1b[32mexited 0\x1b[0m")
	require.Contains(t, run(true), "\x1b[31m, 1 refused\x1b[0m")
	res.Status = result.StatusCanceled
	require.Contains(t, run(true), "\x1b[33mcanceled\x1b[0m")
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
	text := Record(kept, nil, Final{Dir: "/out"}, "")
	for _, want := range []string{"exited 1", "fault      program\n", "1 output in /out", "a.txt  3 B  sha256:abababababab\n", "left out   link (symlink)", "be careful", "ValueError"} {
		require.Contains(t, text, want)
	}
	for want, final := range map[string]Final{
		"outputs    1 output; run r2 has replaced them in /^[[2J\n":     {Dir: "/\x1b[2J", Replaced: "r2"},
		"outputs    1 output; not in /out any more, or changed there\n": {Dir: "/out", Lost: map[string]string{"a.txt": "gone"}},
		"a.txt  3 B  sha256:abababababab  not there any more\n":         {Dir: "/out", Lost: map[string]string{"a.txt": "not there any more"}},
	} {
		require.Contains(t, Record(kept, nil, final, ""), want)
	}
	kept.Result.Outputs = append(kept.Result.Outputs, result.Output{Path: "b.txt"})
	require.Contains(t, Record(kept, nil, Final{Dir: "/out", Lost: map[string]string{"b.txt": "gone"}}, ""), "outputs    2 outputs in /out; 1 not there any more, or changed there\n")
	kept.Result = nil
	kept.State = record.Lost
	require.Contains(t, Record(kept, nil, Final{}, ""), "status     lost")
}
