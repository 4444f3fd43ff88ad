package testreport

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/text"
)

// maxDepth bounds how deep the elements of a report are nested.
const maxDepth = 64

// junitReader reads JUnit XML. Its dialects agree on the names of the elements only.
type junitReader struct {
	keeper
	// pytest is true if pytest wrote the report: the IDs of its cases are node IDs.
	pytest bool
	// path has the open elements, suites the names of the open suites.
	path, suites []string
	rooted       bool
	// open is the open case, nil outside of one.
	open        *evidence.Case
	class, file string
	message     head
	spoken      bool // an element set the outcome of the open case
	// badElements counts elements of failures and errors, of which a case can have several.
	badElements int
	// tests and bad are the numbers of tests and of failures and errors that the outermost
	// suites declare, and rootTests and rootBad those that the root element declares.
	tests, bad, rootTests, rootBad int
}

// readJUnit reads a report. If it finds a problem, it keeps the cases before it.
func readJUnit(r io.Reader, pytest bool, limits xmlLimits) *junitReader {
	x := &junitReader{pytest: pytest}
	source := newXMLSource(r, limits)
	d := xml.NewDecoder(source)
	d.CharsetReader = func(charset string, input io.Reader) (io.Reader, error) {
		if strings.EqualFold(charset, "us-ascii") || strings.EqualFold(charset, "ascii") {
			return input, nil
		}
		return nil, fmt.Errorf("the encoding %q is not read, only UTF-8", text.Short(charset, 40))
	}
	for {
		source.nextToken()
		token, err := d.Token()
		if errors.Is(err, io.EOF) && len(x.path) == 0 {
			break
		}
		if err == nil {
			err = x.token(token)
		}
		if err != nil {
			x.fail("the JUnit XML report is broken or cut: %s", text.Short(err.Error(), 200))
			return x
		}
	}
	if !x.rooted {
		x.fail("the JUnit XML report has no element")
	}
	x.compareDeclared()
	return x
}

func (x *junitReader) token(token xml.Token) error {
	switch t := token.(type) {
	case xml.StartElement:
		if len(x.path) == maxDepth {
			return fmt.Errorf("elements are nested more than %d deep", maxDepth)
		}
		if len(x.path) == 0 && t.Name.Local != "testsuites" && t.Name.Local != "testsuite" {
			return fmt.Errorf("it begins with <%s>, not with <testsuites> or <testsuite>", text.Short(t.Name.Local, 40))
		}
		x.rooted = true
		x.path = append(x.path, t.Name.Local)
		x.start(t)
	case xml.EndElement:
		x.path = x.path[:len(x.path)-1]
		x.end(t.Name.Local)
	case xml.CharData:
		if _, isOutcome := outcomes[x.innermost()]; isOutcome && x.open != nil {
			x.message.add(string(t[:min(len(t), maxMessage)]))
		}
	}
	return nil
}

// innermost is the innermost open element.
func (x *junitReader) innermost() string {
	if len(x.path) == 0 {
		return ""
	}
	return x.path[len(x.path)-1]
}

// outcomes are the elements that set the outcome of a case.
var outcomes = map[string]evidence.Outcome{"failure": evidence.Failed, "error": evidence.Errored, "skipped": evidence.Skipped}

// statuses are the outcomes of dialects that have them in an attribute.
var statuses = map[string]evidence.Outcome{
	"notrun": evidence.Skipped, "suppressed": evidence.Skipped, "skipped": evidence.Skipped, "disabled": evidence.Skipped, "ignored": evidence.Skipped,
	"fail": evidence.Failed, "failed": evidence.Failed, "failure": evidence.Failed, "error": evidence.Errored, "errored": evidence.Errored,
}

// worse orders outcomes: of several outcomes of a case the worst counts.
func worse(a, b evidence.Outcome) bool {
	order := []evidence.Outcome{evidence.Passed, evidence.Skipped, evidence.XFailed, evidence.Failed, evidence.Errored}
	return slices.Index(order, a) > slices.Index(order, b)
}

