package testreport_test

import (
	"fmt"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/testreport"
)

func ExampleParse() {
	junit := `<testsuite tests="2" failures="1"><testcase classname="a" name="one"/><testcase classname="a" name="two"><failure message="no"/></testcase></testsuite>`
	report := testreport.Parse(evidence.Gate{}, testreport.Input{Report: strings.NewReader(junit)})
	fmt.Println(report.Counts.Passed, report.Counts.Failed, report.Problem)
	// Output: 1 1
}
