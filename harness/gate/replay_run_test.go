//go:build linux

package gate_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gogit "github.com/go-git/go-git/v5"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/treehash"
	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/sandbox"
)

// TestReplayOfBareGates: a GATES.json of the seed's keys alone can be run on a workspace
// that somebody names.
func TestReplayOfBareGates(t *testing.T) {
	workspace := treetest.Dir(t, map[string]string{"test_a.py": "def test_one(): pass\n"})
	for name, c := range map[string]struct {
		text, workspace string
		code            int
		outcome         gate.Outcome
		told            string // the first thing that is missing or different
	}{
		"same":         {`{"io_boundary":"repo/","offline":true,"commands":[{"cmd":"pytest -q","expect_exit":0}]}`, workspace, 0, gate.ReplaySame, ""},
		"different":    {`{"io_boundary":"repo/","offline":true,"commands":[{"cmd":"pytest -q","expect_exit":0}]}`, workspace, 1, gate.ReplayDifferent, "exit_code"},
		"no workspace": {`{"io_boundary":"repo/","offline":true,"commands":[{"cmd":"pytest -q"}]}`, "", 0, gate.ReplayCannot, "workspace"},
		"not there":    {`{"io_boundary":"repo/","offline":true,"commands":[{"cmd":"pytest -q"}]}`, workspace + "/nowhere", 0, gate.ReplayCannot, "workspace"},
		"online":       {`{"io_boundary":"repo/","offline":false,"commands":[{"cmd":"pytest -q"}]}`, workspace, 0, gate.ReplayCannot, "network"},
		"outside":      {`{"io_boundary":"repo/","offline":true,"commands":[{"cmd":"cat /etc/shadow"}]}`, workspace, 0, gate.ReplayCannot, "/etc/shadow"},
		"other commit": {`{"io_boundary":"repo/","offline":true,"commands":[{"cmd":"pytest -q"}],"commit":"0123456789abcdef0123456789abcdef01234567"}`, workspace, 0, gate.ReplayCannot, "workspace"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.program = func(req sandbox.Request, g *fakeGate) error {
				require.Nil(t, req.Egress)
				g.ExitCode = c.code
				return nil
			}
			file := filepath.Join(t.TempDir(), "some.json")
			require.NoError(t, os.WriteFile(file, []byte(c.text), 0o644))
			report, err := testJob{box: f}.replay(t.Context(), gate.ReplayOptions{From: file, Workspace: c.workspace})
			require.NoError(t, err)
			require.Equal(t, c.outcome, report.Outcome, "%+v", report)
			switch c.outcome {
			case gate.ReplayCannot:
				require.Equal(t, c.told, report.Missing[0].File)
				require.Zero(t, f.ran, "nothing is run on something else")
			case gate.ReplayDifferent:
				require.Equal(t, c.told, report.Differences[0].Signal)
			case gate.ReplaySame:
				require.Len(t, report.Commands, 1)
			}
		})
	}
	_, err := testJob{box: newFake(t)}.replay(t.Context(), gate.ReplayOptions{From: filepath.Join(workspace, "test_a.py")})
	require.Error(t, err, "no GATES.json")
}

// TestReplayOfOtherTools: a replay with other tools than were recorded would be another
// run.
func TestReplayOfOtherTools(t *testing.T) {
	tool := treetest.Dir(t, map[string]string{"bin/tool": "1"})
	tree, err := treehash.Of(t.Context(), tool, treehash.Options{})
	require.NoError(t, err)
	f := newFake(t)
	o := options(t, f, oneTest)
	o.Lock = seal(t, oneTest+"toolchain: [{source: "+tool+", target: /host/tool}]\n", evidence.Toolchain{
		Image: "debian", ImageID: fakeImage, Locked: true, Mounts: []evidence.ToolMount{{Source: tool, Target: "/host/tool", Hash: tree.Sum}},
	})
	report, err := o.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, evidence.Pass, report.Verdict.Status, report.Verdict.Findings)
	again := gate.ReplayOptions{From: o.OutDir}
	replayed, err := o.replay(t.Context(), again)
	require.NoError(t, err)
	require.Equal(t, gate.ReplaySame, replayed.Outcome, "%+v", replayed)

	ran := f.ran
	require.NoError(t, os.WriteFile(filepath.Join(tool, "bin/tool"), []byte("2"), 0o644))
	replayed, err = o.replay(t.Context(), again)
	require.NoError(t, err)
	require.Equal(t, gate.ReplayCannot, replayed.Outcome)
	require.Equal(t, "/host/tool", replayed.Missing[0].File)
	require.NoError(t, os.RemoveAll(tool))
	replayed, err = o.replay(t.Context(), again)
	require.NoError(t, err)
	require.Equal(t, gate.Problem{File: "/host/tool", Detail: "its directory does not exist"}, replayed.Missing[0])
	require.Equal(t, ran, f.ran)
}

