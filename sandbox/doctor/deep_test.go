package doctor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/probe"
)

func TestJudgeProbes(t *testing.T) {
	got := judgeProbes([]probe.Verdict{
		{Group: "confinement", Name: "a"}, {Group: "comfort", Name: "b_c", Differs: []string{"x is 1, not 2"}}, {Group: "confinement", Name: "d"},
		{Group: "ends", Name: "exit 3", Differs: []string{"y", "z"}}, {Group: "ends", Name: "exit 4"},
	})
	require.Len(t, got, 3)
	require.Equal(t, Finding{Check: "confinement", Verdict: OK, Seen: "2 of 2 probes are as expected"}, got[0])
	require.Equal(t, []any{"comfort", Warn, "b c: x is 1, not 2"}, []any{got[1].Check, got[1].Verdict, got[1].Seen})
	require.Equal(t, []any{"ends", Fail, "exit 3: y; z"}, []any{got[2].Check, got[2].Verdict, got[2].Seen})
}
