package result_test

import (
	"fmt"
	"io"
	"strings"

	"github.com/evalbox/evalbox/result"
)

// The last score line decides, also when a longer text was cut for the reader.
func ExampleScoreScanner() {
	var scores result.ScoreScanner
	text := result.NewHeadTail(64)
	stdout := "Final Validation Performance: 0.5\n" + strings.Repeat("epoch\n", 100) + "Final Validation Performance: 0.75\n"
	_, _ = io.WriteString(io.MultiWriter(&scores, text), stdout) // neither writer fails
	score, ok := scores.Score()
	fmt.Println(score, ok, text.Truncated())
	// Output: 0.75 true true
}

func ExampleBuildEvaluation() {
	e := result.BuildEvaluation(result.ExecutionRawResult{
		Stdout:   "Final Validation Performance: 0.75\n",
		Stderr:   "Traceback (most recent call last):\n  File \"train.py\", line 1, in <module>\nValueError: no data\n",
		ExitCode: 1,
	})
	fmt.Println(*e.Score, e.IsError, e.ErrorReason)
	fmt.Println(*e.ErrorTraceback)
	// Output:
	// 0.75 true exit_code
	// Traceback (most recent call last):
	//   File "train.py", line 1, in <module>
	// ValueError: no data
}

func ExampleExplainExit() {
	fmt.Println(result.ExplainExit(137, result.ExitContext{OOM: true}).Text)
	fmt.Println(result.ExplainExit(139, result.ExitContext{}).Text)
	// Output:
	// The kernel killed the program at its memory limit.
	// The program was ended by signal 11 (SIGSEGV), or exited with 139 itself.
}
