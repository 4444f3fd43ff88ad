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

	// proveFile begins the output of a file under prove. proveOK ends the output of a good file, and
	// proveEnd the output of any other file. prove pads the name with dots.
	proveFile = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:\[\d\d:\d\d:\d\d\] )?(\S*[./]\S*|\S.*\.t) \.{2,}$`)
	})
	proveOK  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^ok(?: +\d+ m?s(?: \(.*\))?)?$`) })
	proveEnd = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:Dubious, test returned \d+|Failed \d+/\d+ subtests|All \d+ subtests passed|No subtests run|skipped: )`)
	})
)

// tapLines reads TAP of versions 12 to 14: the plan, test points with their directives,
// and "Bail out!". It ignores indented lines, which are diagnostics and subtests: the test
// point after a subtest has its result.
//
// In the output of prove, each file is a document of its own, and prove ends the document of a
// good file with an "ok", which is not a test point.
type tapLines struct {
	keeper
	document
	// ended has a line that is the end of the file if no other line of TAP follows in its document.
	ended []byte
	// plans says that a document has a plan.
	plans bool
}

// document is what is known of one document of TAP.
type document struct {
	// file is its name under prove; empty without it.
	file string
	// closed says that prove has ended the document.
	closed                   bool
	version, planned, bailed bool
	plan, seen               int
}

func (t *tapLines) line(line []byte) {
	line = bytes.TrimRight(line, " \t")
	if len(line) == 0 {
		return
	}
	if t.file == "" && !t.version && !t.planned && t.seen == 0 || t.closed || len(t.ended) > 0 { // prove ends a file before the next one
		if name := proveName(line); name != "" {
			t.close()
			t.document = document{file: name}
			return
		}
	}
	if t.file != "" {
		if proveEnd().Match(line) {
			t.resume()
			t.closed = true
			return
		}
		if proveOK().Match(line) {
			t.resume()
			t.ended = bytes.Clone(line)
			return
		}
	}
	t.point(line)
}

// proveName is the name of the file whose output a line begins; empty for any other line. Most lines are output
// without TAP, and the expression is slow.
func proveName(line []byte) string {
	if rest := bytes.TrimRight(line, "."); len(line)-len(rest) < 2 || !bytes.HasSuffix(rest, []byte(" ")) {
		return ""
	}
	m := proveFile().FindSubmatch(line)
	if m == nil {
		return ""
	}
	return string(m[1])
}

// resume takes the line that was not the end of a file.
func (t *tapLines) resume() {
	if line := t.ended; len(line) > 0 {
		t.ended = nil
		t.point(line)
	}
}

// point takes a line of a document.
func (t *tapLines) point(line []byte) {
	if t.bailed || bytes.IndexByte([]byte("TB1on"), line[0]) < 0 {
		return
	}
	content := string(line)
	if reason, ok := strings.CutPrefix(content, "Bail out!"); ok && (t.version || t.found()) {
		t.bailed = true
		t.fail("the tests bailed out:%s", text.Short(reason, 200))
		t.add(evidence.Case{ID: "Bail out!", Outcome: evidence.Errored, Message: strings.TrimSpace(reason)})
	} else if m := tapPlan().FindStringSubmatch(content); m != nil {
		t.resume()
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.fail("a plan counts too many tests")
		} else if t.planned {
			t.fail("TAP has two plans for the same tests")
		}
		t.planned, t.plan, t.plans = true, n, true
	} else if m := tapPoint().FindStringSubmatch(content); m != nil {
		t.resume()
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
	id := title
	if t.file != "" {
		id = t.file + ": " + title
	}
	t.add(evidence.Case{ID: id, Suite: t.file, Name: title, Outcome: outcome, Message: reason})
}

// close is the end of a document.
func (t *tapLines) close() {
	if t.planned && t.seen < t.plan {
		t.resume() // the plan counts it
	}
	t.ended = nil
	switch {
	case t.bailed || t.seen == 0 && !t.planned:
	case !t.planned:
		t.fail("TAP has no plan: tests may be missing")
	case t.plan != t.seen:
		t.fail("TAP plans %d tests and has %d", t.plan, t.seen)
	}
}

func (t *tapLines) fail(format string, args ...any) {
	if t.file != "" {
		format, args = "%s: "+format, append([]any{text.Short(name(t.file), 200)}, args...)
	}
	t.keeper.fail(format, args...)
}

// found reports whether the lines are TAP. An "ok" alone can be other text.
func (t *tapLines) found() bool { return t.counts.Total > 0 || t.plans }
