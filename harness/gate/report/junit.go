package report

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"slices"
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
	Suites []suite `xml:"testsuite"`
}

type suite struct {
	Name string `xml:"name,attr"`
	totals
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
	Failure *problem `xml:"failure"`
	Error   *problem `xml:"error"`
	Skipped *problem `xml:"skipped"`
}

type problem struct {
	Message string `xml:"message,attr,omitempty"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",chardata"`
}

// JUnit is the evidence as JUnit XML, as Jenkins, GitLab and others read it. The first
// suite has one case, the verdict, so that a gate that did not pass is never green. Each
// gate is a suite with its test cases and, as the last one, the end of its command. A
// property of the suite counts the cases that the evidence has left out.
func JUnit(in Input) ([]byte, error) {
	all := suites{Name: line(cmp.Or(in.Manifest.Name, "gate")), Suites: []suite{verdictSuite(in.Verdict)}}
	for _, c := range in.Tests.Commands {
		all.Suites = append(all.Suites, gateSuite(c))
	}
	for i := range all.Suites {
		for _, c := range all.Suites[i].Cases {
			all.Suites[i].add(c)
			all.add(c)
		}
	}
	text, err := xml.MarshalIndent(all, "", "  ")
	if err != nil {
		return nil, err
	}
	return slices.Concat([]byte(xml.Header), text, []byte("\n")), nil
}

func verdictSuite(v evidence.Verdict) suite {
	c := testCase{Class: "gate", Name: "verdict"}
	if v.Status != evidence.Pass {
		var text strings.Builder
		for _, f := range v.Findings {
			in := ""
			if f.Gate > 0 {
				in = fmt.Sprintf(" in gate %d", f.Gate)
			}
			fmt.Fprintf(&text, "%s%s: %s\n", f.Reason, in, f.Detail)
		}
		c.Failure = &problem{Message: line(fmt.Sprintf("%s: %s", v.Status, v.StopReason)), Type: line(string(v.StopReason)), Text: body(text.String())}
	}
	return suite{Name: "gate", Cases: []testCase{c}, Properties: []property{
		{"status", line(string(v.Status))}, {"stop_reason", line(string(v.StopReason))},
		{"wish_sha256", line(v.WishSHA256)}, {"manifest_sha256", line(v.ManifestSHA256)}, {"behavior_hash", line(v.BehaviorHash)},
	}}
}

func gateSuite(c evidence.CommandTests) suite {
	name := fmt.Sprintf("gate %d: %s", c.Index, c.Command)
	s := suite{Name: line(name), Properties: []property{{"command", line(c.Command)}, {"kind", line(string(c.Kind))}}}
	if c.CasesDropped > 0 {
		s.Properties = append(s.Properties, property{"cases_left_out", fmt.Sprint(c.CasesDropped)})
	}
	for _, one := range c.Cases {
		s.Cases = append(s.Cases, caseOf(one))
	}
	end := testCase{Class: fmt.Sprintf("gate %d", c.Index), Name: "command"}
	if !met(c) {
		end.Failure = &problem{Message: line(ended(c)), Type: line(cmp.Or(c.Ending, "failed")), Text: body(fmt.Sprintf("%s\nexpected was exit code %d", c.Command, c.ExpectExit))}
	}
	s.Cases = append(s.Cases, end)
	return s
}

func caseOf(c evidence.Case) testCase {
	t := testCase{Class: line(cmp.Or(c.Suite, "tests")), Name: line(cmp.Or(c.Name, c.ID))}
	p := &problem{Message: line(firstLine(c.Message)), Text: body(c.Message)}
	switch c.Outcome {
	case evidence.Passed, evidence.XPassed:
	case evidence.Skipped:
		t.Skipped = &problem{Message: p.Message}
	case evidence.XFailed:
		t.Skipped = &problem{Message: line("failed as expected: " + firstLine(c.Message)), Type: "xfail"}
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

func firstLine(text string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return first
}

// line is text for an attribute.
func line(untrusted string) string {
	return text.Short(strings.Join(strings.FieldsFunc(harmless(untrusted), func(r rune) bool { return r == '\n' || r == '\t' }), " "), maxName)
}

// body is text for an element.
func body(untrusted string) string { return text.Short(harmless(untrusted), maxMessage) }
