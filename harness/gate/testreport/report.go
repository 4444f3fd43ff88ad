// Package testreport reads the test reports that a gate leaves: JUnit XML, the events of
// go test -json, and TAP. Text that a test runner prints for people is not read.
//
// The tested program writes these reports, so they are untrusted. A report that is cut,
// breaks its own plan, or contradicts the exit code gets a [Report.Problem]. All readers
// stream, with bounds for lines, depths, names, messages and numbers of cases.
package testreport

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/internal/logline"
	"github.com/evalbox/evalbox/internal/text"
)

// MaxCases is how many cases of one command are kept. All are counted.
const MaxCases = 20_000

const (
	// maxLine bounds the part of a line of output that is read, in bytes.
	maxLine = 1 << 20
	// maxName bounds an ID, a suite and a name, and maxMessage a message, in bytes.
	maxName    = 1000
	maxMessage = 2 << 10
	// maxSeconds bounds the time of a case.
	maxSeconds = 1e9
)

// Input is what a gate left. A nil reader means that the stream or the report is missing.
type Input struct {
	Stdout, Report io.Reader
	// ExitCode is the exit code of the command, nil if it has none.
	ExitCode *int
}

// Report has the test cases of one gate.
type Report struct {
	// Source is the format that was read, [evidence.ReportNone] without a report.
	Source evidence.ReportFormat
	// Cases are in the order of the report, at most [MaxCases].
	Cases []evidence.Case
	// Counts counts all cases, and Dropped those that are not in Cases.
	Counts  evidence.Counts
	Dropped int
	// Problem says why the report cannot be relied on; empty if it can.
	Problem string
	// Seconds are how long the cases took, by ID, where the report says so. Evidence has no
	// times: they are for people.
	Seconds map[string]float64
}

// Parse reads the test report of one gate (RT-09). It reads the streams to their end and
// never fails: a report that cannot be read is a [Report.Problem]. With
// [evidence.ReportAuto] the command and the available reports decide on the format. With
// any other format only that format counts, and it is a problem if it is missing.
func Parse(g evidence.Gate, in Input) Report {
	if g.Report == evidence.ReportNone {
		return Report{Source: evidence.ReportNone}
	}
	tool := toolOf(g.Argv)
	events, tap := &goEvents{pkgs: map[string]*goPackage{}, builds: map[string]*head{}}, &tapLines{}
	var err error
	if mayHaveEvents := MayHaveEvents(g); in.Stdout != nil {
		err = logline.Each(in.Stdout, maxLine, func(line []byte, cut bool) {
			if !mayHaveEvents || !events.line(line, cut) {
				tap.line(line)
			}
		})
	}
	events.end()
	tap.close()
	var junit *junitReader
	if in.Report != nil {
		junit = readJUnit(in.Report, g.Report == evidence.ReportPytest || tool == toolPytest)
	}
	found := choose(g, in, junit, events, tap)
	if err != nil {
		found.addProblem("the output could not be read: " + err.Error())
	}
	if found.Source != evidence.ReportNone {
		found.addProblem(againstExit(tool, found, in.ExitCode))
	}
	if code := in.ExitCode; code != nil && *code == 0 && found.Counts.Broken() == 0 {
		found.addProblem(hidden(junit, events, tap))
	}
	return found
}

// hidden says that a report which does not count has failures. A script of several tools
// can lose their exit codes.
func hidden(junit *junitReader, events *goEvents, tap *tapLines) string {
	what, failing := "events of go test", events.counts.Broken()
	switch {
	case failing > 0:
	case junit != nil && junit.counts.Broken() > 0:
		what, failing = "a JUnit XML report", junit.counts.Broken()
	case tap.plans: // lines without a plan can be other text
		what, failing = "TAP", tap.counts.Broken()
	}
	if failing == 0 {
		return ""
	}
	return fmt.Sprintf("the gate left %s with %s, and the exit code is 0", what, text.Count(failing, "failing case"))
}

// choose returns the report that counts. junit is nil if there is none.
func choose(g evidence.Gate, in Input, junit *junitReader, events *goEvents, tap *tapLines) Report {
	tool, auto := toolOf(g.Argv), isAuto(g)
	found := Report{Source: evidence.ReportNone}
	switch {
	case junit != nil && (auto && tool != toolGo || g.Report == evidence.ReportPytest || g.Report == evidence.ReportJUnit):
		if found = junit.report(evidence.ReportJUnit); junit.pytest {
			found.Source = evidence.ReportPytest
		}
	case events.events > 0 && (auto || g.Report == evidence.ReportGoTest):
		found = events.report(evidence.ReportGoTest)
	case tap.found() && (auto && tool == toolTAP || g.Report == evidence.ReportTAP):
		found = tap.report(evidence.ReportTAP)
	case !auto:
		found.Problem = missing[g.Report]
	case tool == toolPytest && strings.Contains(g.Env["PYTEST_ADDOPTS"], "--junit") && finished(in.ExitCode):
		// A test that ends the process of pytest leaves no report.
		found.Problem = "pytest was asked for a JUnit XML report and left none"
	}
	return found
}

// missing are the problems of gates that left no report in the format that counts.
var missing = map[evidence.ReportFormat]string{
	evidence.ReportPytest: "no JUnit XML report was left",
	evidence.ReportJUnit:  "no JUnit XML report was left",
	evidence.ReportGoTest: "stdout has no events of go test -json",
	evidence.ReportTAP:    "stdout has no TAP",
}

