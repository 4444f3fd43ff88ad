package report

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/text"
)

const (
	// maxName and maxMessage bound a name and a message in bytes.
	maxName    = 1 << 10
	maxMessage = 8 << 10
)

type suites struct {
	XMLName xml.Name `xml:"testsuites"`
	Name    string   `xml:"name,attr"`
	totals
	Time   string  `xml:"time,attr,omitempty"`
	Suites []suite `xml:"testsuite"`
}

type suite struct {
	Name string `xml:"name,attr"`
	totals
	Time       string     `xml:"time,attr,omitempty"`
	Properties []property `xml:"properties>property,omitempty"`
	Cases      []testCase `xml:"testcase"`
}

type totals struct {
	Tests    int `xml:"tests,attr"`
	Failures int `xml:"failures,attr"`
	Errors   int `xml:"errors,attr"`
	Skipped  int `xml:"skipped,attr"`
}

func (t *totals) add(c testCase) {
	t.Tests++
	switch {
	case c.Failure != nil:
		t.Failures++
	case c.Error != nil:
		t.Errors++
	case c.Skipped != nil:
		t.Skipped++
	}
}

type property struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type testCase struct {
	Class   string   `xml:"classname,attr"`
	Name    string   `xml:"name,attr"`
	Time    string   `xml:"time,attr,omitempty"`
	Failure *problem `xml:"failure"`
	Error   *problem `xml:"error"`
	Skipped *problem `xml:"skipped"`
}

type problem struct {
	Message string `xml:"message,attr,omitempty"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",chardata"`
}

// JUnit is the evidence as JUnit XML, as Jenkins, GitLab and others read it. The numbers are
// those of the tests: each gate is a suite with its test cases. The command is a case of its own
// only if there are no test cases, or if they do not explain its end. The verdict is in the
// properties of the first suite, with its warnings. That suite has a case only if there are findings that no
// case of a gate shows, so that a gate that did not pass is never green. A property of a
// suite counts the cases that the evidence has left out.
func JUnit(in Input) ([]byte, error) {
	all := suites{Name: line(cmp.Or(in.Manifest.Name, "gate")), Suites: []suite{{Name: "gate", Properties: []property{
		{"status", line(string(in.Verdict.Status))}, {"stop_reason", line(string(in.Verdict.StopReason))},
		{"wish_sha256", line(in.Verdict.WishSHA256)}, {"manifest_sha256", line(in.Verdict.ManifestSHA256)}, {"behavior_hash", line(in.Verdict.BehaviorHash)},
	}}}}
	for _, w := range in.Verdict.Warnings {
		all.Suites[0].Properties = append(all.Suites[0].Properties, property{"warning", line(w.Detail)})
	}
	red, took := map[int]bool{}, 0.0
	for _, c := range in.Tests.Commands {
		s := gateSuite(c, in.Times[c.Index])
		for _, one := range s.Cases {
			s.add(one)
			all.add(one)
		}
		red[c.Index] = s.Failures+s.Errors > 0
		took += in.Times[c.Index].Seconds
		all.Suites = append(all.Suites, s)
	}
	all.Time = seconds(took)
	if c, ok := verdictCase(in, red, all.Failures+all.Errors > 0); ok {
		first := &all.Suites[0]
		first.Cases = append(first.Cases, c)
		first.add(c)
		all.add(c)
	}
	text, err := xml.MarshalIndent(all, "", "  ")
	if err != nil {
		return nil, err
	}
	return slices.Concat([]byte(xml.Header), text, []byte("\n")), nil
}

// verdictCase is the case of a verdict that is not PASS. red are the gates with a failing case;
// without any there is always a case.
func verdictCase(in Input, red map[int]bool, anyRed bool) (testCase, bool) {
	v := in.Verdict
	if v.Status == evidence.Pass {
		return testCase{}, false
	}
	causes, _ := Causes(v, in.Tests)
	var all strings.Builder
	for _, f := range causes {
		shown := endsCommand(f.Reason) || f.Reason == evidence.ReasonRegression || ofTests(f)
		if f.Gate > 0 && red[f.Gate] && shown {
			continue
		}
		gate := ""
		if f.Gate > 0 {
			gate = fmt.Sprintf(" in gate %d", f.Gate)
		}
		fmt.Fprintf(&all, "%s%s: %s\n", f.Reason, gate, f.Detail)
	}
	if anyRed && all.Len() == 0 {
		return testCase{}, false
	}
	return testCase{Class: "gate", Name: "verdict", Failure: &problem{
		Message: line(fmt.Sprintf("%s: %s", v.Status, v.StopReason)), Type: line(string(v.StopReason)), Text: body(all.String()),
	}}, true
}

func gateSuite(c evidence.CommandTests, times Times) suite {
	name := fmt.Sprintf("gate %d: %s", c.Index, c.Command)
	s := suite{Name: line(name), Time: seconds(times.Seconds), Properties: []property{{"command", line(c.Command)}, {"kind", line(string(c.Kind))}}}
	if c.CasesDropped > 0 {
		s.Properties = append(s.Properties, property{"cases_left_out", fmt.Sprint(c.CasesDropped)})
	}
	for _, one := range c.Cases {
		t := caseOf(one)
		if took, known := times.Cases[one.ID]; known {
			t.Time = strconv.FormatFloat(took, 'f', 3, 64) // a fast test takes 0.000
		}
		s.Cases = append(s.Cases, t)
	}
	if len(c.Cases) > 0 && (Met(c) || explains(c)) {
		return s
	}
	end := testCase{Class: fmt.Sprintf("gate %d", c.Index), Name: "command", Time: s.Time}
	if !Met(c) {
		end.Failure = &problem{Message: line(ended(c)), Type: line(cmp.Or(c.Ending, "failed")), Text: body(fmt.Sprintf("%s\nexpected was exit code %d", c.Command, c.ExpectExit))}
	}
	s.Cases = append(s.Cases, end)
	return s
}

// seconds is a time for an attribute; empty if it is not known.
func seconds(n float64) string {
	if n <= 0 {
		return ""
	}
	return strconv.FormatFloat(n, 'f', 3, 64)
}

func caseOf(c evidence.Case) testCase {
	t := testCase{Class: line(cmp.Or(c.Suite, "tests")), Name: line(cmp.Or(c.Name, c.ID))}
	p := &problem{Message: line(Reason(c)), Text: body(c.Message)}
	switch c.Outcome {
	case evidence.Passed, evidence.XPassed:
	case evidence.Skipped:
		t.Skipped = &problem{Message: p.Message}
	case evidence.XFailed:
		t.Skipped = &problem{Message: line("failed as expected: " + Reason(c)), Type: "xfail"}
	case evidence.Errored:
		t.Error = p
	case evidence.Failed:
		t.Failure = p
	default:
		// An unknown outcome is never a pass.
		p.Message = line("unknown outcome " + string(c.Outcome))
		t.Error = p
	}
	return t
}

// line is text for an attribute.
func line(untrusted string) string {
	return text.Short(strings.Join(strings.FieldsFunc(harmless(untrusted), func(r rune) bool { return r == '\n' || r == '\t' }), " "), maxName)
}

// body is text for an element.
func body(untrusted string) string { return text.Short(harmless(untrusted), maxMessage) }
