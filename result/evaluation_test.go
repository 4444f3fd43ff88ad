package result

import (
	"encoding/json"
	"fmt"
	"testing"

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
