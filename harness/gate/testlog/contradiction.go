package testlog

import (
	"fmt"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/text"
)

// testsFailed is the exit code of pytest, unittest and go test that means that tests
// failed, and noTests what pytest and unittest exit with where there are none.
const (
	testsFailed    = 1
	pytestNoTests  = 5
	pytestLastCode = 5
)

// againstExit says how the exit code contradicts the report.
func againstExit(tool tool, r Report, code *int) string {
	bad := r.Counts.Failed + r.Counts.Errored
	switch {
	case code == nil:
	case *code == 0 && bad > 0:
		return fmt.Sprintf("the report has %s that failed, and the exit code is 0", text.Count(bad, "case"))
	case *code == 0 && r.Source == evidence.ReportPytest && tool == toolPytest && r.Counts.Total == 0:
		return "the report has no case, and the exit code is 0: pytest would have ended with 5"
	case *code == testsFailed && bad == 0 && r.Problem == "" && meansFailed(tool, r):
		return "the exit code says that tests failed, and the report has none that did"
	case *code == pytestNoTests && tool == toolPytest && r.Counts.Total > 0:
		return fmt.Sprintf("the exit code says that there were no tests, and the report has %s", text.Count(r.Counts.Total, "case"))
	}
	return ""
}

// meansFailed says that the tool ends with 1 only because of tests. The unexpected
// success of unittest is such a failure.
func meansFailed(tool tool, r Report) bool {
	return (tool == toolPytest || tool == toolGo || tool == toolUnittest) && r.Counts.XPassed == 0
}

// hidden says what a command of several tools tells of failures in another language than
// that of the report, and does not tell by its exit code: one that is lost in a script,
// or that somebody wants to be lost.
func (s *said) hidden(r Report, code *int) (problem string) {
	if code == nil || *code != 0 || r.Counts.Failed+r.Counts.Errored > 0 {
		return "" // it is told
	}
	var report evidence.Counts
	if s.report != nil {
		report = s.report.counts
	}
	tap := s.tap.counts
	if !s.tap.looksReal() && !s.tap.numbered {
		tap = evidence.Counts{}
	}
	pytest := s.pytest.counts
	if r.Source == evidence.ReportPytest {
		pytest = evidence.Counts{} // compared with the report
	}
	prove, _ := s.prove.summary()
	for _, language := range []struct {
		name   string
		counts evidence.Counts
		failed bool
	}{
		{"a JUnit XML report", report, false},
		{"events of go test", s.json.counts, false},
		{"TAP", tap, false},
		{"a summary of pytest", pytest, false},
		{"a summary of unittest", s.unittest.counts, s.unittest.failed},
		{"the lines of go test", s.goText.counts, s.goText.failed},
		{"a summary of prove", prove.Counts, s.prove.failing},
	} {
		if language.counts.Failed+language.counts.Errored > 0 || language.failed {
			problem = join(problem, "the output has "+language.name+" with tests that failed, and the exit code is 0")
		}
	}
	return problem
}

// againstPytest says how the summary that pytest printed contradicts its report.
//
// They do not count alike: a test that passed and whose teardown failed is one case of
// the report, an error, and "1 passed, 1 error" of the summary. A test that passed
// although a failure was expected is a pass of the report. Subtests stand in the summary
// alone, and so does that a failure was expected of a test that was not run.
func againstPytest(x *junitReader, p *pytestLines) string {
	switch {
	case p.runs == 0:
		return "the output has no summary of pytest that the report could be compared with (-qq and -p no:terminal leave it out)"
	case p.runs > 1:
		return fmt.Sprintf("the output has %d summaries of pytest, and there is one report: every run needs a gate of its own", p.runs)
	}
	c, s := x.counts, p.counts
	c.Skipped, c.XFailed = c.Skipped-x.notRun, c.XFailed+x.notRun
	passed, said := c.Passed+c.XPassed, s.Passed+s.XPassed
	failing := c.Failed != s.Failed || c.Errored != s.Errored
	if p.subtests {
		failing = (c.Failed+c.Errored > 0) != (s.Failed+s.Errored > 0)
	}
	if failing || said < passed || said > passed+c.Errored || c.Skipped != s.Skipped || c.XFailed != s.XFailed {
		return fmt.Sprintf("the report says %s, and the output says %s", numbers(c), numbers(s))
	}
	return ""
}

func numbers(c evidence.Counts) string {
	return fmt.Sprintf("%d passed, %d failed, %d errors, %d skipped, %d xfailed", c.Passed+c.XPassed, c.Failed, c.Errored, c.Skipped, c.XFailed)
}
