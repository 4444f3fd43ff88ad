//go:build linux

package gate_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gogit "github.com/go-git/go-git/v5"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/spec"
	"github.com/evalbox/evalbox/internal/runnertest"
	"github.com/evalbox/evalbox/internal/treehash"
	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/sandbox"
)

// These tests run gates on the real engine with the debian image. Without either they
// fail and say what to do: `make test` makes both.

// engine is a runner whose store is empty at the end of the test.
func engine(t *testing.T) *sandbox.Runner {
	t.Helper()
	r := runnertest.New(t)
	t.Cleanup(func() {
		records, err := r.Store().List()
		require.NoError(t, err)
		require.Empty(t, records)
	})
	return r
}

// real are the options of a run on the engine. Nothing is claimed: the image has no lock.
func real(t *testing.T, e *sandbox.Runner, dir, text string) testJob {
	t.Helper()
	if !strings.Contains(text, "claim_grade") {
		text += "\nclaim_grade: false\n"
	}
	w, err := spec.Parse([]byte(text), "wish.yaml")
	require.NoError(t, err)
	run, err := e.Plan(t.Context(), sandbox.Request{Image: "debian", Command: []string{"true"}})
	require.NoError(t, err)
	toolchain := evidence.Toolchain{Image: "debian", ImageID: run.Class.Image.ID, Mounts: []evidence.ToolMount{}}
	for _, tool := range w.Toolchain {
		tree, err := treehash.Of(t.Context(), tool.Source, treehash.Options{})
		require.NoError(t, err)
		toolchain.Mounts = append(toolchain.Mounts, evidence.ToolMount{Source: tool.Source, Target: tool.Target, Hash: tree.Sum})
	}
	lock, err := spec.Seal(w, toolchain)
	require.NoError(t, err)
	return testJob{box: e, Job: gate.Job{WishDir: dir, OutDir: filepath.Join(t.TempDir(), "gate"), Mode: executed(), Lock: lock, Sealed: true}}
}

const limits = "\nname: engine\nimage: debian\nlimits: {memory: 512MiB, cpus: 1, timeout: 60s}\n"

