package testlog

import (
	"regexp"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

var (
	goTestLine    = regexp.MustCompile(`^ *--- (PASS|FAIL|SKIP): (.+) \(\d+\.\d+s\)$`)
	goPackageLine = regexp.MustCompile(`^(ok  |FAIL)\t(\S+)(?:\t(.*)| (\[.*\]))$`)
)

// maxPending bounds how many tests wait for the line of their package.
const maxPending = MaxCases

// goLines reads the text of go test. Without -v it has one line for each package: that
// of a package that failed is a case, an "ok" tells no test. All of them may have been
// skipped, or TestMain may have run none.
type goLines struct {
	keeper
	seen bool
	// bare counts packages that are ok without a test, failed says that one failed.
	bare   int
	failed bool
	// pending are the tests since the last package.
	pending []evidence.Case
	// lost says that more were pending than are kept.
	lost bool
}

func (g *goLines) line(line []byte) {
	if len(line) < 4 || line[0] != ' ' && line[0] != '-' && line[0] != 'o' && line[0] != 'F' {
		return
	}
	if m := goTestLine.FindSubmatch(line); m != nil {
		if len(g.pending) == maxPending {
			g.lost = true
			return
		}
		outcome := map[string]evidence.Outcome{"PASS": evidence.Passed, "FAIL": evidence.Failed, "SKIP": evidence.Skipped}[string(m[1])]
		g.pending = append(g.pending, evidence.Case{Name: name(string(m[2])), Outcome: outcome})
		return
	}
	m := goPackageLine.FindSubmatch(line)
	if m == nil {
		return
	}
	g.seen = true
	g.failed = g.failed || m[1][0] == 'F'
	pkg, rest, failed := string(m[2]), string(m[3])+string(m[4]), m[1][0] == 'F'
	tests, anyFailed := g.pending, false
	g.pending = nil
	for _, c := range tests {
		anyFailed = anyFailed || c.Outcome == evidence.Failed
		c.ID, c.Suite = pkg+"."+c.Name, pkg
		g.add(c)
	}
	switch {
	case failed && !anyFailed:
		g.add(evidence.Case{ID: pkg, Suite: pkg, Outcome: evidence.Errored, Message: rest})
	case !failed && len(tests) == 0 && !strings.Contains(rest, "[no tests to run]"):
		g.bare++
	}
}

// end counts tests whose package never came: the process ended before.
func (g *goLines) end() {
	for _, c := range g.pending {
		if c.Outcome == evidence.Failed && g.seen {
			c.ID = c.Name
			g.add(c)
		}
	}
}

func (g *goLines) summary() (Report, bool) {
	r := g.report(evidence.ReportSummary)
	if g.lost {
		r.Problem = "a package has more tests than are kept"
	}
	if g.bare > 0 && r.Counts.Executed() == 0 {
		r.Problem = join(r.Problem, "the output of go test names packages alone, which does not prove that a test ran: run it with -json or -v")
	}
	return r, g.seen
}
