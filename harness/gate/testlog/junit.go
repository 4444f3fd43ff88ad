package testlog

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// maxDepth is how deep the elements of a report may lie in each other.
const maxDepth = 64

// junitReader reads JUnit XML: test suites in each other, with cases. The root and the
// names of the elements are the only things that its dialects have in common.
type junitReader struct {
	keeper
	problem string
	// pytest says that pytest wrote it; its cases have names of their own.
	pytest bool

	// rooted says that the root element was there, path has the open elements.
	rooted bool
	path   []string
	// suites are the names of the open suites.
	suites []string
	open   *evidence.Case
	file   string
	class  string
	text   head
	// spoken says that an element told the outcome of the open case.
	spoken bool
	// badElements and skippedElements count elements. notRun counts cases of pytest that
	// were not run since a failure was expected: its summary takes them for xfailed.
	badElements, skippedElements, notRun int
	// suitesSay is what the outermost suites say of themselves together, rootSays what
	// the element around them says, and any all suites at any depth.
	suitesSay, rootSays, any declared
}

// declared is what elements say of the cases in them.
type declared struct {
	tests, bad, skipped int
	// hasTests and hasBad say that there was such a number at all.
	hasTests, hasBad bool
}

// add takes the numbers of an element.
func (d *declared) add(t xml.StartElement) {
	for _, key := range []string{"tests", "failures", "errors", "skipped"} {
		n, err := strconv.Atoi(attr(t, key))
		if err != nil || n < 0 {
			continue
		}
		n = min(n, maxCount)
		switch key {
		case "tests":
			d.tests, d.hasTests = min(d.tests+n, maxCount), true
		case "skipped":
			d.skipped = min(d.skipped+n, maxCount)
		default:
			d.bad, d.hasBad = min(d.bad+n, maxCount), true
		}
	}
}

// readJUnit reads a report. What was read before a problem is kept.
func readJUnit(r io.Reader, pytest bool, limits xmlLimits) *junitReader {
	x := &junitReader{pytest: pytest}
	source := newXMLSource(r, limits)
	d := xml.NewDecoder(source)
	d.CharsetReader = func(charset string, input io.Reader) (io.Reader, error) {
		if strings.EqualFold(charset, "us-ascii") || strings.EqualFold(charset, "ascii") {
			return input, nil
		}
		return nil, fmt.Errorf("the encoding %q is not read, only UTF-8", clip(charset, 40))
	}
	for {
		source.begin()
		token, err := d.Token()
		if errors.Is(err, io.EOF) && len(x.path) == 0 {
			break
		}
		if err == nil {
			err = x.token(token)
		}
		if err != nil {
			x.problem = "the JUnit XML report is broken or cut: " + clip(err.Error(), 200)
			return x
		}
	}
	if !x.rooted {
		x.problem = "the JUnit XML report has no element"
		return x
	}
	x.problem = x.contradiction()
	return x
}

func (x *junitReader) token(token xml.Token) error {
	switch t := token.(type) {
	case xml.StartElement:
		if len(x.path) == maxDepth {
			return fmt.Errorf("elements lie more than %d deep in each other", maxDepth)
		}
		if len(x.path) == 0 && t.Name.Local != "testsuites" && t.Name.Local != "testsuite" {
			return fmt.Errorf("it begins with <%s>, not with <testsuites> or <testsuite>", clip(t.Name.Local, 40))
		}
		x.rooted = true
		x.path = append(x.path, t.Name.Local)
		x.start(t)
	case xml.EndElement:
		x.path = x.path[:len(x.path)-1]
		x.stop(t.Name.Local)
	case xml.CharData:
		if x.open != nil && x.inMessage() {
			x.text.add(string(t[:min(len(t), maxMessage)]))
		}
	}
	return nil
}

// inMessage says that the text is what a case says, not what it printed.
func (x *junitReader) inMessage() bool {
	switch x.path[len(x.path)-1] {
	case "failure", "error", "skipped":
		return true
	}
	return false
}

func (x *junitReader) start(t xml.StartElement) {
	switch t.Name.Local {
	case "testsuites", "testsuite":
		name := attr(t, "name")
		if name == "pytest" || name == "pytest tests" {
			x.pytest = true
		}
		x.suites = append(x.suites, name)
		x.declare(t)
	case "testcase":
		if x.open != nil {
			return // a case in a case counts with its parent
		}
		x.spoken = false
		x.class, x.file, x.text = attr(t, "classname"), attr(t, "file"), head{}
		x.open = &evidence.Case{Name: attr(t, "name"), Suite: x.class, Outcome: evidence.Passed}
		if x.open.Suite == "" && len(x.suites) > 0 {
			x.open.Suite = x.suites[len(x.suites)-1]
		}
		// Some have no element for what they did not run, or for what failed.
		for _, key := range []string{"result", "status"} {
			if o, known := caseWords[strings.ToLower(attr(t, key))]; known {
				x.open.Outcome = graver(x.open.Outcome, o)
			}
		}
	case "failure", "error", "skipped":
		x.outcome(t)
	}
}

