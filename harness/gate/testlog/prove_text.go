package testlog

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

var (
	proveFiles  = regexp.MustCompile(`^Files=\d+, Tests=(\d+), `)
	proveFailed = regexp.MustCompile(`^(\S+) +\(Wstat: .* Tests: \d+ Failed: (\d+)\)$`)
	proveResult = regexp.MustCompile(`^Result: (PASS|FAIL|NOTESTS)$`)
)

// proveLines reads the summary of prove, which has numbers only.
type proveLines struct {
	tests, failed int
	seen          bool
	result        string
}

func (p *proveLines) line(line []byte) {
	if m := proveFiles.FindSubmatch(line); m != nil {
		p.tests, _ = strconv.Atoi(string(m[1]))
		p.tests = min(p.tests, maxCount)
	} else if m := proveResult.FindSubmatch(line); m != nil {
		p.result, p.seen = string(m[1]), true
	} else if strings.Contains(string(line), "(Wstat: ") {
		if m := proveFailed.FindSubmatch(line); m != nil {
			n, _ := strconv.Atoi(string(m[2]))
			p.failed = min(p.failed+max(n, 0), maxCount)
		}
	}
}

func (p *proveLines) summary() (Report, bool) {
	var r Report
	addMany(&r.Counts, evidence.Failed, p.failed)
	addMany(&r.Counts, evidence.Passed, p.tests-p.failed)
	if p.result == "FAIL" && p.failed == 0 {
		// A file that died or broke its plan failed as a whole.
		addMany(&r.Counts, evidence.Errored, 1)
	}
	if p.result == "PASS" && p.failed > 0 {
		r.Problem = "prove says PASS and counts failed tests"
	}
	return r, p.seen
}
