// Package testreport reads the test reports that a gate leaves: JUnit XML, the events of
// go test -json, and TAP. Text that a test runner prints for people is not read.
//
// The tested program writes these reports, so they are untrusted. A report that is cut,
// breaks its own plan, or contradicts the exit code gets a [Report.Problem]. All readers
// stream, with bounds for lines, depths, names, messages and numbers of cases.
package testreport

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"regexp"
	"strings"
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
	// maxCount bounds the number of tests that a report declares.
	maxCount = 1 << 30
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
}

// Parse reads the test report of one gate (RT-09). It reads the streams to their end and
// never fails: a report that cannot be read is a [Report.Problem]. With
// [evidence.ReportAuto] the command and the available reports decide on the format. With
// any other format only that format counts, and it is a problem if it is missing.
func Parse(g evidence.Gate, in Input) Report {
	if g.Report == evidence.ReportNone {
		return Report{Source: evidence.ReportNone}
	}
	all := scan(g, in)
	found := all.report(g, in.ExitCode)
	if all.err != nil {
		found.addProblem("the output could not be read: " + all.err.Error())
	}
	if found.Source == "" {
		found.Source = evidence.ReportNone
	} else {
		found.addProblem(againstExit(toolOf(g.Argv), found, in.ExitCode))
	}
	return found
}

func (r *Report) addProblem(problem string) {
	if r.Problem != "" && problem != "" {
		problem = r.Problem + "; " + problem
	}
	if problem != "" {
		r.Problem = problem
	}
}

// reports has a reader for each format.
type reports struct {
	junit  *junitReader // nil without a report file
	events *goEvents
	tap    *tapLines
	err    error
}

// scan reads stdout and the report file once.
func scan(g evidence.Gate, in Input) *reports {
	all := &reports{events: newGoEvents(), tap: &tapLines{}}
	if mayHaveEvents := MayHaveEvents(g); in.Stdout != nil {
		all.err = logline.Each(in.Stdout, maxLine, func(line []byte, cut bool) {
			if !mayHaveEvents || !all.events.line(line, cut) {
				all.tap.line(line)
			}
		})
	}
	all.events.end()
	all.tap.end()
	if in.Report != nil {
		pytest := g.Report == evidence.ReportPytest || toolOf(g.Argv) == toolPytest
		all.junit = readJUnit(in.Report, pytest, usualLimits)
	}
	return all
}

// MayHaveEvents reports whether the stdout of a gate can have events of go test -json,
// which [CopyText] turns into text.
func MayHaveEvents(g evidence.Gate) bool {
	if g.Report == evidence.ReportAuto || g.Report == "" {
		return toolOf(g.Argv) != toolPytest
	}
	return g.Report == evidence.ReportGoTest
}

// report selects the report that counts.
func (all *reports) report(g evidence.Gate, code *int) Report {
	tool := toolOf(g.Argv)
	isJUnit, isEvents := all.junit != nil, all.events.events > 0
	switch g.Report {
	case evidence.ReportPytest, evidence.ReportJUnit:
		if !isJUnit {
			return Report{Problem: "no JUnit XML report was left"}
		}
	case evidence.ReportGoTest:
		if isJUnit = false; !isEvents {
			return Report{Problem: "stdout has no events of go test -json"}
		}
	case evidence.ReportTAP:
		if !all.tap.found() {
			return Report{Problem: "stdout has no TAP"}
		}
		return all.tap.report(evidence.ReportTAP)
	default:
		isJUnit = isJUnit && tool != toolGo
		if asked := strings.Contains(g.Env["PYTEST_ADDOPTS"], "--junit"); tool == toolPytest && !isJUnit && asked && finished(code) {
			// A test that ends the process of pytest leaves no report.
			return Report{Problem: "pytest was asked for a JUnit XML report and left none"}
		}
	}
	switch {
	case isJUnit && all.junit.pytest:
		return all.junit.report(evidence.ReportPytest)
	case isJUnit:
		return all.junit.report(evidence.ReportJUnit)
	case isEvents:
		return all.events.report(evidence.ReportGoTest)
	case all.tap.found() && tool == toolTAP:
		return all.tap.report(evidence.ReportTAP)
	}
	return Report{}
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
const (
	prepared = `^(?:(?:\S*/)?(?:env|time|nice|uv|poetry|pipenv|coverage|run|-m|\w+=\S*|(?:python|pypy)[\d.]* (?:-[XW] \S+ |-[a-zA-Z]+ )*?-[a-zA-Z]*m) )*(?:\S*/)?`
)

var (
	pytestCommand = regexp.MustCompile(prepared + `(?:pytest|py\.test)(?: |$)`)
	goCommand     = regexp.MustCompile(prepared + `go (?:-C ?\S+ )?test(?: |$)`)
	tapCommand    = regexp.MustCompile(`\b(?:prove|bats|tape?|node\s.*--test)\b`)
)

func toolOf(argv []string) tool {
	command := strings.Join(argv, " ")
	switch {
	case pytestCommand.MatchString(command):
		return toolPytest
	case goCommand.MatchString(command):
		return toolGo
	case tapCommand.MatchString(command):
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
	// problem is the first problem of the report.
	problem string
}

func (k *keeper) add(c evidence.Case) {
	k.counts.Add(c.Outcome)
	c.ID, c.Suite, c.Name = name(c.ID), name(c.Suite), name(c.Name)
	c.Message = text.Short(strings.ToValidUTF8(c.Message, string(utf8.RuneError)), maxMessage)
	if c.Outcome == evidence.Passed {
		c.Message = ""
	}
	if len(k.cases) < MaxCases {
		if c.Outcome == evidence.Passed {
			k.passing = append(k.passing, len(k.cases))
		}
		k.cases = append(k.cases, c)
		return
	}
	k.dropped++
	if last := len(k.passing) - 1; c.Outcome != evidence.Passed && last >= 0 {
		k.cases[k.passing[last]] = c
		k.passing = k.passing[:last]
	}
}

func (k *keeper) fail(format string, args ...any) {
	if k.problem == "" {
		k.problem = fmt.Sprintf(format, args...)
	}
}

func (k *keeper) report(source evidence.ReportFormat) Report {
	return Report{Source: source, Cases: k.cases, Counts: k.counts, Dropped: k.dropped, Problem: k.problem}
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