// TestReplayIsJudged: a replay whose gates try what they may not is not the same, whatever
// they print.
func TestReplayIsJudged(t *testing.T) {
	f := newFake(t)
	o := options(t, f, oneTest)
	report, err := o.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, evidence.Pass, report.Verdict.Status, report.Verdict.Findings)
	bare := filepath.Join(t.TempDir(), "GATES.json")
	require.NoError(t, os.WriteFile(bare, []byte(`{"io_boundary":"repo/","offline":true,"commands":[{"cmd":"pytest -q"}]}`), 0o644))
	f.program = func(_ sandbox.Request, g *fakeGate) error {
		g.Observed.Opened = []string{"/etc/shadow"}
		return nil
	}
	for from, workspace := range map[string]string{o.OutDir: "", bare: treetest.Dir(t, map[string]string{"test_a.py": "def test_one(): pass\n"})} {
		replayed, err := o.replay(t.Context(), gate.ReplayOptions{From: from, Workspace: workspace})
		require.NoError(t, err)
		require.Equal(t, gate.ReplayDifferent, replayed.Outcome)
		require.Equal(t, []gate.Difference{{
			Signal: "verdict", Want: "nothing against a pass", Got: "RUN_OUTSIDE_IO_BOUNDARY in gate 1",
		}}, replayed.Differences)
	}
	// A run that was blocked for it is the same when it is again.
	o.Replace = true
	_, err = o.run(t.Context())
	require.NoError(t, err)
	requireReplaysTheSame(t, o)
}

// requireReplaysTheSame replays a recorded run.
func requireReplaysTheSame(t *testing.T, o testJob) {
	t.Helper()
	replayed, err := o.replay(t.Context(), gate.ReplayOptions{From: o.OutDir})
	require.NoError(t, err)
	require.Equal(t, gate.ReplaySame, replayed.Outcome, "%+v", replayed)
}

// TestPrintedRefusal: text about a refused access is a warning, which run, verify, judge and replay
// agree on.
func TestPrintedRefusal(t *testing.T) {
	f := newFake(t)
	f.program = func(_ sandbox.Request, g *fakeGate) error {
		g.Stdout = "PermissionError: [Errno 13] Permission denied: '/etc/app.conf'\n" + g.Stdout
		return nil
	}
	o := options(t, f, oneTest)
	report, err := o.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, evidence.Pass, report.Verdict.Status, report.Verdict.Findings)
	require.Len(t, report.Verdict.Warnings, 1)
	require.Equal(t, "/etc/app.conf", report.Verdict.Warnings[0].Subject)
	verified, err := gate.Verify(t.Context(), o.OutDir, gate.VerifyOptions{})
	require.NoError(t, err)
	require.True(t, verified.OK, verified.Problems)
	require.Equal(t, report.Verdict, verified.Verdict)
	requireReplaysTheSame(t, o)
}

// TestReplayOfABaseline: what failed on the baseline is not expected of a replay, which has none.
func TestReplayOfABaseline(t *testing.T) {
	f := newFake(t)
	f.program = func(_ sandbox.Request, g *fakeGate) error {
		if f.ran == 1 {
			g.ExitCode, g.report = 1, `<testsuite name="pytest"><testcase classname="test_a" name="test_one"><failure/></testcase></testsuite>`
		}
		return nil
	}
	o := options(t, f, oneTest)
	repository, err := gogit.PlainInit(o.WishDir, false)
	require.NoError(t, err)
	o.Baseline = commit(t, repository, "first")
	report, err := o.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, evidence.Pass, report.Verdict.Status, report.Verdict.Findings)
	require.Equal(t, []string{"test_a.py::test_one"}, report.Tests.FailingTestsBefore)
	requireReplaysTheSame(t, o)
}

