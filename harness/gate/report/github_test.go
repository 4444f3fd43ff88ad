package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

func TestAnnotations(t *testing.T) {
	assert.Empty(t, Annotations(passing(), ""))
	in := blocked()
	first := &in.Tests.Commands[0]
	first.Cases = []evidence.Case{
		{ID: "tests/test_a.py::test_x[1,2]", Outcome: evidence.Failed, Message: "AssertionError: 100% wrong\nmore\n\ntests/test_a.py:3: in helper\nother.py:9: in f\ntests/test_a.py:7: AssertionError"},
		{ID: "example.org/m.TestY", Outcome: evidence.Failed, Message: "    m_test.go:5: no"},
		{ID: "tests/test_b.py", Outcome: evidence.Errored},
	}
	in.Verdict.Findings = append(in.Verdict.Findings, evidence.Finding{Reason: evidence.ReasonNetwork, Gate: 1, Detail: "It tried."})
	assert.Equal(t, "::error file=sub/tests/test_a.py,line=7,title=tests/test_a.py%3A%3Atest_x[1%2C2]::AssertionError: 100%25 wrong\n"+
		"::error title=example.org/m.TestY::m_test.go:5: no\n"+
		"::error file=sub/tests/test_b.py,title=tests/test_b.py::error\n"+
		"::error title=NETWORK_ACCESS_WHEN_OFFLINE in gate 1::It tried.\n", string(Annotations(in, "sub")))
	for range 20 {
		first.Cases = append(first.Cases, first.Cases[0])
	}
	assert.Equal(t, maxAnnotations, bytes.Count(Annotations(in, ""), []byte("\n")))
}

// TestAnnotationsOfHostileText: each line is one error, whatever a test is called.
func TestAnnotationsOfHostileText(t *testing.T) {
	for _, text := range append(hostile, "x\n::set-output name=a::b", "a.py\r::stop-commands::x", "##[add-mask]x", "../../a.py::t", "/etc/a.py::t", "a,line=1.py::t", "a.py:b.py::t") {
		in := blocked()
		in.Tests.Commands[0].Cases = []evidence.Case{{ID: text, Outcome: evidence.Failed, Message: text}}
		all := string(Annotations(in, ""))
		require.NotEmpty(t, all)
		for line := range strings.Lines(all) {
			properties, message, ok := strings.Cut(strings.TrimPrefix(line, "::error "), "::")
			require.True(t, ok, line)
			require.True(t, strings.HasPrefix(line, "::error "), line)
			assert.NotContains(t, properties, "file=..", line)
			assert.NotContains(t, properties, "file=/", line)
			assert.LessOrEqual(t, strings.Count(properties, ","), 2, line)
			assert.NotContains(t, message, "\r")
		}
	}
}

func TestNoCommands(t *testing.T) {
	for in, want := range map[string]string{
		"":                            "",
		"plain: a::b ##x [y]\n":       "plain: a::b ##x [y]\n",
		"::error::x\n":                ": :error::x\n",
		" \t\u00a0::set-env::x":       " \t\u00a0: :set-env::x",
		"a\r::x::y":                   "a\r: :x::y",
		"say ##[add-mask]a ###[b]":    "say ## [add-mask]a ### [b]",
		"\n\n::x\n:x\n: :x\n":         "\n\n: :x\n:x\n: :x\n",
		"tests/a.py::test_b failed\n": "tests/a.py::test_b failed\n",
	} {
		for _, size := range []int{1, 2, 3, 100} { // whatever the pieces are
			var out bytes.Buffer
			w := NoCommands(&out)
			for rest := in; rest != ""; {
				n, err := w.Write([]byte(rest[:min(size, len(rest))]))
				require.NoError(t, err)
				rest = rest[n:]
			}
			assert.Equal(t, want, out.String(), "%q in pieces of %d", in, size)
		}
	}
}
