package normalize_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/normalize"
)

// FuzzText normalizes any text: a second time changes nothing, no line is lost but those of
// lists of the slowest tests and of progress, and hints hide no match.
func FuzzText(f *testing.F) {
	for _, c := range sameAfter {
		f.Add([]byte(c.a + "\n" + c.b))
	}
	for _, c := range kept {
		f.Add([]byte(c))
	}
	f.Add([]byte("=== slowest durations ===\n0.1s call  x\n\n(1 durations < 0.005s hidden.)\n<slowest tests>\nx"))
	f.Add([]byte("bringing up nodes...\n\n..F[gw0] node down: x\nreplacing crashed worker gw0\n.. [ 50%]\n."))
	f.Add([]byte("t.py::test_a[a b] t.py::test_b 12:00:00 [7] INFO x\ntest_a (m.T) ... [7] 28 Nov 12:00:00 * x"))
	f.Add([]byte("1s 2s 3s\r\n\x1b\x1b[m[m\x1b]0;x\x07 12:00:00:12:00:00 [10:20:30] /repo//repo/tmp 0x12345678x"))
	f.Fuzz(func(t *testing.T, in []byte) {
		n := normalizer(t)
		for line := range bytes.Lines(in) {
			assert.Empty(t, n.HiddenByHints(line), "%q", line)
		}
		once := n.Text(in)
		before := n.Counts()
		twice := n.Text(once)
		require.Equal(t, string(once), string(twice))
		assert.Equal(t, before, n.Counts(), "the second time counts nothing")
		assert.GreaterOrEqual(t, bytes.Count(once, []byte("\n"))+listed(before), bytes.Count(in, []byte("\n")))
		normalize.Detect(once, nil) // does not panic
	})
}

// listed are the lines that lists of the slowest tests and of progress lost.
func listed(counts []evidence.RuleCount) (lines int) {
	for _, c := range counts {
		if c.Name == "slowest-tests" || c.Name == "xdist-progress" {
			lines += c.Count
		}
	}
	return lines
}

// FuzzDetect builds lines of values that built-in rules replace: no leftover remains.
func FuzzDetect(f *testing.F) {
	f.Add(uint8(3), uint8(7), " ")
	f.Add(uint8(0), uint8(1), "\t")
	f.Fuzz(func(t *testing.T, a, b uint8, between string) {
		first, second := sameAfter[int(a)%len(sameAfter)], sameAfter[int(b)%len(sameAfter)]
		switch between {
		case " ", "\t", "\n", ", ", " (", "; ":
		default:
			between = "\n"
		}
		// Elsewhere in a line, what is the beginning of a line of a log is a leftover.
		begins := strings.HasPrefix(second.rule, "log-process") || slices.Contains([]string{"syslog-process", "process-prefix", "timestamp-glog", "timestamp-chromium"}, second.rule)
		// Rules leave alone what stands in a line of a test.
		if line := first.a[strings.LastIndexByte(first.a, '\n')+1:]; begins || normalize.IsTested([]byte(line+between+second.a)) {
			between = "\n"
		}
		n := normalizer(t)
		text := n.Text([]byte(first.a + between + second.b + "\n"))
		suspects, total := normalize.Detect(text, nil)
		assert.Zero(t, total, "%q has %v", text, suspects)
		assert.Equal(t, string(text), string(n.Text(text)))
	})
}