// TestEngineVerdicts provokes what must not pass, and what must.
func TestEngineVerdicts(t *testing.T) {
	t.Parallel()
	e := engine(t)
	const passing = "def test_one():\n    assert 1 + 1 == 2\n\ndef test_two():\n    assert True\n"
	for name, c := range map[string]struct {
		file    string // test_a.py
		wish    string
		status  evidence.Status
		reason  evidence.StopReason
		subject string
	}{
		"pass":               {passing, "gate_commands: [pytest -q]", evidence.Pass, evidence.ReasonPass, ""},
		"python -m unittest": {"import unittest\nclass T(unittest.TestCase):\n    def test_one(self): pass\n", "gate_commands: [python3 -m unittest test_a]", evidence.Pass, evidence.ReasonPass, ""},
		"expected to fail":   {passing, "gate_commands: [pytest -q, {cmd: \"sh -c 'exit 3'\", expect_exit: 3, kind: check}]", evidence.Pass, evidence.ReasonPass, ""},
		"pinned":             {passing, "gate_commands: [pytest -q]\npython: '3.11.2'\nclaim_grade: true", evidence.Blocked, evidence.ReasonUnpinned, ""},
		"failing":            {"def test_one():\n    assert 1 == 2\n", "gate_commands: [pytest -q]", evidence.Blocked, evidence.ReasonGateFailed, ""},
		"no tests":           {"x = 1\n", "gate_commands: [pytest -q]", evidence.Blocked, evidence.ReasonGateFailed, ""},
		"no tests, expected": {"x = 1\n", "gate_commands: [{cmd: pytest -q, expect_exit: 5}]", evidence.Blocked, evidence.ReasonNoTests, ""},
		"exit 0":             {passing, "gate_commands: [\"sh -c 'exit 0'\"]", evidence.Pass, evidence.ReasonPass, "no test was seen"},
		"unittest, no tests": {"x = 1\n", "gate_commands: [python3 -m unittest discover]", evidence.Pass, evidence.ReasonPass, "no test was seen"},
		"refusal, printed":   {"def test_one():\n    print(\"PermissionError: [Errno 13] Permission denied: '/etc/app.conf'\")\n", "gate_commands: [pytest -q -s]", evidence.Pass, evidence.ReasonPass, "/etc/app.conf"},
		"only checks":        {passing, "gate_commands: [{cmd: 'true', kind: check}]", evidence.Blocked, evidence.ReasonNoTests, ""},
		"all skipped":        {"import pytest\n\n@pytest.mark.skip\ndef test_one():\n    pass\n", "gate_commands: [pytest -q]", evidence.Blocked, evidence.ReasonNoTests, ""},
		"hang":               {passing, "gate_commands: [{cmd: sleep 600, timeout: 5s}]", evidence.Blocked, evidence.ReasonTimeout, ""},
		"tool missing":       {passing, "gate_commands: [pytest -q, cargo test]", evidence.NeedInfo, evidence.ReasonMissingDependency, "cargo"},
		"big output": {"def test_one():\n    pass\n", "gate_commands: [\"sh -c 'head -c 30000000 /dev/zero; pytest -q'\"]\nlimits: {log: 1MiB, memory: 512MiB, cpus: 1}",
			evidence.Blocked, evidence.ReasonIncomplete, ""},
		"shadow":                    {"def test_one():\n    try:\n        open('/etc/shadow').read()\n    except OSError:\n        pass\n", "gate_commands: [pytest -q]", evidence.Blocked, evidence.ReasonOutsideBoundary, "/etc/shadow"},
		"ssh":                       {"import os\n\ndef test_one():\n    open(os.path.expanduser('~/.ssh/id_rsa')).read()\n", "gate_commands: [pytest -q]", evidence.Blocked, evidence.ReasonOutsideBoundary, "/tmp/.ssh/id_rsa"},
		"names only":                {"import os\n\ndef test_one():\n    os.listdir(os.path.expanduser('~/.ssh')), os.listdir('core')\n", "gate_commands: [pytest -q]\nprotected_paths: [core]", evidence.Pass, evidence.ReasonPass, ""},
		"unscrubbed":                {"def test_one():\n    print('x10:20:30y')\n", "gate_commands: [pytest -q -s]", evidence.Blocked, evidence.ReasonNondeterministic, ""},
		"named on the command line": {passing, "gate_commands: [cat /etc/shadow]", evidence.Blocked, evidence.ReasonOutsideBoundary, "/etc/shadow"},
		"protected":                 {"def test_one():\n    open('core/secret').read()\n", "gate_commands: [pytest -q]\nprotected_paths: [core]", evidence.Blocked, evidence.ReasonOutsideBoundary, ""},
		"network":                   {"import socket\n\ndef test_one():\n    try:\n        socket.create_connection(('192.0.2.1', 80), 1)\n    except OSError:\n        pass\n", "gate_commands: [pytest -q]", evidence.Blocked, evidence.ReasonNetwork, ""},
		"nondeterminism":            {"import uuid\n\ndef test_one():\n    print('made at 2024-13-99T99 object at', hex(id(object())), uuid.uuid4())\n", "gate_commands: [pytest -q -s]", evidence.Pass, evidence.ReasonPass, ""},
		"own evidence": {"import os\n\ndef test_one():\n    os.makedirs('evidence', exist_ok=True)\n    open('evidence/tests.json', 'w').write('{}')\n", "gate_commands: [pytest -q]",
			evidence.Blocked, evidence.ReasonOutsideBoundary, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := limits + c.wish
			if strings.Contains(c.wish, "limits:") {
				text = "name: engine\nimage: debian\n" + c.wish
			}
			dir := treetest.Dir(t, map[string]string{"test_a.py": c.file, "core/secret": "s"})
			o := real(t, e, dir, text)
			report, err := o.run(t.Context())
			require.NoError(t, err)
			require.Equal(t, []any{c.status, c.reason}, []any{report.Verdict.Status, report.Verdict.StopReason}, report.Verdict.Findings)
			if c.subject != "" {
				var subjects []string
				for _, f := range slices.Concat(report.Verdict.Findings, report.Verdict.Warnings) {
					subjects = append(subjects, f.Subject+": "+f.Detail)
				}
				require.Contains(t, strings.Join(subjects, "\n"), c.subject)
			}
			if name == "pass" {
				require.Equal(t, []string{"test_a.py::test_one", "test_a.py::test_two"}, report.Tests.PassingTestsAfter)
			}
			verified, err := gate.Verify(t.Context(), o.OutDir, gate.VerifyOptions{})
			require.NoError(t, err)
			require.True(t, verified.OK, verified.Problems)
			text2, err := os.ReadFile(filepath.Join(dir, "test_a.py"))
			require.NoError(t, err)
			require.Equal(t, c.file, string(text2), "nothing is written back")
			require.NoDirExists(t, filepath.Join(dir, "evidence"))
		})
	}
}

