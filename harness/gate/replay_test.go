package gate

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/policy"
)

// TestDifferences: every expected signal has a difference of its own, and what a
// document does not say is not expected.
func TestDifferences(t *testing.T) {
	want := evidence.Gates{
		Workspace: "w", BehaviorHash: "h",
		Commands:  []evidence.GateCommand{{Cmd: "pytest", Ending: "exited", Passed: 2, LogSHA256: "l"}},
		Artifacts: []evidence.HashedFile{{FilePath: "evidence/outputs/01/a", SHA256: "1"}},
	}
	got := evidence.Gates{BehaviorHash: "h", Artifacts: want.Artifacts}
	ran := ReplayedCommand{Cmd: "pytest", Ending: "exited", ExitCode: new(0), Passed: 2, LogSHA256: "l"}
	require.Empty(t, differences(want, got, []*int{new(0)}, []ReplayedCommand{ran}))

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
			require.Equal(t, []Difference{c.want}, differences(want, g, []*int{new(0)}, []ReplayedCommand{r}))
		})
	}
	// A document of the seed's keys expects its exit codes only.
	bare := evidence.Gates{Commands: []evidence.GateCommand{{Cmd: "pytest"}}}
	require.Empty(t, differences(bare, got, []*int{new(0)}, []ReplayedCommand{ran}))
}

// TestBareGates: a document of the seed's keys names no image, and is run in the default
// one.
func TestBareGates(t *testing.T) {
	for _, image := range []string{"", "debian"} {
		rec := &recording{gates: evidence.Gates{
			IOBoundary: "repo/", Offline: true, Image: image, Commands: []evidence.GateCommand{{Cmd: "pytest -q", ExpectExit: 1}},
		}}
		m, findings, err := rec.specFromGates(policy.Policy{}, t.TempDir())
		require.NoError(t, err)
		require.Empty(t, findings)
		require.Equal(t, []string{"pytest -q"}, m.GateCommands)
		require.Equal(t, 1, m.Gates[0].ExpectExit)
		require.Equal(t, image, m.Toolchain.Image)
	}
}
