package testreport

import (
	"bufio"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/text"
)

const (
	// maxDepth bounds how deep the elements of a report are nested.
	maxDepth = 64
	// maxReport bounds a report, and maxToken a tag with its attributes and a text, both in
	// bytes. The decoder holds each tag and text in memory.
	maxReport = 64 << 20
	maxToken  = 8 << 20
)

// xmlSource reads a report for the decoder, within the limits. Bytes and characters that
// XML forbids become U+FFFD: programs print them, and few report writers escape them.
type xmlSource struct {
	*bufio.Reader
	read, token int    // bytes of the report, and of the current token
	pending     string // bytes of the current character
}

// ReadByte exists because a decoder with it reads byte by byte, and so no token ahead.
func (s *xmlSource) ReadByte() (byte, error) {
	if len(s.pending) == 0 {
		r, size, err := s.ReadRune()
		if err != nil {
			return 0, err
		}
		if s.read += size; s.read > maxReport {
			return 0, fmt.Errorf("it has more than %d bytes", maxReport)
		}
		if r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xfffe || r == 0xffff {
			r = utf8.RuneError
		}
		s.pending = string(r)
	}
	if s.token++; s.token > maxToken {
		return 0, fmt.Errorf("a tag or text has more than %d bytes", maxToken)
	}
	b := s.pending[0]
	s.pending = s.pending[1:]
	return b, nil
}

// junitReader reads JUnit XML. Its dialects agree on the names of the elements only.
type junitReader struct {
	keeper
	// pytest is true if pytest wrote the report: the IDs of its cases are node IDs.
	pytest bool
	// path has the open elements, suites the names of the open suites.
	path, suites []string
	// open is the open case, nil outside of one.
	open    *evidence.Case
	message head
	decided bool // an element set the outcome of the open case
	// badElements counts elements of failures and errors, of which a case can have several.
	badElements int
	// tests and bad are the numbers of tests and of failures and errors that the outermost
	// suites declare, and rootTests and rootBad those that the root element declares.
	tests, bad, rootTests, rootBad int
}

// readJUnit reads a report. If it finds a problem, it keeps the cases before it.
func readJUnit(r io.Reader, pytest bool) *junitReader {
	x := &junitReader{pytest: pytest}
	source := &xmlSource{Reader: bufio.NewReader(r)}
	d := xml.NewDecoder(source)
	d.CharsetReader = func(charset string, input io.Reader) (io.Reader, error) {
		if strings.EqualFold(charset, "us-ascii") || strings.EqualFold(charset, "ascii") {
			return input, nil
		}
		return nil, fmt.Errorf("the encoding %q is not read, only UTF-8", text.Short(charset, 40))
	}
	for rooted := false; ; rooted = rooted || len(x.path) > 0 {
		source.token = 0
		token, err := d.Token()
		if errors.Is(err, io.EOF) && len(x.path) == 0 {
			if !rooted {
				x.fail("the JUnit XML report has no element")
			}
			x.compareDeclared()
			return x
		}
		if err == nil {
			err = x.take(token)
		}
		if err != nil {
			x.fail("the JUnit XML report is broken or cut: %s", text.Short(err.Error(), 200))
			return x
		}
	}
}

func (x *junitReader) take(token xml.Token) error {
	switch t := token.(type) {
	case xml.StartElement:
		switch {
		case len(x.path) == maxDepth:
			return fmt.Errorf("elements are nested more than %d deep", maxDepth)
		case len(x.path) == 0 && t.Name.Local != "testsuites" && t.Name.Local != "testsuite":
			return fmt.Errorf("it begins with <%s>, not with <testsuites> or <testsuite>", text.Short(t.Name.Local, 40))
		}
		x.path = append(x.path, t.Name.Local)
		x.start(t)
	case xml.EndElement:
		x.path = x.path[:len(x.path)-1]
		x.end(t.Name.Local)
	case xml.CharData:
		if x.open != nil && outcomes[x.path[len(x.path)-1]] != "" {
			x.message.add(string(t[:min(len(t), maxMessage)]))
		}
	}
	return nil
}

// outcomes are the elements that set the outcome of a case.
var outcomes = map[string]evidence.Outcome{"failure": evidence.Failed, "error": evidence.Errored, "skipped": evidence.Skipped}

// statuses are the outcomes of dialects that have them in an attribute.
var statuses = map[string]evidence.Outcome{
	"notrun": evidence.Skipped, "suppressed": evidence.Skipped, "skipped": evidence.Skipped, "disabled": evidence.Skipped, "ignored": evidence.Skipped,
	"fail": evidence.Failed, "failed": evidence.Failed, "failure": evidence.Failed, "error": evidence.Errored, "errored": evidence.Errored,
}

// ranks order outcomes: of several outcomes of a case the worst counts.
var ranks = map[evidence.Outcome]int{evidence.Passed: 0, evidence.Skipped: 1, evidence.XFailed: 2, evidence.Failed: 3, evidence.Errored: 4}

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
			x.tests, x.bad = x.tests+tests, x.bad+bad
		}
	case "testcase":
		if x.open != nil {
			return // a nested case counts with its parent
		}
		x.decided, x.message = false, head{}
		class, name := attr(t, "classname"), attr(t, "name")
		x.open = &evidence.Case{Name: name, Suite: cmp.Or(class, x.suites[len(x.suites)-1]), Outcome: evidence.Passed}
		x.open.ID = strings.TrimPrefix(x.open.Suite+"."+name, ".")
		if x.pytest {
			x.open.ID = pytestID(attr(t, "file"), class, name)
		}
		if seconds, err := strconv.ParseFloat(attr(t, "time"), 64); err == nil {
			x.took(x.open.ID, seconds)
		}
		for _, key := range []string{"result", "status"} {
			if o := statuses[strings.ToLower(attr(t, key))]; ranks[o] > ranks[x.open.Outcome] {
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
	case x.open == nil:
	case ranks[outcome] > ranks[x.open.Outcome], outcome == x.open.Outcome && !x.decided:
		x.decided, x.open.Outcome, x.message = true, outcome, head{}
		x.message.add(attr(t, "message") + "\n")
	}
}

func (x *junitReader) end(element string) {
	switch {
	case element == "testsuites", element == "testsuite":
		x.suites = x.suites[:len(x.suites)-1]
	case element == "testcase" && x.open != nil && !slices.Contains(x.path, "testcase"):
		x.open.Message = x.message.String()
		x.add(*x.open)
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
	return n
}

var (
	// pytestModule matches the names of modules that pytest collects.
	pytestModule = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^test_|_test$|^conftest$`) })
	capital      = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\p{Lu}`) })
)

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
	for module > 1 && capital().MatchString(words[module-1]) {
		module--
	}
	for i := module; i > 0; i-- {
		if pytestModule().MatchString(words[i-1]) {
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