// TestEngineBaseline: the same gate runs on the baseline first, and a test that fails
// now and did not then is a regression.
func TestEngineBaseline(t *testing.T) {
	t.Parallel()
	e := engine(t)
	dir := treetest.Dir(t, map[string]string{"a.py": "def f():\n    return 1\n", "test_a.py": "from a import f\n\ndef test_f():\n    assert f() == 2\n\ndef test_g():\n    assert True\n"})
	repo, err := gogit.PlainInit(dir, false)
	require.NoError(t, err)
	base := commit(t, repo, "red")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.py"), []byte("def f():\n    return 2\n"), 0o644))
	fixed := commit(t, repo, "green")

	o := real(t, e, dir, limits+"gate_commands: [pytest -q]\nstrict: true\n")
	o.OutDir, o.Baseline = filepath.Join(dir, ".gate"), "HEAD~1"
	report, err := o.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, evidence.Pass, report.Verdict.Status, report.Verdict.Findings)
	require.Equal(t, []string{"test_a.py::test_f"}, report.Tests.FailingTestsBefore)
	require.Equal(t, []string{"test_a.py::test_f", "test_a.py::test_g"}, report.Tests.PassingTestsAfter)
	require.Equal(t, base, report.Manifest.Repo.BaselineCommit)
	require.Equal(t, fixed, report.Manifest.Repo.Commit)
	require.False(t, report.Manifest.Repo.Dirty, "the gate directory makes no tree dirty")
	require.FileExists(t, filepath.Join(o.OutDir, "evidence/raw/baseline/01.stdout.log"))
	patch, err := os.ReadFile(filepath.Join(o.OutDir, evidence.PatchFile))
	require.NoError(t, err)
	require.Contains(t, string(patch), "+    return 2\n")
	require.NotContains(t, string(patch), "evidence")

	// The other way round.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.py"), []byte("def f():\n    return 3\n"), 0o644))
	commit(t, repo, "red again")
	o.Replace, o.Baseline = true, "HEAD~1"
	report, err = o.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, evidence.Blocked, report.Verdict.Status)
	require.Contains(t, reasons(report.Verdict), evidence.ReasonRegression)

}

// TestEngineRepeat: a test that prints something else each time is found out.
func TestEngineRepeat(t *testing.T) {
	t.Parallel()
	e := engine(t)
	dir := treetest.Dir(t, map[string]string{"test_a.py": "import random\n\ndef test_one():\n    print('lucky', *random.choices('abcdefghijklmnopqrstuvwxyz', k=12))\n"})
	o := real(t, e, dir, limits+"gate_commands: [pytest -q -s]\n")
	o.Mode.Repeats = 2
	report, err := o.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, evidence.ReasonNonReproducible, report.Verdict.StopReason, report.Verdict.Findings)
	require.Contains(t, report.Verdict.Findings[0].Detail, "lucky")
	require.FileExists(t, filepath.Join(o.OutDir, "evidence/raw/repeat-2/01.result.json"))
}

