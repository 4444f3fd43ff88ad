package testlog

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

var (
	unittestRan  = regexp.MustCompile(`^Ran (\d+) tests? in \d+\.\d+s$`)
	unittestEnd  = regexp.MustCompile(`^(OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$`)
	unittestCase = regexp.MustCompile(`^(\w+) \(([\w.]+)\)(?:.* \.\.\. | \.\.\. )(ok|FAIL|ERROR|skipped .*|expected failure|unexpected success)$`)
	unittestBad  = regexp.MustCompile(`^(FAIL|ERROR): (\w+) \(([\w.]+)\)`)
)

// unittestLines reads what Python's unittest prints: its last two lines, the lines of -v,
// and the headings of what failed.
type unittestLines struct {
	keeper
	named map[string]bool
	ran   int
	// after says that "Ran n tests" was there, and the verdict comes next.
	after, seen bool
	// counts adds up what all runs say; failed says that one of them did.
	counts  evidence.Counts
	failed  bool
	problem string
}

func (u *unittestLines) line(line []byte) {
	switch {
	case len(line) == 0:
	case bytes.HasPrefix(line, []byte("Ran ")):
		if m := unittestRan.FindSubmatch(line); m != nil {
			u.ran, _ = strconv.Atoi(string(m[1]))
			u.ran = min(u.ran, maxCount)
			u.after = true
		}
	case u.after:
		u.after = false
		if m := unittestEnd.FindSubmatch(line); m != nil {
			u.verdict(string(m[1]), string(m[2]))
		}
	case bytes.Contains(line, []byte(" ... ")):
		if m := unittestCase.FindSubmatch(line); m != nil {
			word, _, _ := strings.Cut(string(m[3]), " '")
			u.testCase(string(m[1]), string(m[2]), map[string]evidence.Outcome{
				"ok": evidence.Passed, "FAIL": evidence.Failed, "ERROR": evidence.Errored,
				"expected failure": evidence.XFailed, "unexpected success": evidence.XPassed,
			}[word])
		}
	case line[0] == 'F' || line[0] == 'E':
		if m := unittestBad.FindSubmatch(line); m != nil {
			u.testCase(string(m[2]), string(m[3]), map[string]evidence.Outcome{"FAIL": evidence.Failed, "ERROR": evidence.Errored}[string(m[1])])
		}
	}
}

// testCase adds a case once. Newer versions of Python have the method in the brackets.
func (u *unittestLines) testCase(method, class string, o evidence.Outcome) {
	id := class
	if class != method && !strings.HasSuffix(class, "."+method) {
		id = class + "." + method
	}
	id = name(id)
	if u.named[id] || len(u.named) == maxOpen {
		return
	}
	if u.named == nil {
		u.named = map[string]bool{}
	}
	u.named[id] = true
	if o == "" {
		o = evidence.Skipped
	}
	u.add(evidence.Case{ID: id, Suite: strings.TrimSuffix(id, "."+method), Name: method, Outcome: o})
}

// verdict is the last line: "FAILED (failures=1, skipped=2)". What it does not name
// passed. An error of a class or module is none of the tests that ran.
func (u *unittestLines) verdict(word, details string) {
	var c evidence.Counts
	for part := range strings.SplitSeq(details, ", ") {
		key, number, ok := strings.Cut(part, "=")
		n, err := strconv.Atoi(number)
		if !ok || err != nil || n < 0 {
			continue
		}
		if o, known := map[string]evidence.Outcome{
			"failures": evidence.Failed, "errors": evidence.Errored, "skipped": evidence.Skipped,
			"expected failures": evidence.XFailed, "unexpected successes": evidence.XPassed,
		}[key]; known {
			addMany(&c, o, n)
		}
	}
	bad := c.Failed + c.Errored + c.XPassed
	addMany(&c, evidence.Passed, u.ran-c.Total)
	u.seen = true
	u.failed = u.failed || word == "FAILED"
	addAll(&u.counts, c)
	if (word == "FAILED") != (bad > 0) {
		u.problem = fmt.Sprintf("unittest says %q and counts %d that failed", word, bad)
	}
}

func (u *unittestLines) summary() (Report, bool) {
	r := u.report(evidence.ReportSummary)
	r.Problem = u.problem
	if u.keeper.counts.Passed > u.counts.Passed {
		r.Problem = join(r.Problem, "the output names more tests that passed than its last lines count")
	}
	r.Counts = u.counts
	return r, u.seen
}
