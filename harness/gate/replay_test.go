package gate

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/policy"
)

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

// TestOutputsIn: the outputs of a pass are compared by their paths in it.
func TestOutputsIn(t *testing.T) {
	all := evidence.Artifacts{Artifacts: []evidence.HashedFile{
		{FilePath: "evidence/outputs/01/a", SHA256: "1"}, {FilePath: "evidence/raw/repeat-2/outputs/01/a", SHA256: "2"},
		{FilePath: "evidence/raw/repeat-2/01.stdout.log", SHA256: "3"}, {FilePath: "evidence/raw/repeat-3/outputs/01/a", SHA256: "4"},
	}}
	require.Equal(t, []evidence.HashedFile{{FilePath: "01/a", SHA256: "1"}}, outputsIn(all, "evidence/outputs/"))
	require.Equal(t, []evidence.HashedFile{{FilePath: "01/a", SHA256: "2"}}, outputsIn(all, "evidence/raw/repeat-2/outputs/"))
}