// TestEngineReplay: the same commands, in the same image, on the same files, are the
// same; on others nothing is run.
func TestEngineReplay(t *testing.T) {
	t.Parallel()
	e := engine(t)
	dir := treetest.Dir(t, map[string]string{"test_a.py": "import os, time\n\ndef test_one():\n    print('at', time.strftime('%Y-%m-%d %H:%M:%S'))\n" +
		"    print(time.strftime('%H:%M:%S'), f'[{os.getpid()}] INFO ready')\n    os.makedirs('out')\n    open('out/app', 'w').write('1')\n"})
	o := real(t, e, dir, limits+"gate_commands: [pytest -sv]\nartifact_paths: ['out/**']\n")
	o.OutDir = filepath.Join(dir, "gates", "one")
	report, err := o.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, evidence.Pass, report.Verdict.Status, report.Verdict.Findings)

	again := gate.ReplayOptions{From: o.OutDir}
	first, err := o.replay(t.Context(), again)
	require.NoError(t, err)
	require.Equal(t, gate.ReplaySame, first.Outcome, "%+v", first)
	require.Equal(t, report.Verdict.BehaviorHash, first.BehaviorHash)
	require.Nil(t, first.FirstLine)
	second, err := o.replay(t.Context(), again)
	require.NoError(t, err)
	require.Equal(t, first, second, "replayed twice, the same hash")
	require.Len(t, first.SHA256, 64)

	// GATES.json alone, of another directory.
	alone := filepath.Join(t.TempDir(), "GATES.json")
	text, err := os.ReadFile(filepath.Join(o.OutDir, evidence.GatesFile))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(alone, text, 0o644))
	none, err := o.replay(t.Context(), gate.ReplayOptions{From: alone})
	require.NoError(t, err)
	require.Equal(t, gate.ReplayCannot, none.Outcome)
	require.Equal(t, "workspace", none.Missing[0].File)
	copied := treetest.Dir(t, map[string]string{})
	require.NoError(t, os.CopyFS(copied, os.DirFS(dir)))
	require.NoError(t, os.RemoveAll(filepath.Join(copied, "gates")))
	require.NoError(t, os.Mkdir(filepath.Join(copied, "gates"), 0o755))

	// With what lies beside it, on a copy of the workspace, and kept.
	kept := filepath.Join(t.TempDir(), "replay")
	there, err := o.replay(t.Context(), gate.ReplayOptions{From: o.OutDir, Workspace: copied, OutDir: kept})
	require.NoError(t, err)
	require.Equal(t, first, there)
	verified, err := gate.Verify(t.Context(), kept, gate.VerifyOptions{})
	require.NoError(t, err)
	require.True(t, verified.OK, verified.Problems)

	// Other signals than were recorded.
	for signal, replace := range map[string][2]string{
		"passed":        {`"passed": 1`, `"passed": 2`},
		"behavior_hash": {report.Gates.BehaviorHash, strings.Repeat("0", 64)},
		"artifact":      {report.Gates.Artifacts[0].SHA256, strings.Repeat("0", 64)},
	} {
		other := filepath.Join(t.TempDir(), "gate")
		require.NoError(t, os.CopyFS(other, os.DirFS(o.OutDir)))
		replaceIn(t, other, evidence.GatesFile, replace[0], replace[1])
		differs, err := o.replay(t.Context(), gate.ReplayOptions{From: other})
		require.NoError(t, err)
		require.Equal(t, gate.ReplayDifferent, differs.Outcome, signal)
		require.Len(t, differs.Differences, 1)
		require.Equal(t, signal, differs.Differences[0].Signal)
	}

	// Another image, other commands, other files.
	for subject, change := range map[string]func(t *testing.T, dir string){
		"image": func(t *testing.T, dir string) {
			replaceIn(t, dir, evidence.GatesFile, report.Gates.ImageID, "sha256:"+strings.Repeat("0", 64))
		},
		"commands": func(t *testing.T, dir string) { replaceIn(t, dir, evidence.GatesFile, "pytest -sv", "pytest -v") },
		"not executed": func(t *testing.T, dir string) {
			replaceIn(t, dir, evidence.RunManifestFile, `"execute": true`, `"execute": false`)
		},
		"edited evidence": func(t *testing.T, dir string) {
			replaceIn(t, dir, evidence.TestsFile, `"exit_code": 0`, `"exit_code": 1`)
		},
		"files": func(t *testing.T, dir string) {
			replaceIn(t, dir, evidence.GatesFile, report.Gates.Workspace, strings.Repeat("0", 64))
		},
	} {
		other := filepath.Join(t.TempDir(), "gate")
		require.NoError(t, os.CopyFS(other, os.DirFS(o.OutDir)))
		change(t, other)
		cannot, err := o.replay(t.Context(), gate.ReplayOptions{From: other})
		require.NoError(t, err)
		require.Equal(t, gate.ReplayCannot, cannot.Outcome, subject)
		require.NotEmpty(t, cannot.Missing, subject)
		require.Empty(t, cannot.Commands, subject)
	}
	_, err = o.replay(t.Context(), gate.ReplayOptions{From: t.TempDir()})
	require.ErrorIs(t, err, os.ErrNotExist)
}

func replaceIn(t *testing.T, dir, name, from, to string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	require.Contains(t, string(text), from)
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(string(text), from, to)), 0o644))
}

// TestEngineGoTest: go test with the host's own Go, mounted read-only.
func TestEngineGoTest(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles Go's library in the container: make test-all")
	}
	t.Parallel()
	e := engine(t)
	dir := treetest.Dir(t, map[string]string{
		"go.mod":    "module example.com/m\n\ngo 1.24\n",
		"a.go":      "package m\n\nfunc F() int { return 1 }\n",
		"a_test.go": "package m\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) {\n\tif F() != 1 {\n\t\tt.Fatal()\n\t}\n}\n\nfunc TestSub(t *testing.T) {\n\tt.Run(\"one\", func(t *testing.T) {})\n}\n",
	})
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	o := real(t, e, dir, `
name: go
image: debian
limits: {memory: 1500MiB, cpus: 2, timeout: 300s}
gate_commands: [go test -vet=off ./...]
toolchain: [{source: `+strings.TrimSpace(string(goroot))+`, target: /host/go}]
env: {GOFLAGS: -mod=mod, GOPROXY: "off", GOCACHE: /tmp/gocache, CGO_ENABLED: "0"}
`)
	report, err := o.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, evidence.Pass, report.Verdict.Status, report.Verdict.Findings)
	require.Equal(t, []string{"example.com/m.TestF", "example.com/m.TestSub", "example.com/m.TestSub/one"}, report.Tests.PassingTestsAfter)
}
