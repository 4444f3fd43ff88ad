package report_test

import (
	"fmt"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/report"
)

func ExampleCountsText() {
	fmt.Println(report.CountsText(evidence.Counts{Passed: 3, Failed: 1}))
	// Output: 1 failed, 3 passed
}
