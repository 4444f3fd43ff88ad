package result

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestBuildEvaluation(t *testing.T) {
	score, tb := 0.5, block("", "KeyError: 'a'")
	good := label + " 0.5\n"
	none := []string{}
	for _, c := range []struct {
		name string
		raw  ExecutionRawResult
		want EvaluationResult // of its own fields; the copied ones follow from raw
	}{
		{"good", ExecutionRawResult{Stdout: good, Stderr: "note\n", DurationSeconds: 1.5},
			EvaluationResult{Score: &score, Warnings: none}},
		{"no score", ExecutionRawResult{Stdout: "done\n"},
			EvaluationResult{Warnings: none}},
		{"failed", ExecutionRawResult{Stderr: tb + "\n", ExitCode: 1},
			EvaluationResult{IsError: true, ErrorReason: ErrorReasonExitCode, ErrorTraceback: &tb, Warnings: none}},
		{"failed after the score", ExecutionRawResult{Stdout: good, Stderr: tb + "\n", ExitCode: 1},
			EvaluationResult{Score: &score, IsError: true, ErrorReason: ErrorReasonExitCode, ErrorTraceback: &tb, Warnings: none}},
		{"handled and logged", ExecutionRawResult{Stdout: good, Stderr: tb + "\nwent on\n"},
			EvaluationResult{Score: &score, IsError: true, ErrorReason: ErrorReasonTraceback, ErrorTraceback: &tb, Warnings: none}},
		{"failed without traceback", ExecutionRawResult{Stderr: "SyntaxError: bad\n\n", ExitCode: 1},
			EvaluationResult{IsError: true, ErrorReason: ErrorReasonExitCode, ErrorSummary: "SyntaxError: bad", Warnings: none}},
		{"timed out", ExecutionRawResult{Stdout: good, Stderr: "step 9\n", ExitCode: -1, TimedOut: true},
			EvaluationResult{Score: &score, IsError: true, ErrorReason: ErrorReasonTimedOut, ErrorSummary: "step 9", Warnings: none}},
		{"infinite score", ExecutionRawResult{Stdout: label + " 1e999\n"},
			EvaluationResult{Warnings: []string{`the score "1e999" is not finite`}}},
		{"not a number", ExecutionRawResult{Stdout: good + label + " nan\n"},
			EvaluationResult{Score: &score, Warnings: []string{"the last score line has no number; an earlier score line was used"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.want.Stdout, c.want.Stderr = c.raw.Stdout, c.raw.Stderr
			c.want.ExitCode, c.want.DurationSeconds = c.raw.ExitCode, c.raw.DurationSeconds
			got := BuildEvaluation(c.raw)
			require.Equal(t, c.want, got)
			_, err := json.Marshal(got)
			require.NoError(t, err)
		})
	}
}

func TestEvaluationWireNames(t *testing.T) {
	text, err := json.Marshal(BuildEvaluation(ExecutionRawResult{}))
	require.NoError(t, err)
	require.JSONEq(t, `{"score":null,"stdout":"","stderr":"","exit_code":0,"duration_seconds":0,
		"is_error":false,"error_traceback":null,"error_reason":"","error_summary":"","warnings":[]}`, string(text))
}

func ExampleBuildEvaluation() {
	e := BuildEvaluation(ExecutionRawResult{
		Stdout:   "Final Validation Performance: 0.84\n",
		Stderr:   "Traceback (most recent call last):\n  File \"solution.py\", line 9, in <module>\n    save()\nOSError: disk full\n",
		ExitCode: 1,
	})
	fmt.Println(*e.Score, e.IsError, e.ErrorReason)
	fmt.Println(*e.ErrorTraceback)
	// Output:
	// 0.84 true exit_code
	// Traceback (most recent call last):
	//   File "solution.py", line 9, in <module>
	//     save()
	// OSError: disk full
}

func TestDetectError(t *testing.T) {
	for _, c := range []struct {
		name string
		raw  ExecutionRawResult
		want bool
	}{
		{"clean", ExecutionRawResult{}, false},
		{"noise on stderr", ExecutionRawResult{Stderr: "Error: none\n"}, false},
		{"exit code", ExecutionRawResult{ExitCode: 2}, true},
		{"negative exit code", ExecutionRawResult{ExitCode: -11}, true},
		{"time limit", ExecutionRawResult{TimedOut: true}, true},
		{"marker", ExecutionRawResult{Stderr: "x " + marker + " y"}, true},
		{"marker on stdout", ExecutionRawResult{Stdout: marker}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, DetectError(c.raw))
		})
	}
}

func TestRawResultWireNames(t *testing.T) {
	text, err := json.Marshal(ExecutionRawResult{Stdout: "o", Stderr: "e", ExitCode: -1, DurationSeconds: 2.5, TimedOut: true})
	require.NoError(t, err)
	require.JSONEq(t, `{"stdout":"o","stderr":"e","exit_code":-1,"duration_seconds":2.5,"timed_out":true}`, string(text))
}

// errorReasons are all reasons.
var errorReasons = []ErrorReason{ErrorReasonNone, ErrorReasonExitCode, ErrorReasonTimedOut, ErrorReasonTraceback}

func TestReasonFor(t *testing.T) {
	for _, c := range []struct {
		code     int
		timedOut bool
		marker   bool
		want     ErrorReason
	}{
		{0, false, false, ErrorReasonNone},
		{0, false, true, ErrorReasonTraceback},
		{3, false, false, ErrorReasonExitCode},
		{3, false, true, ErrorReasonExitCode},
		{-1, true, false, ErrorReasonTimedOut},
		{-1, true, true, ErrorReasonTimedOut},
		{0, true, false, ErrorReasonTimedOut},
	} {
		require.Equal(t, c.want, ReasonFor(c.code, c.timedOut, c.marker), "%+v", c)
		require.Contains(t, errorReasons, c.want)
	}
}

func TestErrorSummary(t *testing.T) {
	for _, c := range []struct{ name, stderr, want string }{
		{"empty", "", ""},
		{"blank", "\n \n\t\r\n", ""},
		{"one line", "Killed", "Killed"},
		{"syntax error", "  File \"a.py\", line 1\n    x = = 1\n        ^\nSyntaxError: invalid syntax\n",
			"  File \"a.py\", line 1\n    x = = 1\n        ^\nSyntaxError: invalid syntax"},
		{"blank lines between", "a\n\n  \nb\n\n", "a\nb"},
		{"CR LF", "a\r\nb\r\n", "a\nb"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, ErrorSummary(c.stderr))
		})
	}
}

func TestErrorSummaryBounds(t *testing.T) {
	got := ErrorSummary(strings.Repeat("x\n", 100) + "last\n")
	require.Equal(t, strings.Repeat("x\n", 19)+"last", got)

	got = ErrorSummary(strings.Repeat("€", 5000) + "\nlast\n")
	require.LessOrEqual(t, len(got), 4096)
	require.Greater(t, len(got), 4000)
	require.True(t, utf8.ValidString(got))
	require.True(t, strings.HasSuffix(got, "€\nlast"))

	got = ErrorSummary("first\n" + strings.Repeat("y", 4096))
	require.Equal(t, strings.Repeat("y", 4096), got)

	require.Equal(t, "a", ErrorSummary("a"+strings.Repeat("\n", 8<<20)))
}