// TestReplayKeepsItsRecording: a replay never removes what it replays.
func TestReplayKeepsItsRecording(t *testing.T) {
	o := options(t, newFake(t), oneTest)
	for range 4 {
		_, err := o.run(t.Context())
		require.NoError(t, err)
	}
	for _, r := range []gate.ReplayOptions{{From: o.OutDir + ".3"}, {From: filepath.Join(o.OutDir+".3", evidence.GatesFile)}, {From: o.OutDir, Replace: true}} {
		r.OutDir = o.OutDir
		_, err := o.replay(t.Context(), r)
		require.ErrorAs(t, err, new(*gate.DirectoryError), r.From)
		require.ErrorContains(t, err, "is or holds")
		require.FileExists(t, filepath.Join(o.OutDir+".3", evidence.GatesFile))
		require.FileExists(t, filepath.Join(o.OutDir, evidence.GatesFile))
	}
	for _, from := range []string{o.OutDir + ".2", o.OutDir} {
		replayed, err := o.replay(t.Context(), gate.ReplayOptions{From: from, OutDir: o.OutDir})
		require.NoError(t, err)
		require.Equal(t, gate.ReplaySame, replayed.Outcome, "it moved, and is whole")
	}
}

// TestReplayOfRepeats: what a replay does not do is not expected of it.
func TestReplayOfRepeats(t *testing.T) {
	f := newFake(t)
	f.program = func(_ sandbox.Request, g *fakeGate) error {
		if f.ran == 2 {
			g.Observed.Opened, g.Stdout = []string{"/etc/shadow"}, "other\n"+g.Stdout
		}
		return nil
	}
	o := options(t, f, oneTest)
	o.Mode.Repeats = 2
	report, err := o.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, evidence.ReasonOutsideBoundary, report.Verdict.StopReason, "what a repetition tries is judged")
	require.Contains(t, reasons(report.Verdict), evidence.ReasonNonReproducible)
	requireReplaysTheSame(t, o)
}

// TestReplayOfALineThatDiffers: a document that expects no log, beside a log that differs.
func TestReplayOfALineThatDiffers(t *testing.T) {
	f := newFake(t)
	f.program = func(_ sandbox.Request, g *fakeGate) error {
		g.Stdout = fmt.Sprintf("lucky number %d\n", f.ran) + g.Stdout
		return nil
	}
	o := options(t, f, oneTest)
	_, err := o.run(t.Context())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(o.OutDir, evidence.GatesFile), []byte(`{"io_boundary":"./","offline":true,"commands":[{"cmd":"pytest -q"}]}`), 0o644))
	replayed, err := o.replay(t.Context(), gate.ReplayOptions{From: o.OutDir, Workspace: o.WishDir})
	require.NoError(t, err)
	require.Equal(t, gate.ReplayDifferent, replayed.Outcome, "%+v", replayed)
	require.NotNil(t, replayed.FirstLine)
	require.Len(t, replayed.Differences, 1)
	require.Equal(t, "log", replayed.Differences[0].Signal)
}

