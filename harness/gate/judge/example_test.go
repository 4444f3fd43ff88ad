package judge_test

import (
	"fmt"

	"github.com/evalbox/evalbox/harness/gate/judge"
)

// Evidence of nothing does not pass.
func ExampleJudge() {
	verdict := judge.Judge(judge.Input{})
	fmt.Println(verdict.Status)
	// Output: BLOCKED
}
