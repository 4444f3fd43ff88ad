package testlog

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

var (
	pytestSummary = regexp.MustCompile(`^(?:=+ )?((?:no tests ran|no tests collected|\d+ [a-z]+(?: passed| failed| skipped)?)(?:, \d+ [a-z]+(?: passed| failed| skipped)?)*) in \d+\.\d+s(?: \(\d+(?: days?, \d+)?:\d\d:\d\d\))?(?: =+)?$`)
	// pytestCase is a line of pytest -v, also of pytest-xdist.
	pytestCase = regexp.MustCompile(`^(?:\[gw\d+\] \[ *\d+%\] )?(?:(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) )?(\S+\.py::.+?)(?: (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)(?: \(.*\))?)?(?: - .*)?(?: *\[ *\d+%\])?$`)
)

var pytestWords = map[string]evidence.Outcome{
	"passed": evidence.Passed, "failed": evidence.Failed, "error": evidence.Errored, "errors": evidence.Errored,
	"skipped": evidence.Skipped, "xfailed": evidence.XFailed, "xpassed": evidence.XPassed,
	"PASSED": evidence.Passed, "FAILED": evidence.Failed, "ERROR": evidence.Errored,
	"SKIPPED": evidence.Skipped, "XFAIL": evidence.XFailed, "XPASS": evidence.XPassed,
}

// pytestLines reads what pytest prints: its last line, the lines of -v, and the short
// summary of what failed.
type pytestLines struct {
	keeper
	// named are the IDs that have a case already: -v and the short summary both name
	// what failed.
	named map[string]bool
	// runs is how many last lines were there; counts adds up what they say.
	runs     int
	counts   evidence.Counts
	subtests bool
}

func (p *pytestLines) line(line []byte) {
	if bytes.Contains(line, []byte(".py::")) {
		p.testCase(string(line))
		return
	}
	if !bytes.Contains(line, []byte(" in ")) {
		return
	}
	m := pytestSummary.FindSubmatch(line)
	if m == nil {
		return
	}
	counts, subtests, known := evidence.Counts{}, false, false
	for _, part := range strings.Split(string(m[1]), ", ") {
		number, word, _ := strings.Cut(part, " ")
		if number == "no" {
			known = true
			continue
		}
		n, err := strconv.Atoi(number)
		if err != nil {
			return
		}
		kind, of, sub := strings.Cut(word, " ")
		if sub {
			subtests = subtests || kind == "subtests"
			if kind != "subtests" || of != "failed" {
				continue
			}
			word = of
		}
		switch outcome, ok := pytestWords[word]; {
		case ok:
			known = true
			addMany(&counts, outcome, n)
		case word == "deselected" || word == "warning" || word == "warnings" || word == "rerun" || word == "reruns":
			known = known || word == "deselected"
		default:
			return // a sentence that happens to look alike
		}
	}
	if known {
		p.runs++
		p.subtests = p.subtests || subtests
		addAll(&p.counts, counts)
	}
}

func (p *pytestLines) testCase(line string) {
	m := pytestCase.FindStringSubmatch(line)
	if m == nil || (m[1] == "") == (m[3] == "") {
		return
	}
	id := name(m[2])
	if p.named[id] || len(p.named) == maxOpen {
		return
	}
	if p.named == nil {
		p.named = map[string]bool{}
	}
	p.named[id] = true
	suite, test := id, ""
	if i := strings.LastIndex(id, "::"); i >= 0 {
		suite, test = id[:i], id[i+2:]
	}
	p.add(evidence.Case{ID: id, Suite: suite, Name: test, Outcome: pytestWords[m[1]+m[3]]})
}

func (p *pytestLines) summary() (Report, bool) {
	r := p.report(evidence.ReportSummary)
	if p.keeper.counts.Failed > p.counts.Failed || p.keeper.counts.Errored > p.counts.Errored {
		r.Problem = "the output names more failed tests than its last line counts"
	}
	r.Counts = p.counts
	return r, p.runs > 0
}

// maxCount bounds a number that a summary may say.
const maxCount = 100_000_000

// addAll adds what a further summary says.
func addAll(c *evidence.Counts, more evidence.Counts) {
	addMany(c, evidence.Passed, more.Passed)
	addMany(c, evidence.Failed, more.Failed)
	addMany(c, evidence.Errored, more.Errored)
	addMany(c, evidence.Skipped, more.Skipped)
	addMany(c, evidence.XFailed, more.XFailed)
	addMany(c, evidence.XPassed, more.XPassed)
}

// addMany counts n cases; no summary makes numbers that do not add up.
func addMany(c *evidence.Counts, o evidence.Outcome, n int) {
	n = max(0, min(n, maxCount))
	c.Total += n
	switch o {
	case evidence.Passed:
		c.Passed += n
	case evidence.Failed:
		c.Failed += n
	case evidence.Errored:
		c.Errored += n
	case evidence.Skipped:
		c.Skipped += n
	case evidence.XFailed:
		c.XFailed += n
	case evidence.XPassed:
		c.XPassed += n
	}
}