// TestReplayOfParallelTests: the order in which tests in parallel end is none of their results, and
// everything else is.
func TestReplayOfParallelTests(t *testing.T) {
	const names = `<testcase classname="t" name="a"/><testcase classname="t" name="b"/>`
	const skipsA, skipsB = `<testcase classname="t" name="a"><skipped/></testcase><testcase classname="t" name="b"/>`, `<testcase classname="t" name="a"/><testcase classname="t" name="b"><skipped/></testcase>`
	for name, c := range map[string]struct {
		stdout, again string
		cases, other  string   // of the run and of its replay
		signals       []string // of the differences
	}{
		"letters":         {"bringing up nodes...\n.. [ 66%]\n.\nx: 1\ny: 2\n", "bringing up nodes...\n. [ 33%]\n..\ny: 2\nx: 1\n", names, names, nil},
		"names":           {"gw0 [2] / gw1 [2]\n[gw0] [ 50%] PASSED t.py::a\n[gw1] [100%] PASSED t.py::b\n", "gw0 [2] / gw1 [2]\n[gw0] [ 50%] PASSED t.py::b\n[gw0] [100%] PASSED t.py::a\n", names, names, nil},
		"files":           {"t/a.t .. ok\nt/b.t .. ok\nFiles=2, Tests=4,  0 wallclock secs ( 0.02 usr + 0.07 cusr = 0.14 CPU)\n", "t/b.t .. ok\nt/a.t .. ok\nFiles=2, Tests=4,  1 wallclock secs ( 0.03 usr + 0.07 cusr = 0.15 CPU)\n", names, names, nil},
		"another letter":  {"bringing up nodes...\n...\n", "bringing up nodes...\n..s\n", names, names, []string{"log", "behavior_hash"}},
		"another line":    {"2 workers [2 items]\n..\nx: 1\n", "2 workers [2 items]\n..\nx: 2\n", names, names, []string{"log", "behavior_hash"}},
		"another outcome": {"2 workers [2 items]\n.s\nx: 1\ny: 2\n", "2 workers [2 items]\ns.\ny: 2\nx: 1\n", skipsB, skipsA, []string{"log", "outcome"}},
		"another stream":  {"2 workers [2 items]\n..\nx: 1\ny: 2\n", "2 workers [2 items]\n..\n<err>x: 1\ny: 2\n", names, names, []string{"log"}},
		"an indent":       {"2 workers [2 items]\n..\nx: 1\n", "2 workers [2 items]\n..\n  x: 1\n", names, names, []string{"log"}},
		"one by one":      {"x: 1\ny: 2\n", "y: 2\nx: 1\n", names, names, []string{"log"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.program = func(_ sandbox.Request, g *fakeGate) error {
				cases := c.cases
				if g.Stdout = c.stdout; f.ran > 1 {
					g.Stdout, cases = c.again, c.other
				}
				if out, both, found := strings.Cut(g.Stdout, "<err>"); found {
					line, rest, _ := strings.Cut(both, "\n")
					g.Stdout, g.Stderr = out+rest, line+"\n"
				}
				g.report = `<testsuite name="pytest">` + cases + `</testsuite>`
				return nil
			}
			o := options(t, f, oneTest)
			_, err := o.run(t.Context())
			require.NoError(t, err)
			replayed, err := o.replay(t.Context(), gate.ReplayOptions{From: o.OutDir})
			require.NoError(t, err)
			var signals []string
			for _, d := range replayed.Differences {
				signals = append(signals, d.Signal)
			}
			require.ElementsMatch(t, c.signals, signals, "%+v", replayed.Differences)
			if name == "another outcome" {
				require.Contains(t, replayed.Differences, gate.Difference{Gate: 1, Signal: "outcome", Subject: "t.py::a", Want: "passed", Got: "skipped"})
			}
		})
	}
}

// TestReplayOfAnEditedDirectory: what is not what was hashed is not run.
func TestReplayOfAnEditedDirectory(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string)
		file   string
	}{
		"a variable": {func(t *testing.T, dir string) {
			replaceIn(t, dir, evidence.RunManifestFile, `"vars": {`, `"vars": {"EVIL": "1",`)
		}, evidence.RunManifestFile},
		"a log": {func(t *testing.T, dir string) {
			replaceIn(t, dir, "evidence/raw/01.stdout.log", "1 passed", "9 passed")
		}, "evidence/raw/01.stdout.log"},
		"no hashes": {func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, evidence.ManifestFile)))
		}, evidence.ManifestFile},
		"no wish": {func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, evidence.WishLockFile)))
		}, evidence.WishLockFile},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			o := options(t, f, oneTest)
			_, err := o.run(t.Context())
			require.NoError(t, err)
			c.change(t, o.OutDir)
			replayed, err := o.replay(t.Context(), gate.ReplayOptions{From: o.OutDir})
			require.NoError(t, err)
			require.Equal(t, gate.ReplayCannot, replayed.Outcome, "%+v", replayed)
			var files []string
			for _, m := range replayed.Missing {
				files = append(files, m.File)
			}
			require.Contains(t, files, c.file)
			require.Equal(t, 1, f.ran, "nothing is run")
		})
	}
}

// TestReplayNamesFiles: a replay on other files says which ones differ.
func TestReplayNamesFiles(t *testing.T) {
	f := newFake(t)
	o := options(t, f, oneTest)
	_, err := o.run(t.Context())
	require.NoError(t, err)
	var recorded evidence.Workspace
	text, err := os.ReadFile(filepath.Join(o.OutDir, evidence.WorkspaceFile))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &recorded))
	other := treetest.Dir(t, map[string]string{"new.py": "1"})
	for name := range recorded.Entries {
		require.NoError(t, os.WriteFile(filepath.Join(other, name), []byte("changed"), 0o644))
	}
	ran := f.ran
	report, err := o.replay(t.Context(), gate.ReplayOptions{From: o.OutDir, Workspace: other})
	require.NoError(t, err)
	require.Equal(t, gate.ReplayCannot, report.Outcome)
	require.Equal(t, ran, f.ran)
	require.Contains(t, report.Missing[0].Detail, `holds other files than were recorded: "`)
	require.Contains(t, report.Missing[0].Detail, `"new.py" is new`)
}
