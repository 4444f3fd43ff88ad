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
	// badElements counts the failures and errors in elements, declaredBad and declared
	// what the outermost suites say of themselves.
	badElements           int
	declared, declaredBad int
	counted               bool
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
		x.class, x.file, x.text = attr(t, "classname"), attr(t, "file"), head{}
		x.open = &evidence.Case{Name: attr(t, "name"), Suite: x.class, Outcome: evidence.Passed}
		if x.open.Suite == "" && len(x.suites) > 0 {
			x.open.Suite = x.suites[len(x.suites)-1]
		}
		// googletest has no element for what it did not run.
		if attr(t, "status") == "notrun" || attr(t, "result") == "suppressed" || attr(t, "result") == "skipped" {
			x.open.Outcome = evidence.Skipped
		}
	case "failure", "error", "skipped":
		x.outcome(t)
	}
}

// outcome takes the gravest of what a case says.
func (x *junitReader) outcome(t xml.StartElement) {
	outcome := map[string]evidence.Outcome{"failure": evidence.Failed, "error": evidence.Errored, "skipped": evidence.Skipped}[t.Name.Local]
	if outcome == evidence.Skipped && attr(t, "type") == "pytest.xfail" {
		outcome = evidence.XFailed
	}
	if t.Name.Local != "skipped" {
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
	gravity := []evidence.Outcome{evidence.Passed, evidence.Skipped, evidence.XFailed, evidence.Failed, evidence.Errored}
	for _, o := range gravity { // what comes last in gravity wins
		if o == outcome {
			return
		}
		if o == x.open.Outcome {
			break
		}
	}
	x.open.Outcome = outcome
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

// declare adds what an outermost suite with numbers says of itself.
func (x *junitReader) declare(t xml.StartElement) {
	if at := strings.Join(x.path, "/"); at != "testsuite" && at != "testsuites/testsuite" {
		return
	}
	for _, key := range []string{"tests", "failures", "errors"} {
		n, err := strconv.Atoi(attr(t, key))
		if err != nil || n < 0 {
			continue
		}
		x.counted = true
		if key == "tests" {
			x.declared += n
		} else {
			x.declaredBad += n
		}
	}
}

// contradiction compares the numbers of the suites with the cases in them. Dialects
// count differently: several failures of one case are one or several, and an error may
// be a test of its own.
func (x *junitReader) contradiction() string {
	if !x.counted {
		return ""
	}
	bad := x.counts.Failed + x.counts.Errored
	if x.declaredBad > max(bad, x.badElements) || x.declaredBad == 0 && bad > 0 || x.declared > x.counts.Total+x.counts.Errored {
		return fmt.Sprintf("the suites of the report declare %d tests with %d failures and errors, and have %d with %d", x.declared, x.declaredBad, x.counts.Total, bad)
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
