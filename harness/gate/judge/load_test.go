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
	"github.com/evalbox/evalbox/harness/gate/spec"
	"github.com/evalbox/evalbox/result"
)

// written is a gate directory with the evidence of a pass.
func written(t *testing.T, in Input) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { root.Close() })
	in.Tests.Commands[0].LogSHA256 = hash
	for name, document := range map[string]any{
		evidence.RunManifestFile: in.Manifest, evidence.PlanFile: in.Plan,
		evidence.TestsFile: in.Tests, evidence.ObservationsFile: in.Observations, evidence.NormalizationFile: in.Normalization,
		evidence.EnvSnapshotFile: in.Env, evidence.FindingsFile: evidence.Findings{Pre: in.Pre, Differences: in.Differences},
	} {
		require.NoError(t, evidence.Write(root, name, document))
	}
	for _, name := range append(rawFiles("", 1)[:2], evidence.RunLogFile, evidence.OutputsDir+"/01/a.bin") {
		require.NoError(t, evidence.WriteText(root, name, []byte("text of "+name+"\n")))
	}
	lock, err := sealedWish.JSON()
	require.NoError(t, err)
	require.NoError(t, evidence.WriteText(root, evidence.WishLockFile, lock))
	seen := rawResult(t, root)
	text, err := seen.Encode()
	require.NoError(t, err)
	require.NoError(t, evidence.WriteText(root, rawFiles("", 1)[2], text))
	require.NoError(t, evidence.WriteText(root, evidence.BehaviorHashFile, []byte(in.BehaviorHash+"\n")))
	sealed(t, root)
	return root
}

// rawResult is the result that fits the logs of a gate that passed.
func rawResult(t *testing.T, root *os.Root) result.Result {
	t.Helper()
	size := func(name string) int64 {
		info, err := root.Stat(name)
		require.NoError(t, err)
		return info.Size()
	}
	return result.Result{
		Schema: result.SchemaV1, Status: result.StatusExited, Fault: result.FaultNone, OutputComplete: true,
		StdoutBytes: size(rawFiles("", 1)[0]), StderrBytes: size(rawFiles("", 1)[1]),
		Observed: &result.Observed{NetworkAttempts: new(int64), Watched: []string{"/etc/shadow"}},
	}
}

// sealed hashes the files anew, as somebody would who edited them.
func sealed(t *testing.T, root *os.Root) {
	t.Helper()
	_, err := evidence.HashArtifacts(t.Context(), root)
	require.NoError(t, err)
	_, err = evidence.WriteManifest(t.Context(), root)
	require.NoError(t, err)
}

func loaded(t *testing.T, root *os.Root) (Input, error) {
	t.Helper()
	check, err := evidence.CheckFiles(t.Context(), root)
	require.NoError(t, err)
	return Load(t.Context(), root, check)
}

