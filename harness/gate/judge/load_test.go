package judge

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// written is a gate directory with the evidence of a pass.
func written(t *testing.T, in Input) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { root.Close() })
	in.Tests.Commands[0].LogSHA256 = hash
	for name, document := range map[string]any{
		evidence.WishLockFile: map[string]any{"sha256": hash}, evidence.RunManifestFile: in.Manifest, evidence.PlanFile: in.Plan,
		evidence.TestsFile: in.Tests, evidence.ObservationsFile: in.Observations, evidence.NormalizationFile: in.Normalization,
		evidence.EnvSnapshotFile: in.Env, evidence.FindingsFile: evidence.Findings{Pre: in.Pre, Differences: in.Differences},
	} {
		require.NoError(t, evidence.Write(root, name, document))
	}
	for _, name := range append(rawLogs("", 1), evidence.RunLogFile, evidence.OutputsDir+"/01/a.bin") {
		require.NoError(t, evidence.WriteText(root, name, []byte("text of "+name+"\n")))
	}
	require.NoError(t, evidence.WriteText(root, evidence.BehaviorHashFile, []byte(in.BehaviorHash+"\n")))
	sealed(t, root)
	return root
}

// sealed hashes the files anew, as somebody would who edited them.
func sealed(t *testing.T, root *os.Root) {
	t.Helper()
	_, err := evidence.HashArtifacts(t.Context(), root)
	require.NoError(t, err)
	_, err = evidence.WriteManifest(t.Context(), root)
	require.NoError(t, err)
}

func judged(t *testing.T, root *os.Root) evidence.Verdict {
	t.Helper()
	in, err := Load(t.Context(), root)
	require.NoError(t, err)
	return Judge(in)
}

func TestLoadAndJudge(t *testing.T) {
	root := written(t, passing())
	v := judged(t, root)
	assert.Equal(t, evidence.Pass, v.Status, "%+v", v.Findings)
	assert.Equal(t, 15, v.EvidenceSummary.Files)
	assert.Equal(t, v, judged(t, root))

	in := passing()
	in.Pre = []evidence.Finding{{Reason: evidence.ReasonToolRefused, Detail: "No."}}
	in.Differences = []evidence.Finding{{Reason: evidence.ReasonNonReproducible, Detail: "Other."}}
	v = judged(t, written(t, in))
	assert.Equal(t, evidence.ReasonToolRefused, v.StopReason)
	assert.Len(t, v.Findings, 2)
}

// TestEveryFileIsNeeded: without any of them, and with any of them spoilt, there is no
// pass, with and without the hashes fitting.
func TestEveryFileIsNeeded(t *testing.T) {
	for _, name := range []string{
		evidence.RunManifestFile, evidence.PlanFile, evidence.TestsFile, evidence.ObservationsFile, evidence.NormalizationFile,
		evidence.EnvSnapshotFile, evidence.FindingsFile, evidence.BehaviorHashFile, evidence.RunLogFile,
		evidence.RawDir + "/01.stdout.log", evidence.RawDir + "/01.result.json",
	} {
		t.Run(filepath.Base(name), func(t *testing.T) {
			root := written(t, passing())
			require.NoError(t, root.Remove(name))
			v := judged(t, root)
			assert.Equal(t, evidence.ReasonIncomplete, v.StopReason, "%+v", v.Findings)
			assert.Contains(t, v.EvidenceSummary.Missing, name)
			sealed(t, root)
			assert.NotEqual(t, evidence.Pass, judged(t, root).Status)

			require.NoError(t, evidence.WriteText(root, name, []byte("{}")))
			if !strings.HasSuffix(name, ".log") && !strings.HasPrefix(name, evidence.RawDir) && name != evidence.RunLogFile {
				sealed(t, root)
				assert.Equal(t, evidence.ReasonIncomplete, judged(t, root).StopReason)
			}
			require.NoError(t, evidence.WriteText(root, name, nil))
			assert.Equal(t, evidence.ReasonTampered, judged(t, root).StopReason)
		})
	}
	for _, name := range []string{evidence.ArtifactsFile, evidence.ManifestFile} {
		root := written(t, passing())
		require.NoError(t, root.Remove(name))
		v := judged(t, root)
		assert.Equal(t, evidence.ReasonIncomplete, v.StopReason)
		assert.Contains(t, v.EvidenceSummary.Missing, name)
	}
}

func TestLoadOfAnEmptyFolder(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	defer root.Close()
	v := judged(t, root)
	assert.Equal(t, evidence.Blocked, v.Status)
	assert.Contains(t, v.EvidenceSummary.Missing, evidence.ManifestFile)
}

func TestLoadIsCanceled(t *testing.T) {
	root := written(t, passing())
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	_, err := Load(ctx, root)
	assert.ErrorIs(t, err, enough)
}

// FuzzLoad gives documents of anybody to a directory whose hashes fit. Whatever they say,
// nothing panics, and a pass means that a test was executed.
func FuzzLoad(f *testing.F) {
	in := passing()
	files := []string{
		evidence.RunManifestFile, evidence.PlanFile, evidence.TestsFile, evidence.ObservationsFile, evidence.NormalizationFile,
		evidence.EnvSnapshotFile, evidence.FindingsFile,
	}
	for i, document := range []any{in.Manifest, in.Plan, in.Tests, in.Observations, in.Normalization, in.Env, evidence.Findings{}} {
		text, err := json.Marshal(document)
		require.NoError(f, err)
		f.Add(uint8(i), string(text))
		f.Add(uint8(i), strings.ReplaceAll(string(text), "null", "[]"))
		f.Add(uint8(i), "{}")
	}
	f.Fuzz(func(t *testing.T, which uint8, text string) {
		root := written(t, passing())
		require.NoError(t, evidence.WriteText(root, files[int(which)%len(files)], []byte(text)))
		sealed(t, root)
		in, err := Load(t.Context(), root)
		require.NoError(t, err)
		v := Judge(in)
		_ = Gates(in)
		if v.Status != evidence.Pass {
			require.NotEmpty(t, v.Findings)
			return
		}
		require.True(t, in.Manifest.Mode.Execute && in.Manifest.Mode.Sealed && in.Manifest.Mode.Tools)
		require.NotEmpty(t, in.Manifest.GateCommands)
		require.Len(t, in.Tests.Commands, len(in.Manifest.GateCommands))
		executed := 0
		for i, r := range in.Tests.Commands {
			require.Equal(t, in.Manifest.GateCommands[i], r.Command)
			require.True(t, r.Started && r.LogsComplete)
			if r.Kind == evidence.KindTests {
				require.Positive(t, r.Counts.Executed())
				executed += r.Counts.Executed()
			}
		}
		require.Positive(t, executed)
	})
}
