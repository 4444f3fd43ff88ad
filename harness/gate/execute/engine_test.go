//go:build linux

package execute_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/execute"
	"github.com/evalbox/evalbox/internal/runnertest"
	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// These tests run gates on the real engine with the debian image. Without either they
// fail and say what to do: `make test` makes both.

// newRunner is a runner whose store is empty at the end of the test.
func newRunner(t *testing.T) *sandbox.Runner {
	t.Helper()
	r := runnertest.New(t)
	t.Cleanup(func() {
		records, err := r.Store().List()
		require.NoError(t, err)
		require.Empty(t, records)
	})
	return r
}

// gateDir has a manifest with these commands, over a workspace with these files.
func gateDir(t *testing.T, files map[string]string, change func(*evidence.RunManifest), argvs ...[]string) *os.Root {
	t.Helper()
	dir, workspace := t.TempDir(), t.TempDir()
	treetest.Write(t, workspace, files)
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, root.Close()) })
	m := evidence.RunManifest{
		Schema: evidence.RunManifestV1, Name: "execute", Workspace: workspace, IOBoundary: "repo/",
		Toolchain:   evidence.Toolchain{Image: "debian"},
		EnvPolicy:   evidence.EnvPolicy{Vars: map[string]string{"CI": "true"}, Timezone: "UTC", Locale: "C.UTF-8", HashSeed: "0"},
		TimeoutCaps: evidence.Caps{TimeoutMS: 60_000, MemoryBytes: 512 << 20, MilliCPUs: 1000, LogBytes: 1 << 20},
		Mode:        evidence.Mode{Execute: true, Sealed: true, Tools: true, Flags: evidence.Flags{Offline: true}, Repeats: 1},
	}
	for i, argv := range argvs {
		m.Gates = append(m.Gates, evidence.Gate{Index: i + 1, Command: evidence.Command{Cmd: argv[len(argv)-1], Kind: evidence.KindTests}, Argv: argv})
	}
	if change != nil {
		change(&m)
	}
	require.NoError(t, evidence.Write(root, evidence.RunManifestFile, m))
	return root
}

func sh(script string) []string { return []string{"sh", "-c", script} }