func (r *Report) addProblem(problem string) {
	if r.Problem != "" && problem != "" {
		problem = r.Problem + "; " + problem
	}
	r.Problem = cmp.Or(problem, r.Problem)
}

// isAuto reports whether the command and the available reports decide on the format.
func isAuto(g evidence.Gate) bool { return g.Report == evidence.ReportAuto || g.Report == "" }

// MayHaveEvents reports whether the stdout of a gate can have events of go test -json,
// which [CopyText] turns into text.
func MayHaveEvents(g evidence.Gate) bool {
	return g.Report == evidence.ReportGoTest || isAuto(g) && toolOf(g.Argv) != toolPytest
}

// tool is a program that runs tests.
type tool int

const (
	toolOther tool = iota
	toolPytest
	toolGo
	toolTAP
)

// Commands of tools. Words in front, such as those of env or coverage, only prepare a
// command, and a command of a shell is not examined. Any program can print TAP, so it
// counts only if the command names a tool that prints it.
const prepared = `^(?:(?:\S*/)?(?:env|time|nice|uv|poetry|pipenv|coverage|run|-m|\w+=\S*|(?:python|pypy)[\d.]* (?:-[XW] \S+ |-[a-zA-Z]+ )*?-[a-zA-Z]*m) )*(?:\S*/)?`

var (
	pytestCommand = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(prepared + `(?:pytest|py\.test)(?: |$)`) })
	goCommand     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(prepared + `go (?:-C ?\S+ )?test(?: |$)`) })
	tapCommand    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\b(?:prove|bats|tape?|node\s.*--test)\b`) })
)

func toolOf(argv []string) tool {
	command := strings.Join(argv, " ")
	switch {
	case pytestCommand().MatchString(command):
		return toolPytest
	case goCommand().MatchString(command):
		return toolGo
	case tapCommand().MatchString(command):
		return toolTAP
	}
	return toolOther
}

// Exit codes of pytest and go test.
const (
	exitTestsFailed   = 1
	exitPytestNoTests = 5
)

// againstExit says how the exit code contradicts the report.
func againstExit(t tool, r Report, code *int) string {
	bad := r.Counts.Failed + r.Counts.Errored
	switch {
	case code == nil:
	case *code == 0 && bad > 0:
		return fmt.Sprintf("the report has %s that failed, and the exit code is 0", text.Count(bad, "case"))
	case *code == 0 && t == toolPytest && r.Counts.Total == 0:
		return "the report has no case, and the exit code is 0: pytest would have ended with 5"
	case *code == exitTestsFailed && (t == toolPytest || t == toolGo) && bad == 0 && r.Counts.XPassed == 0 && r.Problem == "":
		return "the exit code says that tests failed, and the report has none that did"
	case *code == exitPytestNoTests && t == toolPytest && r.Counts.Total > 0:
		return fmt.Sprintf("the exit code says that there were no tests, and the report has %s", text.Count(r.Counts.Total, "case"))
	}
	return ""
}

// finished reports whether pytest reached its end, where it writes its report.
func finished(code *int) bool {
	return code != nil && (*code == 0 || *code == exitTestsFailed || *code == exitPytestNoTests)
}

// keeper counts cases and keeps the first ones. A case that did not pass replaces one
// that passed if there is no room.
type keeper struct {
	counts  evidence.Counts
	cases   []evidence.Case
	passing []int // indices in cases
	dropped int
	seconds map[string]float64
	// problem is the first problem of the report.
	problem string
}

func (k *keeper) add(c evidence.Case) {
	k.counts.Add(c.Outcome)
	c.ID, c.Suite, c.Name = name(c.ID), name(c.Suite), name(c.Name)
	c.Message = text.Short(strings.ToValidUTF8(c.Message, string(utf8.RuneError)), maxMessage)
	passed := c.Outcome == evidence.Passed
	if passed {
		c.Message = ""
	}
	last := len(k.passing) - 1
	switch {
	case len(k.cases) < MaxCases:
		if passed {
			k.passing = append(k.passing, len(k.cases))
		}
		k.cases = append(k.cases, c)
		return
	case !passed && last >= 0:
		k.cases[k.passing[last]] = c
		k.passing = k.passing[:last]
	}
	k.dropped++
}

// took adds the time of a case, which has several parts or is repeated.
func (k *keeper) took(id string, seconds float64) {
	if k.seconds == nil {
		k.seconds = map[string]float64{}
	}
	if id = name(id); seconds >= 0 && seconds < maxSeconds && len(k.seconds) < MaxCases {
		k.seconds[id] += seconds
	}
}

func (k *keeper) fail(format string, args ...any) {
	if k.problem == "" {
		k.problem = fmt.Sprintf(format, args...)
	}
}

func (k *keeper) report(source evidence.ReportFormat) Report {
	return Report{Source: source, Cases: k.cases, Counts: k.counts, Dropped: k.dropped, Problem: k.problem, Seconds: k.seconds}
}

// name is a name on one line. A longer one is cut, and gets a hash that keeps it unique.
func name(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(s, string(utf8.RuneError)))
	if len(s) <= maxName {
		return strings.Clone(s)
	}
	sum := sha256.Sum256([]byte(s))
	return text.Short(s, maxName) + "#" + hex.EncodeToString(sum[:8])
}

// head keeps the beginning of a text.
type head struct{ text []byte }

func (h *head) add(s string) {
	if room := maxMessage + utf8.UTFMax - len(h.text); room > 0 {
		h.text = append(h.text, s[:min(room, len(s))]...)
	}
}

func (h *head) String() string { return strings.TrimSpace(string(h.text)) }
