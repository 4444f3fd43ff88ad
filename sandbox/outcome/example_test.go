package outcome_test

import (
	"fmt"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/outcome"
)

func ExampleDecide() {
	for _, evidence := range []outcome.Evidence{
		{Accepted: true, End: engine.End{Reported: true, ExitCode: 137}},
		{Accepted: true, End: engine.End{Reported: true, Signal: 9, OOMKilled: true}},
		{Accepted: true, End: engine.End{Reported: true, Signal: 15, Cause: engine.ByDeadline}},
		{Accepted: true, Lost: outcome.ErrNoExit},
	} {
		o := outcome.Decide(evidence)
		fmt.Println(o.Status, o.Fault, "-", o.Explanation)
	}
	// Output:
	// exited program - The program exited with 137.
	// out_of_memory program - The kernel killed the program at its memory limit.
	// timed_out program - The program was stopped at its time limit.
	// engine_lost environment - The engine was lost before it reported how the program ended.
}