// caseWords are what dialects say of a case in an attribute; all others mean nothing.
var caseWords = map[string]evidence.Outcome{
	"notrun": evidence.Skipped, "suppressed": evidence.Skipped, "skipped": evidence.Skipped, "disabled": evidence.Skipped, "ignored": evidence.Skipped,
	"fail": evidence.Failed, "failed": evidence.Failed, "failure": evidence.Failed, "error": evidence.Errored, "errored": evidence.Errored,
}

// graver is the outcome that counts of two that a case says.
func graver(a, b evidence.Outcome) evidence.Outcome {
	gravity := []evidence.Outcome{evidence.Passed, evidence.Skipped, evidence.XFailed, evidence.Failed, evidence.Errored}
	if slices.Index(gravity, b) > slices.Index(gravity, a) {
		return b
	}
	return a
}

// outcome takes the gravest of what a case says.
func (x *junitReader) outcome(t xml.StartElement) {
	outcome := map[string]evidence.Outcome{"failure": evidence.Failed, "error": evidence.Errored, "skipped": evidence.Skipped}[t.Name.Local]
	if outcome == evidence.Skipped && attr(t, "type") == "pytest.xfail" {
		outcome = evidence.XFailed
		if strings.HasPrefix(attr(t, "message"), "[NOTRUN]") {
			outcome = evidence.Skipped
			x.notRun++
		}
	}
	if t.Name.Local == "skipped" {
		x.skippedElements++
	} else {
		x.badElements++
	}
	if x.open == nil {
		// An error of a suite has no case of its own.
		if t.Name.Local != "skipped" {
			suite := strings.Join(x.suites, ".")
			x.add(evidence.Case{ID: suite, Suite: suite, Outcome: outcome, Message: attr(t, "message")})
		}
		return
	}
	if graver(x.open.Outcome, outcome) != outcome || x.spoken && outcome == x.open.Outcome {
		return
	}
	x.spoken, x.open.Outcome = true, outcome
	x.text = head{}
	if message := attr(t, "message"); message != "" {
		x.text.add(message + "\n")
	}
}

func (x *junitReader) stop(element string) {
	switch element {
	case "testsuites", "testsuite":
		x.suites = x.suites[:len(x.suites)-1]
	case "testcase":
		if x.open == nil || x.within("testcase") {
			return
		}
		c := *x.open
		c.Message = x.text.String()
		if x.pytest {
			c.ID = pytestID(x.file, x.class, c.Name)
		} else {
			c.ID = strings.TrimPrefix(c.Suite+"."+c.Name, ".")
		}
		x.add(c)
		x.open = nil
	}
}

func (x *junitReader) within(element string) bool { return slices.Contains(x.path, element) }

// declare adds what a suite with numbers says of itself.
func (x *junitReader) declare(t xml.StartElement) {
	switch strings.Join(x.path, "/") {
	case "testsuites":
		x.rootSays.add(t)
		return
	case "testsuite", "testsuites/testsuite":
		x.suitesSay.add(t)
	}
	x.any.add(t)
}

// contradiction compares the numbers of the suites with the cases in them. Dialects
// count differently: several failures of one case are one or several, an error may be a
// test of its own, and a suite may leave out those in it.
func (x *junitReader) contradiction() string {
	c := x.counts
	bad, skipped := c.Failed+c.Errored, max(c.Skipped+c.XFailed, x.skippedElements)
	for _, d := range []struct {
		declared
		who   string
		tests bool // whether it says that there is no test
	}{
		{x.suitesSay, "suites of the report declare", x.any.hasTests && x.any.tests == 0},
		{x.rootSays, "report as a whole declares", x.rootSays.hasTests && x.rootSays.tests == 0},
	} {
		wrong := d.bad > max(bad, x.badElements) || d.hasBad && d.bad == 0 && bad > 0 ||
			d.declared.tests > c.Total+c.Errored || d.tests && c.Total > 0 || d.skipped > skipped
		if wrong {
			return fmt.Sprintf("the %s %d tests with %d failures and errors and %d skipped, and there are %d with %d and %d", d.who, d.declared.tests, d.bad, d.skipped, c.Total, bad, skipped)
		}
	}
	return ""
}

// attr is an attribute of an element, bounded.
func attr(t xml.StartElement, key string) string {
	for _, a := range t.Attr {
		if a.Name.Local == key && a.Name.Space == "" {
			return clip(a.Value, 4*maxName)
		}
	}
	return ""
}
