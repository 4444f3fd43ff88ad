package testreport

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestReportsAreBounded: a report, a tag and a text each have a limit, and the cases before
// the problem are kept.
func TestReportsAreBounded(t *testing.T) {
	limits := xmlLimits{report: 20_000, tag: 1000, text: 5000}
	const begin = `<testsuite name="s" tests="1"><testcase classname="c" name="a"/>`
	long := strings.Repeat("x", 5001)
	for _, c := range []struct{ name, report, problem string }{
		{"attributes", begin + `<property ` + strings.Repeat(`a="" `, 1000) + `/>`, "more than 1000 bytes"},
		{"name", begin + "<" + long, "more than 1000 bytes"},
		{"instruction", begin + "<?" + long, "more than 1000 bytes"},
		{"directive", begin + "<!DOCTYPE " + long, "more than 1000 bytes"},
		{"text", begin + long, "more than 5000 bytes"},
		{"data", begin + "<![CDATA[" + long, "more than 5000 bytes"},
		{"comment", begin + "<!--" + long, "more than 5000 bytes"},
		{"attributes after text", begin + "x<property " + strings.Repeat(`a="" `, 1000), "more than 1000 bytes"},
		{"report", begin + strings.Repeat("<!-- x -->", 2000), "more than 20000 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := readJUnit(strings.NewReader(c.report), false, limits)
			assert.Contains(t, x.problem, c.problem)
			assert.Equal(t, 1, x.counts.Passed)
		})
	}
	fits := begin + "<system-out>" + long[:4900] + "<![CDATA[" + long[:4900] + "]]></system-out></testsuite>"
	assert.Empty(t, readJUnit(strings.NewReader(fits), false, limits).problem)
}