func text(t *testing.T, root *os.Root, name string) string {
	t.Helper()
	text, err := root.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

func resultOf(t *testing.T, root *os.Root, name string) result.Result {
	t.Helper()
	res, err := result.Decode([]byte(text(t, root, name)))
	require.NoError(t, err)
	return res
}

// TestEngineFacts: however a gate ends, it is a fact, and the next one runs.
func TestEngineFacts(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	root := gateDir(t, map[string]string{"a.txt": "a\n", "secret/key": "k", "evidence/tests.json": "{}", "no/x": "x"},
		func(m *evidence.RunManifest) {
			m.ArtifactPaths = []string{"out/**", "a.txt"}
			m.ProtectedPaths, m.Exclude = []string{"secret"}, []string{"no"}
			m.Gates[0].ReportPath = "/work/final/report.xml"
			m.Gates[1].TimeoutMS = 300
			m.Gates[4].ReportPath = "report.xml"
			m.Gates[5].ReportPath = "a.txt"
		},
		sh("echo out; echo err >&2; echo '<x/>' > /work/final/report.xml; ls -A; ls -A secret; grep -c '^k' secret/key; exit 3"),
		sh("sleep 100"),
		[]string{"no-such-tool"},
		sh("head -c 3000000 /dev/zero"),
		sh("mkdir -p out/d; echo 1 > out/d/f; ln -s /etc/passwd out/link; mkfifo out/pipe; echo r > report.xml; echo b > a.txt; echo '{\"x\":1}' > evidence/tests.json; touch \"$(printf 'out/a\\nb')\""),
		sh("test \"$(cat a.txt)\" = a; test \"$CI$TZ$LC_ALL\" = trueUTCC.UTF-8"),
		[]string{"python3", "-c", "x = bytearray(2 << 30)"},
	)
	findings, failure := execute.Run(t.Context(), root, r, execute.Options{})
	require.NoError(t, failure)
	require.Len(t, findings, 1)
	require.Contains(t, findings[0].Detail, "has a name that is no clean text")

	require.Equal(t, "out\na.txt\nevidence\nsecret\nkey\n0\n", text(t, root, "evidence/raw/01.stdout.log"), "not what is excluded, and of what is protected the names")
	require.Equal(t, "err\n", text(t, root, "evidence/raw/01.stderr.log"))
	require.Equal(t, "<x/>\n", text(t, root, "evidence/raw/01.report"))
	first := resultOf(t, root, "evidence/raw/01.result.json")
	require.Equal(t, 3, first.ExitCode)
	require.Empty(t, first.Stdout)
	require.False(t, first.StdoutTruncated)

	require.Equal(t, result.StatusTimedOut, resultOf(t, root, "evidence/raw/02.result.json").Status)
	missing := resultOf(t, root, "evidence/raw/03.result.json")
	require.Equal(t, result.StatusStartFailed, missing.Status)
	require.Equal(t, 127, missing.ExitCode)
	require.Empty(t, text(t, root, "evidence/raw/03.stdout.log"))

	big := resultOf(t, root, "evidence/raw/04.result.json")
	require.True(t, big.StdoutTruncated)
	require.EqualValues(t, 3_000_000, big.StdoutBytes)
	require.Len(t, text(t, root, "evidence/raw/04.stdout.log"), 1<<20)

	require.Equal(t, "r\n", text(t, root, "evidence/raw/05.report"))
	require.Equal(t, "1\n", text(t, root, "evidence/outputs/05/out/d/f"))
	require.Equal(t, "b\n", text(t, root, "evidence/outputs/05/a.txt"))
	var outputs execute.Outputs
	require.NoError(t, evidence.Read(root, "evidence/raw/05.outputs.json", 1<<20, &outputs))
	require.Equal(t, []string{"a.txt", "out/d/f"}, outputs.Kept)
	require.Equal(t, 3, outputs.SkippedTotal, outputs.Skipped)

	require.Equal(t, 0, resultOf(t, root, "evidence/raw/06.result.json").ExitCode, "each gate starts from the same files")
	_, err := root.Stat("evidence/raw/06.report")
	require.ErrorIs(t, err, os.ErrNotExist, "a file that was there before is no report of this run")
	require.Equal(t, result.StatusOutOfMemory, resultOf(t, root, "evidence/raw/07.result.json").Status)

	var snapshot evidence.EnvSnapshot
	require.NoError(t, evidence.Read(root, evidence.EnvSnapshotFile, 1<<20, &snapshot))
	require.Regexp(t, `^sha256:[0-9a-f]{64}$`, snapshot.ImageID)
	require.Regexp(t, `^3\.11\.`, snapshot.LanguageRuntimes["python"])
	require.NotEmpty(t, snapshot.ToolVersions["pytest"])
	require.Equal(t, []string{"linux", "UTC", "C.UTF-8"}, []string{snapshot.OS, snapshot.Timezone, snapshot.Locale})
	require.NotEmpty(t, snapshot.Engine)
	require.NotEmpty(t, snapshot.Runtime)
	require.False(t, snapshot.ImageLocked)
	require.NotEmpty(t, snapshot.Workspace)
}

// TestEngineReadOnly: read-only paths cannot be changed at any time, by whatever way, and
// what is protected stays hidden below them.
func TestEngineReadOnly(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	root := gateDir(t, map[string]string{"tests/test_a.py": "assert False\n", "tests/secret/key": "k", "ro.txt": "1\n", "a": "1"},
		func(m *evidence.RunManifest) {
			m.ReadOnlyPaths, m.ProtectedPaths = []string{"tests", "ro.txt", "none"}, []string{"tests/secret"}
			require.NoError(t, os.Chmod(filepath.Join(m.Workspace, "ro.txt"), 0o600))
		},
		sh(`cat tests/test_a.py ro.txt; ls tests/secret; grep -c '^k' tests/secret/key
			echo x > tests/test_a.py && echo written; echo x > tests/new && echo new; mv tests other && echo moved
			rm ro.txt && echo removed; chmod 0 tests && echo closed; cp a none && echo made; echo 2 > a; cat tests/test_a.py ro.txt`))
	run(t, t.Context(), root, r, execute.Options{})
	require.Equal(t, "assert False\n1\nkey\n0\nmade\nassert False\n1\n", text(t, root, "evidence/raw/01.stdout.log"), text(t, root, "evidence/raw/01.stderr.log"))
	tree := resultOf(t, root, "evidence/raw/01.result.json").Trees[0]
	require.True(t, tree.Complete)
	require.Len(t, tree.Created, 1)
	require.Equal(t, "none", tree.Created[0].Path)
	require.Len(t, tree.Changed, 1)
	require.Empty(t, tree.Deleted)
}

// TestEngineCanceled: what a canceled gate did is kept, and the error is that of the
// caller.
func TestEngineCanceled(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	root := gateDir(t, nil, nil, sh("echo began; sleep 100"), sh("echo second"))
	ctx, cancel := context.WithCancelCause(t.Context())
	began := make(chan struct{})
	go func() { <-began; cancel(errStop) }()
	_, err := execute.Run(ctx, root, r, execute.Options{IO: sandbox.IO{Stdout: onWrite(func() { close(began) })}})
	require.ErrorIs(t, err, errStop)
	require.Equal(t, "began\n", text(t, root, "evidence/raw/01.stdout.log"))
	require.Equal(t, result.StatusCanceled, resultOf(t, root, "evidence/raw/01.result.json").Status)
	_, err = root.Stat("evidence/raw/02.result.json")
	require.ErrorIs(t, err, os.ErrNotExist)
}
