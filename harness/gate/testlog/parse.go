package testlog

import (
	"fmt"
	"io"
	"regexp"
	"strings"

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
	tool := toolOf(g.Argv)
	said := listen(tool, g.Report, in)
	found := Report{}
	switch g.Report {
	case evidence.ReportNone:
	case evidence.ReportPytest, evidence.ReportJUnit:
		found = said.junit(tool)
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
	if g.Report != evidence.ReportNone {
		found.Problem = join(found.Problem, said.hidden(found, in.ExitCode))
	}
	return found
}

// auto decides by the command and by what is there.
func (s *said) auto(g evidence.Gate, tool tool, in Input) Report {
	switch tool {
	case toolPytest:
		if s.report != nil {
			return s.junit(tool)
		}
		found := s.summary(tool)
		if asked(g) && endedByItself(in.ExitCode) {
			found.Problem = join(found.Problem, noReport)
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
	case s.report != nil:
		return s.junit(tool)
	case s.isJSON():
		return s.goTest()
	case s.tap.looksReal():
		found := s.tapReport()
		found.Problem = join(found.Problem, unnamed(g, "TAP", evidence.ReportTAP, tapTools))
		return found
	}
	found := s.summary(tool)
	switch {
	case found.Source == "":
		found.Problem = "" // a command that says nothing of tests owes no report
	case s.pytest.runs > 0 && asked(g):
		found.Problem = join(found.Problem, noReport)
	default:
		found.Problem = join(found.Problem, unnamed(g, "a summary of tests", evidence.ReportSummary, summaryTools))
	}
	return found
}

const noReport = "pytest was asked for a JUnit XML report and left none"

// Programs that print these languages, as they are named in commands.
var (
	summaryTools = regexp.MustCompile(`\b(?:pytest|py\.test|unittest|prove|go\s+(?:-C\s*\S+\s+)?test)\b`)
	tapTools     = regexp.MustCompile(`\b(?:prove|bats|tape?|node\s.*--test)\b`)
)

// unnamed says that text which any command can print is no evidence of tests, unless the
// command or the wish names what prints it. A check owes no tests.
func unnamed(g evidence.Gate, what string, format evidence.ReportFormat, tools *regexp.Regexp) string {
	if g.Kind == evidence.KindCheck || tools.MatchString(strings.Join(g.Argv, " ")) {
		return ""
	}
	return fmt.Sprintf("the output has %s, and the command names no tool that prints such; if it runs one, say `report: %s` in the wish", what, format)
}

// said is everything that a gate says, in every language that is known here.
type said struct {
	report   *junitReader // nil without a report file
	json     *goEvents
	tap      *tapLines
	pytest   *pytestLines
	unittest *unittestLines
	goText   *goLines
	prove    *proveLines
	err      error
}

// listen reads the streams and the report once. Events of go test are looked for where
// go test can be at work; all lines that are none are text.
func listen(tool tool, format evidence.ReportFormat, in Input) *said {
	s := &said{json: newGoEvents(), tap: &tapLines{}, pytest: &pytestLines{}, unittest: &unittestLines{}, goText: &goLines{}, prove: &proveLines{}}
	events := mayTellEvents(tool, format)
	if in.Stdout != nil {
		s.err = logline.Each(in.Stdout, maxLine, func(line []byte, cut bool) {
			if events && s.json.line(line, cut) {
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
	if in.Report != nil && format != evidence.ReportNone {
		pytest := format == evidence.ReportPytest || format == evidence.ReportAuto && tool == toolPytest
		s.report = readJUnit(in.Report, pytest, usual)
	}
	return s
}

// mayTellEvents says whether the lines of stdout can be events of go test -json.
func mayTellEvents(tool tool, format evidence.ReportFormat) bool {
	if format == evidence.ReportAuto || format == "" {
		return tool == toolGo || tool == toolUnknown
	}
	return format == evidence.ReportGoTest
}

// MayTellEvents says whether a gate's stdout can have events of go test -json, which
// [CopyText] then reads.
func MayTellEvents(g evidence.Gate) bool { return mayTellEvents(toolOf(g.Argv), g.Report) }

func (s *said) isJSON() bool { return s.json.events > 0 }

func (s *said) junit(tool tool) Report {
	if s.report == nil {
		return Report{Problem: "no JUnit XML report was left"}
	}
	x := s.report
	found := x.report(evidence.ReportJUnit)
	if x.pytest {
		found.Source = evidence.ReportPytest
	}
	if x.pytest || tool == toolPytest {
		found.Problem = againstPytest(x, s.pytest)
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