func (x *junitReader) start(t xml.StartElement) {
	switch t.Name.Local {
	case "testsuites", "testsuite":
		name := attr(t, "name")
		x.pytest = x.pytest || name == "pytest" || name == "pytest tests"
		x.suites = append(x.suites, name)
		switch tests, bad := number(t, "tests"), number(t, "failures")+number(t, "errors"); strings.Join(x.path, "/") {
		case "testsuites":
			x.rootTests, x.rootBad = tests, bad
		case "testsuite", "testsuites/testsuite":
			x.tests, x.bad = min(x.tests+tests, maxCount), min(x.bad+bad, maxCount)
		}
	case "testcase":
		if x.open != nil {
			return // a nested case counts with its parent
		}
		x.spoken, x.message = false, head{}
		x.class, x.file = attr(t, "classname"), attr(t, "file")
		x.open = &evidence.Case{Name: attr(t, "name"), Suite: x.class, Outcome: evidence.Passed}
		if x.open.Suite == "" && len(x.suites) > 0 {
			x.open.Suite = x.suites[len(x.suites)-1]
		}
		for _, key := range []string{"result", "status"} {
			if o, known := statuses[strings.ToLower(attr(t, key))]; known && worse(o, x.open.Outcome) {
				x.open.Outcome = o
			}
		}
	case "failure", "error", "skipped":
		x.outcome(t)
	}
}

func (x *junitReader) outcome(t xml.StartElement) {
	outcome := outcomes[t.Name.Local]
	if outcome != evidence.Skipped {
		x.badElements++
	}
	// A case of pytest that did not run because a failure was expected is skipped.
	if attr(t, "type") == "pytest.xfail" && !strings.HasPrefix(attr(t, "message"), "[NOTRUN]") {
		outcome = evidence.XFailed
	}
	switch {
	case x.open == nil && t.Name.Local != "skipped":
		// An error of a suite has no case.
		suite := strings.Join(x.suites, ".")
		x.add(evidence.Case{ID: suite, Suite: suite, Outcome: outcome, Message: attr(t, "message")})
	case x.open == nil, worse(x.open.Outcome, outcome), x.spoken && outcome == x.open.Outcome:
	default:
		x.spoken, x.open.Outcome, x.message = true, outcome, head{}
		if message := attr(t, "message"); message != "" {
			x.message.add(message + "\n")
		}
	}
}

func (x *junitReader) end(element string) {
	switch {
	case element == "testsuites", element == "testsuite":
		x.suites = x.suites[:len(x.suites)-1]
	case element == "testcase" && x.open != nil && !slices.Contains(x.path, "testcase"):
		c := *x.open
		c.Message = x.message.String()
		c.ID = strings.TrimPrefix(c.Suite+"."+c.Name, ".")
		if x.pytest {
			c.ID = pytestID(x.file, x.class, c.Name)
		}
		x.add(c)
		x.open = nil
	}
}

// compareDeclared finds a report that declares more than it has. Dialects count
// differently: several failures of one case are one or several, and an error can be a test
// of its own.
func (x *junitReader) compareDeclared() {
	tests, bad := max(x.tests, x.rootTests), max(x.bad, x.rootBad)
	if c := x.counts; tests > c.Total+c.Errored || bad > max(c.Failed+c.Errored, x.badElements) {
		x.fail("the report declares %d tests with %d failures and errors, and it has %d with %d", tests, bad, c.Total, c.Failed+c.Errored)
	}
}

// attr is an attribute of an element, shortened.
func attr(t xml.StartElement, key string) string {
	for _, a := range t.Attr {
		if a.Name.Local == key && a.Name.Space == "" {
			return text.Short(a.Value, 4*maxName)
		}
	}
	return ""
}

// number is the value of a numeric attribute, 0 without one.
func number(t xml.StartElement, key string) int {
	n, _ := strconv.Atoi(attr(t, key)) // text that is not a number declares nothing
	return max(0, min(n, maxCount))
}

// pytestModule matches the names of modules that pytest collects.
var pytestModule = regexp.MustCompile(`^test_|_test$|^conftest$`)

// pytestID is the node ID of a case of pytest, such as "tests/test_a.py::TestX::test_b[1]".
// The report has the path and the classes in one name, "tests.test_a.TestX", and the file
// in an older form only. Classes are last: they begin with a capital letter, or follow a
// module that is named like one of tests.
func pytestID(file, class, name string) string {
	if class == "" {
		// A file that could not be collected is a case without a class.
		if file == "" {
			file = strings.ReplaceAll(name, ".", "/") + ".py"
		}
		return file
	}
	words := strings.Split(class, ".")
	module := len(words)
	for module > 1 && startsWithCapital(words[module-1]) {
		module--
	}
	for i := module; i > 0; i-- {
		if pytestModule.MatchString(words[i-1]) {
			module = i
			break
		}
	}
	if file == "" {
		file = strings.Join(words[:module], "/") + ".py"
	} else if n := len(strings.Split(strings.TrimSuffix(file, ".py"), "/")); n <= len(words) {
		module = n
	}
	return strings.Join(append(append([]string{file}, words[module:]...), name), "::")
}

func startsWithCapital(word string) bool {
	r, _ := utf8.DecodeRuneInString(word)
	return unicode.IsUpper(r)
}
