package gate

import (
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// TestCompareGates: every expected signal has a difference of its own, and what a
// document does not say is not expected.
func TestCompareGates(t *testing.T) {
	want := evidence.Gates{
		Workspace: "w", BehaviorHash: "h",
		Commands:  []evidence.GateCommand{{Cmd: "pytest", Ending: "exited", Passed: 2, LogSHA256: "l"}},
		Artifacts: []evidence.HashedFile{{FilePath: "evidence/outputs/01/a", SHA256: "1"}},
	}
	got := evidence.Gates{BehaviorHash: "h", Artifacts: want.Artifacts}
	ran := ReplayedCommand{Cmd: "pytest", Ending: "exited", ExitCode: new(0), Passed: 2, LogSHA256: "l"}
	require.Empty(t, compareGates(want, got, []*int{new(0)}, []ReplayedCommand{ran}))

	for name, c := range map[string]struct {
		change func(*evidence.Gates, *ReplayedCommand)
		want   Difference
	}{
		"exit code":    {func(_ *evidence.Gates, r *ReplayedCommand) { r.ExitCode = new(1) }, Difference{1, "exit_code", "", "0", "1"}},
		"no exit code": {func(_ *evidence.Gates, r *ReplayedCommand) { r.ExitCode = nil }, Difference{1, "exit_code", "", "0", "none"}},
		"ending":       {func(_ *evidence.Gates, r *ReplayedCommand) { r.Ending = "timed_out" }, Difference{1, "ending", "", "exited", "timed_out"}},
		"passed":       {func(_ *evidence.Gates, r *ReplayedCommand) { r.Passed = 1 }, Difference{1, "passed", "", "2", "1"}},
		"log":          {func(_ *evidence.Gates, r *ReplayedCommand) { r.LogSHA256 = "m" }, Difference{1, "log", "", "l", "m"}},
		"behaviour":    {func(g *evidence.Gates, _ *ReplayedCommand) { g.BehaviorHash = "i" }, Difference{0, "behavior_hash", "", "h", "i"}},
		"artifact": {func(g *evidence.Gates, _ *ReplayedCommand) { g.Artifacts = nil },
			Difference{0, "artifact", "evidence/outputs/01/a", "1", ""}},
		"more artifacts": {func(g *evidence.Gates, _ *ReplayedCommand) {
			g.Artifacts = append(g.Artifacts[:1:1], evidence.HashedFile{FilePath: "evidence/outputs/01/b", SHA256: "2"})
		}, Difference{0, "artifact", "evidence/outputs/01/b", "", "2"}},
	} {
		t.Run(name, func(t *testing.T) {
			g, r := got, ran
			c.change(&g, &r)
			require.Equal(t, []Difference{c.want}, compareGates(want, g, []*int{new(0)}, []ReplayedCommand{r}))
		})
	}
	// A document of the seed's keys expects its exit codes only.
	bare := evidence.Gates{Commands: []evidence.GateCommand{{Cmd: "pytest"}}}
	require.Empty(t, compareGates(bare, got, []*int{new(0)}, []ReplayedCommand{ran}))
}

func TestReordered(t *testing.T) {
	of := func(unordered string, logs ...string) (tests evidence.Tests) {
		for i, log := range logs {
			tests.Commands = append(tests.Commands, evidence.CommandTests{
				Index: i + 1, LogSHA256: log, Source: evidence.ReportPytest, UnorderedSHA256: unordered, Cases: []evidence.Case{{ID: "a", Outcome: evidence.Passed}},
			})
		}
		return tests
	}
	other := of("s", "b")
	other.Commands[0].Source = evidence.ReportNone
	mixed := of("s", "b", "b")
	mixed.Commands[1].UnorderedSHA256 = "r"
	skipped := of("s", "b")
	skipped.Commands[0].Cases[0].Outcome = evidence.Skipped
	for name, c := range map[string]struct {
		want, got evidence.Tests
		reordered bool
	}{
		"in parallel":          {of("s", "a", "b"), of("s", "a", "c"), true},
		"other lines":          {of("s", "a"), of("r", "b"), false},
		"other lines in one":   {of("s", "a", "a"), mixed, false},
		"equal logs":           {of("s", "a"), of("s", "a"), false},
		"one by one":           {of("", "a"), of("", "b"), false},
		"only one in parallel": {of("", "a"), of("s", "b"), false},
		"another report":       {of("s", "a"), other, false},
		"another outcome":      {of("s", "a"), skipped, false},
		"another gate":         {of("s", "a"), of("s", "b", "c"), false},
	} {
		require.Equal(t, c.reordered, reordered(c.want, c.got), name)
	}
}

func TestCompareTests(t *testing.T) {
	base := func() evidence.CommandTests {
		return evidence.CommandTests{
			Index: 1, Command: "pytest", Ending: "exited", ExitCode: new(0), Counts: &evidence.Counts{Total: 2, Passed: 2},
			Cases: []evidence.Case{{ID: "a", Outcome: evidence.Passed, Message: "1"}, {ID: "b", Outcome: evidence.Passed}},
		}
	}
	for name, c := range map[string]struct {
		change          func(*evidence.CommandTests)
		subject, detail string
	}{
		"same":        {func(c *evidence.CommandTests) { c.Cases[0].Message = "2" }, "", ""},
		"code":        {func(c *evidence.CommandTests) { c.ExitCode = new(1) }, "pytest", "end: exited with code 0, exited with code 1"},
		"ending":      {func(c *evidence.CommandTests) { c.Ending, c.ExitCode = "timed_out", nil }, "pytest", "end: exited with code 0, timed_out"},
		"outcome":     {func(c *evidence.CommandTests) { c.Cases[1].Outcome = evidence.Failed }, "b", "outcome: passed, failed"},
		"fewer cases": {func(c *evidence.CommandTests) { c.Cases = c.Cases[:1] }, "b", "outcome: passed, missing"},
		"more cases": {func(c *evidence.CommandTests) {
			c.Cases = append(c.Cases, evidence.Case{ID: "c", Outcome: evidence.Skipped})
		}, "c", "outcome: missing, skipped"},
		"other case":   {func(c *evidence.CommandTests) { c.Cases[0].ID = "A" }, "A", "outcome: missing, passed"},
		"one of many":  {func(c *evidence.CommandTests) { c.Cases, c.CasesDropped = c.Cases[1:], 1 }, "", ""},
		"only numbers": {func(c *evidence.CommandTests) { c.Counts.Passed = 1 }, "pytest", "count of passed tests: 2 of 2, 1 of 2"},
	} {
		t.Run(name, func(t *testing.T) {
			other := base()
			c.change(&other)
			d := compareTests(evidence.Tests{Commands: []evidence.CommandTests{base()}}, evidence.Tests{Commands: []evidence.CommandTests{other}})
			if c.subject == "" {
				require.Nil(t, d)
				return
			}
			require.NotNil(t, d)
			require.Equal(t, c.subject, d.Subject)
			require.Equal(t, c.detail, d.Signal+": "+d.Want+", "+d.Got)
		})
	}
	require.Equal(t, "number of commands with a result", compareTests(evidence.Tests{}, evidence.Tests{Commands: []evidence.CommandTests{base()}}).Signal)
}

func TestCompareLines(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	for name, c := range map[string]struct {
		want, got string
		line      *Line
	}{
		"both empty":          {"", "", nil},
		"equal":               {"a\nb\n", "a\nb\n", nil},
		"second line":         {"a\nb\nc\n", "a\nB\nc\n", &Line{2, "b", "B"}},
		"first is shorter":    {"a\n", "a\nb\n", &Line{2, "", "b"}},
		"second is shorter":   {"a\nb\n", "a\n", &Line{2, "b", ""}},
		"no newline at end":   {"a\nb", "a\nb\n", &Line{2, "b", "b"}},
		"end of a long line":  {"a\n" + long + "1\n", "a\n" + long + "2\n", &Line{2, strings.Repeat("x", 3392) + "1", ""}},
		"after a long line":   {long + "\nb", long + "\nc", &Line{2, "b", "c"}},
		"not UTF-8":           {"\xff\n", "\xfe\n", &Line{1, "�", "�"}},
		"one is much shorter": {long, "", &Line{1, long[:maxShown] + "…", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			line, err := compareLines(strings.NewReader(c.want), strings.NewReader(c.got))
			require.NoError(t, err)
			if name == "end of a long line" { // what is shown is bounded
				require.Equal(t, 2, line.Line)
				require.LessOrEqual(t, len(line.Want), maxShown+len("…"))
				return
			}
			require.Equal(t, c.line, line)
		})
	}
	failed := errors.New("broken")
	_, err := compareLines(iotest.ErrReader(failed), strings.NewReader(""))
	require.ErrorIs(t, err, failed)
}
