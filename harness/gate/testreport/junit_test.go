package testreport

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestReportsAreBounded: a report, a tag and a text each have a limit, and the cases before
// the problem are kept.
func TestReportsAreBounded(t *testing.T) {
	const begin = `<testsuite name="s" tests="1"><testcase classname="c" name="a"/>`
	long := strings.Repeat("x", maxToken+1)
	const tooLong, tooMuch = "more than 8388608 bytes", "more than 67108864 bytes"
	for _, c := range []struct{ name, report, problem string }{
		{"attributes", begin + `<property ` + strings.Repeat(`a="x" `, maxToken/6) + `/>`, tooLong},
		{"name", begin + "<" + long, tooLong},
		{"instruction", begin + "<?" + long, tooLong},
		{"directive", begin + "<!DOCTYPE " + long, tooLong},
		{"text", begin + long, tooLong},
		{"data", begin + "<![CDATA[" + long, tooLong},
		{"comment", begin + "<!--" + long, tooLong},
		{"report", begin + strings.Repeat("<!--"+long[:maxToken/2]+"-->", 17), tooMuch},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := readJUnit(strings.NewReader(c.report), false)
			assert.Contains(t, x.problem, c.problem)
			assert.Equal(t, 1, x.counts.Passed)
		})
	}
	fits := long[:maxToken-100]
	assert.Empty(t, readJUnit(strings.NewReader(begin+"<system-out>"+fits+"<![CDATA["+fits+"]]></system-out></testsuite>"), false).problem)
}
