package testlog

import (
	"io"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/internal/logline"
)

// maxLine bounds a line of output that is looked at; of a longer one only the beginning is.
const maxLine = 1 << 20

// Input is what a gate left. A nil reader is an empty stream; a nil Report means that no
// report file was left.
type Input struct {
	Stdout, Stderr, Report io.Reader
	// ExitCode is the code of the command, nil if it has none. Reports are compared with
	// it.
	ExitCode *int
}

// Report is what was found out about test cases.
type Report struct {
	// Source is what Cases and Counts were read from; empty without any.
	Source evidence.ReportFormat
	// Cases are in the order of the report, at most [MaxCases]. Messages are the
	// beginning of what was said, as it was.
	Cases []evidence.Case
	// Counts counts all cases; without single cases, what a summary says. Dropped is how
	// many cases found no room.
	Counts  evidence.Counts
	Dropped int
	// Problem says what is wrong with the report, or what contradicts it; empty if
	// nothing does.
	Problem string
}

// Parse finds the test cases of one gate (RT-09). It reads the streams to their end and
// never fails: what cannot be read is told in the report. With [evidence.ReportAuto] it
// decides by the command, and then by what is there; any other format is the only one
// that counts, and its absence is a problem.
func Parse(g evidence.Gate, in Input) Report {
	said := listen(in)
	found := Report{}
	tool := toolOf(g.Argv)
	switch g.Report {
	case evidence.ReportNone:
	case evidence.ReportPytest:
		found = said.junit(in, true)
	case evidence.ReportJUnit:
		found = said.junit(in, false)
	case evidence.ReportGoTest:
		found = said.goTest()
	case evidence.ReportTAP:
		found = said.tapReport()
	case evidence.ReportSummary:
		found = said.summary(tool)
	default:
		found = said.auto(g, tool, in)
	}
	if said.err != nil {
		found.Problem = join(found.Problem, "the output could not be read: "+said.err.Error())
	}
	if found.Source != "" {
		found.Problem = join(found.Problem, againstExit(tool, found, in.ExitCode))
	}
	return found
}

// auto decides by the command and by what is there.
func (s *said) auto(g evidence.Gate, tool tool, in Input) Report {
	switch tool {
	case toolPytest:
		if in.Report != nil {
			return s.junit(in, true)
		}
		found := s.summary(tool)
		if asked(g) && endedByItself(in.ExitCode) {
			found.Problem = join(found.Problem, "pytest was asked for a JUnit XML report and left none")
		}
		return found
	case toolGo:
		if s.isJSON() {
			return s.goTest()
		}
		return s.summary(tool)
	case toolUnittest:
		return s.summary(tool)
	case toolProve:
		if s.tap.looksReal() {
			return s.tapReport()
		}
		return s.summary(tool)
	case toolUnknown:
	}
	switch {
	case in.Report != nil:
		return s.junit(in, false)
	case s.isJSON():
		return s.goTest()
	case s.tap.looksReal():
		return s.tapReport()
	}
	found := s.summary(tool)
	if found.Source == "" {
		found.Problem = "" // a command that says nothing of tests owes no report
	}
	return found
}

// said is everything that the streams say, in every language that is known here.
type said struct {
	json     *goEvents
	tap      *tapLines
	pytest   *pytestLines
	unittest *unittestLines
	goText   *goLines
	prove    *proveLines
	err      error
}

// listen reads both streams once.
func listen(in Input) *said {
	s := &said{json: newGoEvents(), tap: &tapLines{}, pytest: &pytestLines{}, unittest: &unittestLines{}, goText: &goLines{}, prove: &proveLines{}}
	if in.Stdout != nil {
		s.err = logline.Each(in.Stdout, maxLine, func(line []byte, cut bool) {
			if s.json.line(line, cut) {
				return
			}
			s.tap.line(line)
			s.pytest.line(line)
			s.goText.line(line)
			s.prove.line(line)
			s.unittest.line(line)
		})
	}
	if in.Stderr != nil && s.err == nil {
		// unittest writes to stderr; what goes wrong with go test is there as well.
		s.err = logline.Each(in.Stderr, maxLine, func(line []byte, _ bool) { s.unittest.line(line) })
	}
	s.json.end()
	s.tap.end()
	s.goText.end()
	return s
}

func (s *said) isJSON() bool { return s.json.events > 0 }

func (s *said) junit(in Input, pytest bool) Report {
	if in.Report == nil {
		return Report{Problem: "no JUnit XML report was left"}
	}
	x := readJUnit(in.Report, pytest, usual)
	found := x.report(evidence.ReportJUnit)
	if x.pytest {
		found.Source = evidence.ReportPytest
		found.Problem = join(found.Problem, againstPytest(found.Counts, s.pytest))
	}
	found.Problem = join(x.problem, found.Problem)
	return found
}

func (s *said) goTest() Report {
	if !s.isJSON() {
		return Report{Problem: "stdout has no events of go test -json"}
	}
	found := s.json.report(evidence.ReportGoTest)
	found.Problem = s.json.problem
	return found
}

func (s *said) tapReport() Report {
	if s.tap.counts.Total == 0 && !s.tap.levels[0].planned {
		return Report{Problem: "stdout has no TAP"}
	}
	found := s.tap.report(evidence.ReportTAP)
	found.Problem = s.tap.problem
	return found
}

// summary takes the tool's own summary, or the one that is there.
func (s *said) summary(tool tool) Report {
	order := []interface{ summary() (Report, bool) }{s.pytest, s.unittest, s.goText, s.prove}
	switch tool {
	case toolPytest:
		order = order[:1]
	case toolUnittest:
		order = order[1:2]
	case toolGo:
		order = order[2:3]
	case toolProve:
		order = order[3:4]
	case toolUnknown:
	}
	for _, lines := range order {
		if found, ok := lines.summary(); ok {
			found.Source = evidence.ReportSummary
			return found
		}
	}
	return Report{Problem: "the output has no summary of tests"}
}

// join puts two sentences together.
func join(a, b string) string {
	switch {
	case a == "":
		return b
	case b == "":
		return a
	}
	return a + "; " + b
}
