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
	// tests and failed add up all runs; failing says that one of them failed.
	tests, failed int
	seen, failing bool
	// silent counts runs that failed without a test that did, named those since the last
	// result.
	silent, named int
	problem       string
}

func (p *proveLines) line(line []byte) {
	if m := proveFiles.FindSubmatch(line); m != nil {
		n, _ := strconv.Atoi(string(m[1]))
		p.tests = min(p.tests+min(n, maxCount), maxCount)
	} else if m := proveResult.FindSubmatch(line); m != nil {
		p.ended(string(m[1]))
	} else if strings.Contains(string(line), "(Wstat: ") {
		if m := proveFailed.FindSubmatch(line); m != nil {
			n, _ := strconv.Atoi(string(m[2]))
			p.named = min(p.named+max(n, 0), maxCount)
		}
	}
}

// ended takes the last line of a run.
func (p *proveLines) ended(result string) {
	p.seen = true
	p.failing = p.failing || result == "FAIL"
	if result == "FAIL" && p.named == 0 {
		p.silent++ // a file that died or broke its plan failed as a whole
	}
	if result == "PASS" && p.named > 0 {
		p.problem = "prove says PASS and counts failed tests"
	}
	p.failed, p.named = min(p.failed+p.named, maxCount), 0
}

func (p *proveLines) summary() (Report, bool) {
	r := Report{Problem: p.problem}
	addMany(&r.Counts, evidence.Failed, p.failed)
	addMany(&r.Counts, evidence.Passed, p.tests-p.failed)
	addMany(&r.Counts, evidence.Errored, p.silent)
	return r, p.seen
}