func judged(t *testing.T, root *os.Root) evidence.Verdict {
	t.Helper()
	in, err := loaded(t, root)
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
		evidence.RawDir + "/01.stdout.log", evidence.RawDir + "/01.result.json", evidence.WishLockFile,
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

// TestContradictions: evidence that was edited contradicts other evidence, also if all
// hashes are made to fit.
func TestContradictions(t *testing.T) {
	raw := func(change func(r *result.Result)) func(*testing.T, *os.Root) {
		return func(t *testing.T, root *os.Root) {
			r := rawResult(t, root)
			change(&r)
			text, err := r.Encode()
			require.NoError(t, err)
			require.NoError(t, evidence.WriteText(root, rawFiles("", 1)[2], text))
		}
	}
	manifest := func(change func(m *evidence.RunManifest)) func(*testing.T, *os.Root) {
		return func(t *testing.T, root *os.Root) {
			m := passing().Manifest
			change(&m)
			require.NoError(t, evidence.Write(root, evidence.RunManifestFile, m))
		}
	}
	lock := func(change func(w *spec.Spec)) func(*testing.T, *os.Root) {
		return func(t *testing.T, root *os.Root) {
			w := sealedWish.Wish
			change(&w)
			other, err := spec.Seal(w, sealedWish.Toolchain)
			require.NoError(t, err)
			text, err := other.JSON()
			require.NoError(t, err)
			require.NoError(t, evidence.WriteText(root, evidence.WishLockFile, text))
		}
	}
	for name, c := range map[string]struct {
		change func(*testing.T, *os.Root)
		file   string
		detail string
	}{
		"exit code":      {raw(func(r *result.Result) { r.ExitCode = 1 }), evidence.TestsFile, `gate 1 ended as "exited" with the exit code 0; evidence/raw/01.result.json says that it ended as "exited" with the exit code 1`},
		"no exit code":   {raw(func(r *result.Result) { r.ExitCode = -1 }), evidence.TestsFile, "without an exit code"},
		"end":            {raw(func(r *result.Result) { r.Status = result.StatusOutOfMemory }), evidence.TestsFile, `evidence/raw/01.result.json says that it ended as "out_of_memory"`},
		"never started":  {raw(func(r *result.Result) { r.Status = result.StatusStartFailed }), evidence.TestsFile, "says that it never started"},
		"output lost":    {raw(func(r *result.Result) { r.OutputComplete = false }), evidence.TestsFile, "says that the output of gate 1 is complete"},
		"a log was cut":  {raw(func(r *result.Result) { r.StdoutBytes++ }), evidence.TestsFile, "says that the output of gate 1 is complete"},
		"attempts":       {raw(func(r *result.Result) { r.Observed.NetworkAttempts = new(int64(3)) }), evidence.ObservationsFile, "what gate 1 tried"},
		"not counted":    {raw(func(r *result.Result) { r.Observed = nil }), evidence.ObservationsFile, "what gate 1 tried"},
		"not watched":    {raw(func(r *result.Result) { r.Observed.WatchWhy = "no" }), evidence.ObservationsFile, "what gate 1 tried"},
		"an opened file": {raw(func(r *result.Result) { r.Observed.Opened = []string{"/repo/core/", "/etc/shadow"} }), evidence.ObservationsFile, "what gate 1 tried"},
		"an opened file that was only printed": {func(t *testing.T, root *os.Root) {
			raw(func(r *result.Result) { r.Observed.Opened = []string{"/repo/core/x"} })(t, root)
			o := passing().Observations
			o.Commands[0].Touched = []evidence.Touch{{Path: "core/x", How: evidence.TouchPrinted}}
			require.NoError(t, evidence.Write(root, evidence.ObservationsFile, o))
		}, evidence.ObservationsFile, "what gate 1 tried"},
		"a network":      {raw(func(r *result.Result) { r.Network = &result.Network{Level: "registries"} }), evidence.ObservationsFile, "what gate 1 tried"},
		"another wish":   {lock(func(w *spec.Spec) { w.Name = "other" }), evidence.WishLockFile, "the hash of the wish"},
		"other commands": {lock(func(w *spec.Spec) { w.GateCommands = []evidence.Command{} }), evidence.WishLockFile, "the commands"},
		"an edited wish": {func(t *testing.T, root *os.Root) {
			text, err := sealedWish.JSON()
			require.NoError(t, err)
			require.NoError(t, evidence.WriteText(root, evidence.WishLockFile, []byte(strings.Replace(string(text), "pytest", "true #", 1))))
		}, evidence.WishLockFile, "does not hold what was sealed"},
		"another image":  {manifest(func(m *evidence.RunManifest) { m.Toolchain.Image = "other" }), evidence.WishLockFile, "the image"},
		"other tools":    {manifest(func(m *evidence.RunManifest) { m.Toolchain.Mounts = nil }), evidence.WishLockFile, "the tools"},
		"not offline":    {manifest(func(m *evidence.RunManifest) { m.Mode.Offline = false }), evidence.WishLockFile, "offline"},
		"opened network": {manifest(func(m *evidence.RunManifest) { m.Egress = &evidence.Egress{Level: "registries"} }), evidence.WishLockFile, "the network"},
		"not strict":     {manifest(func(m *evidence.RunManifest) { m.Mode.Strict = false }), evidence.WishLockFile, "strict"},
		"no claim":       {manifest(func(m *evidence.RunManifest) { m.Mode.ClaimGrade = false }), evidence.WishLockFile, "claim_grade"},
		"unobserved":     {manifest(func(m *evidence.RunManifest) { m.Mode.AllowUnobserved = true }), evidence.WishLockFile, "allow_unobserved"},
		"other rules":    {manifest(func(m *evidence.RunManifest) { m.Rules = []evidence.Rule{{Name: "all", Pattern: ".+"}} }), evidence.WishLockFile, "the rules of normalization"},
		"less protected": {lock(func(w *spec.Spec) { w.ProtectedPaths = []string{"secret"} }), evidence.WishLockFile, "the protected paths"},
		"others protected": {func(t *testing.T, root *os.Root) {
			lock(func(w *spec.Spec) { w.ProtectedPaths = []string{"secret"} })(t, root)
			manifest(func(m *evidence.RunManifest) { m.ProtectedPaths = []string{"public"} })(t, root)
		}, evidence.WishLockFile, "the protected paths"},
		"less read-only": {lock(func(w *spec.Spec) { w.ReadOnlyPaths = []string{"core"} }), evidence.WishLockFile, "the read-only paths"},
		"another kind": {manifest(func(m *evidence.RunManifest) {
			m.Gates[0].Kind = evidence.KindCheck
		}), evidence.WishLockFile, "the commands"},
	} {
		t.Run(name, func(t *testing.T) {
			root := written(t, passing())
			c.change(t, root)
			sealed(t, root)
			v := judged(t, root)
			assert.Equal(t, evidence.ReasonTampered, v.StopReason, "%+v", v.Findings)
			found := false
			for _, f := range v.Findings {
				found = found || f.Reason == evidence.ReasonTampered && f.Subject == c.file && strings.Contains(f.Detail, c.detail)
			}
			assert.True(t, found, "%+v", v.Findings)
		})
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
	_, err := Load(ctx, root, evidence.CheckReport{})
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
		in, err := loaded(t, root)
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
