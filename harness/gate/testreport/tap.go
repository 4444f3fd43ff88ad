package testreport

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/text"
)

var (
	tapPoint = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(not )?ok(?: +(\d+))?(?: +(.*))?$`) })
	tapPlan  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^1\.\.(\d+)(?: *(?:#.*)?)$`) })
	// tapDirective ends a description. TAP 14 escapes a '#' that does not begin one.
	tapDirective = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)(?:^|[^\\])# *(skip|todo)(?:\S*)(.*)$`) })
)

// tapLines reads TAP of versions 12 to 14: the plan, test points with their directives,
// and "Bail out!". It ignores indented lines, which are diagnostics and subtests: the test
// point after a subtest has its result.
type tapLines struct {
	keeper
	version, planned, bailed bool
	plan, seen               int
}

func (t *tapLines) line(line []byte) {
	line = bytes.TrimRight(line, " \t")
	if t.bailed || len(line) == 0 || bytes.IndexByte([]byte("TB1on"), line[0]) < 0 {
		return
	}
	content := string(line)
	if reason, ok := strings.CutPrefix(content, "Bail out!"); ok && (t.version || t.found()) {
		t.bailed = true
		t.fail("the tests bailed out:%s", text.Short(reason, 200))
		t.add(evidence.Case{ID: "Bail out!", Outcome: evidence.Errored, Message: strings.TrimSpace(reason)})
	} else if m := tapPlan().FindStringSubmatch(content); m != nil {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.fail("a plan counts too many tests")
		} else if t.planned {
			t.fail("TAP has two plans for the same tests")
		}
		t.planned, t.plan = true, n
	} else if m := tapPoint().FindStringSubmatch(content); m != nil {
		t.testPoint(m[1] == "", m[2], m[3])
	} else if strings.HasPrefix(content, "TAP version ") {
		t.version = true
	}
}

func (t *tapLines) testPoint(ok bool, number, description string) {
	t.seen++
	if n, err := strconv.Atoi(number); number != "" && (err != nil || n != t.seen) {
		t.fail("test point %s is out of sequence: it is number %d", text.Short(number, 20), t.seen)
	}
	directive, reason := "", ""
	if m := tapDirective().FindStringSubmatchIndex(description); m != nil {
		directive, reason = strings.ToLower(description[m[2]:m[3]]), strings.TrimSpace(description[m[4]:m[5]])
		description = description[:m[0]+strings.IndexByte(description[m[0]:], '#')]
	}
	title := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(description), "- "))
	if title == "" || title == "-" {
		title = "test " + strconv.Itoa(t.seen)
	}
	outcome := evidence.Passed
	switch {
	case directive == "todo" && ok:
		outcome = evidence.XPassed
	case directive == "todo":
		outcome = evidence.XFailed
	case !ok:
		outcome = evidence.Failed
	case directive == "skip":
		outcome = evidence.Skipped
	}
	t.add(evidence.Case{ID: title, Name: title, Outcome: outcome, Message: reason})
}

// end is the end of the stream.
func (t *tapLines) end() {
	switch {
	case t.bailed || !t.found():
	case !t.planned:
		t.fail("TAP has no plan: tests may be missing")
	case t.plan != t.seen:
		t.fail("TAP plans %d tests and has %d", t.plan, t.seen)
	}
}

// found reports whether the lines are TAP. An "ok" alone can be other text.
func (t *tapLines) found() bool { return t.counts.Total > 0 || t.planned }
