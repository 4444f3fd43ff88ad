package gate_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	gogit "github.com/go-git/go-git/v5"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/execute"
	"github.com/evalbox/evalbox/harness/gate/git"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/treehash"
	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

const oneTest = `
name: fake
python: "3.11.2"
image: debian
gate_commands: [pytest -q]
artifact_paths: ["out/**"]
`

func TestRunPasses(t *testing.T) {
	f := newFake(t)
	f.program = func(_ sandbox.Request, g *fakeGate) error {
		g.outputs["out/app"] = "binary"
		return nil
	}
	o := options(t, f, oneTest)
	var stages []string
	o.Progress = func(e gate.Event) { stages = append(stages, string(e.Stage)) }
	report, err := o.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, evidence.Pass, report.Verdict.Status, report.Verdict.Findings)
	require.Equal(t, []string{"manifest", "snapshot", "start", "end", "normalize", "hash", "judge"}, stages)
	require.Equal(t, []string{".gate", ".gate.1", ".gate.2", ".gate.3"}, report.Manifest.Exclude, "no gate sees the evidence of others")
	require.Len(t, report.Gates.Artifacts, 1)
	for _, name := range append([]string{
		evidence.WishLockFile, evidence.RunManifestFile, evidence.VerdictFile, evidence.GatesFile, evidence.ManifestFile, evidence.FindingsFile,
		"evidence/outputs/01/out/app", "evidence/raw/01.report",
	}, evidence.Required...) {
		require.FileExists(t, filepath.Join(o.OutDir, name))
	}
	left, err := os.ReadDir(f.store.RunsDir())
	require.NoError(t, err)
	require.Empty(t, left, "what runs left is in the evidence")

	// The verdict follows from the files alone.
	again, err := gate.Judge(t.Context(), o.OutDir)
	require.NoError(t, err)
	require.Equal(t, report.Verdict, again)
	verified, err := gate.Verify(t.Context(), o.OutDir, gate.VerifyOptions{})
	require.NoError(t, err)
	require.True(t, verified.OK, verified.Problems)
	require.False(t, verified.Attested)

	o.Replace = true
	report, err = o.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, evidence.Pass, report.Verdict.Status, report.Verdict.Findings)

	ran := f.ran
	o.Baseline = "no-such-revision"
	_, err = o.run(t.Context())
	var revision *git.RevisionError
	require.ErrorAs(t, err, &revision)
	require.ErrorContains(t, err, `baseline: revision "no-such-revision": `)
	require.Equal(t, ran, f.ran)
	verified, err = gate.Verify(t.Context(), o.OutDir, gate.VerifyOptions{})
	require.NoError(t, err)
	require.True(t, verified.OK, "a slip leaves the earlier run as it is")
}

// TestRunKeepsItsWish: a wish in the place of an earlier run stays where it is.
func TestRunKeepsItsWish(t *testing.T) {
	o := options(t, newFake(t), oneTest)
	o.OutDir = filepath.Join(t.TempDir(), "gate.out")
	for range 4 {
		_, err := o.run(t.Context())
		require.NoError(t, err)
	}
	for _, place := range []string{".1", ".3"} {
		o.WishDir = o.OutDir + place
		_, err := o.run(t.Context())
		require.ErrorAs(t, err, new(*gate.DirectoryError))
		require.ErrorContains(t, err, "gate.out"+place+" must stay: it is or holds")
		require.FileExists(t, filepath.Join(o.OutDir, evidence.VerdictFile))
	}
}

// TestRunAgain: each run in a workspace gets the same files, whatever earlier runs left there, and the
// evidence of each stays whole.
func TestRunAgain(t *testing.T) {
	f := newFake(t)
	f.program = func(req sandbox.Request, _ *fakeGate) error {
		entries, err := os.ReadDir(req.Trees[0].Source)
		require.NoError(t, err)
		for _, entry := range entries {
			require.NotContains(t, entry.Name(), "gate", "the copy has no evidence")
		}
		return nil
	}
	o := options(t, f, oneTest)
	o.OutDir = filepath.Join(o.WishDir, "gate.out")
	repository, err := gogit.PlainInit(o.WishDir, false)
	require.NoError(t, err)
	commit(t, repository, "first")
	o.Mode.Strict = true // evidence makes no tree dirty
	var first gate.Report
	for i := range 5 {
		report, err := o.run(t.Context())
		require.NoError(t, err)
		require.Equal(t, evidence.Pass, report.Verdict.Status, report.Verdict.Findings)
		if i == 0 {
			first = report
		}
		require.Equal(t, first.Gates.Workspace, report.Gates.Workspace)
		require.Equal(t, first.Manifest, report.Manifest)
	}
	for _, name := range []string{"gate.out", "gate.out.1", "gate.out.2", "gate.out.3"} {
		dir := filepath.Join(o.WishDir, name)
		verified, err := gate.Verify(t.Context(), dir, gate.VerifyOptions{})
		require.NoError(t, err)
		require.True(t, verified.OK, verified.Problems)
		replayed, err := o.replay(t.Context(), gate.ReplayOptions{From: dir})
		require.NoError(t, err)
		require.Equal(t, gate.ReplaySame, replayed.Outcome, "%+v", replayed)
	}
	require.NoDirExists(t, filepath.Join(o.WishDir, "gate.out.4"))
	tree, err := repository.Worktree()
	require.NoError(t, err)
	status, err := tree.Status()
	require.NoError(t, err)
	require.True(t, status.IsClean(), "evidence ignores itself: %s", status)

	// The ignore file is checked too.
	require.NoError(t, os.WriteFile(filepath.Join(o.OutDir, ".gitignore"), []byte("*.json\n"), 0o644))
	verified, err := gate.Verify(t.Context(), o.OutDir, gate.VerifyOptions{})
	require.NoError(t, err)
	require.Equal(t, []gate.Problem{{File: ".gitignore", Detail: "is not the file that a gate writes"}}, verified.Problems)
	require.NoError(t, os.Remove(filepath.Join(o.OutDir, ".gitignore")))
	verified, err = gate.Verify(t.Context(), o.OutDir, gate.VerifyOptions{})
	require.NoError(t, err)
	require.True(t, verified.OK, verified.Problems)

	// Files of somebody else that only have such a name are a part of the workspace.
	o.OutDir = filepath.Join(o.WishDir, "own")
	o.Mode.Strict = false
	require.NoError(t, os.Mkdir(o.OutDir+".1", 0o755))
	require.NoError(t, os.WriteFile(o.OutDir+".1/data.csv", nil, 0o644))
	f.program = nil
	report, err := o.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"own", "own.2", "own.3"}, report.Manifest.Exclude)
}

// TestNothingRuns: what must not be executed is not, and has a verdict all the same.
func TestNothingRuns(t *testing.T) {
	for reason, change := range map[evidence.StopReason]func(*testJob){
		evidence.ReasonModeViolation: func(o *testJob) { o.Mode.Execute = false },
		evidence.ReasonToolsDisabled: func(o *testJob) { o.Mode.Tools = false },
		evidence.ReasonNotSealed:     func(o *testJob) { o.Sealed = false },
		evidence.ReasonNoCommands:    func(o *testJob) { o.Lock.Wish.GateCommands = nil },
		evidence.ReasonNoWorkspace:   func(o *testJob) { o.Lock.Wish.IOBoundary = "nowhere" },
		evidence.ReasonDirty:         func(o *testJob) { o.Mode.Strict = true },
		evidence.ReasonToolRefused:   func(o *testJob) { o.Tools = noTools{} },
	} {
		t.Run(string(reason), func(t *testing.T) {
			f := newFake(t)
			o := options(t, f, oneTest)
			change(&o)
			report, err := o.run(t.Context())
			require.NoError(t, err)
			require.Equal(t, evidence.Blocked, report.Verdict.Status)
			require.Equal(t, reason, report.Verdict.StopReason, report.Verdict.Findings)
			require.Zero(t, f.ran)
			for _, name := range evidence.Required {
				require.FileExists(t, filepath.Join(o.OutDir, name), "RT-04")
			}
			verified, err := gate.Verify(t.Context(), o.OutDir, gate.VerifyOptions{})
			require.NoError(t, err)
			require.True(t, verified.OK, verified.Problems)
		})
	}
}

// TestDisturbedGate: a gate that its environment or an operator ended is not a failed gate.
func TestDisturbedGate(t *testing.T) {
	for name, end := range map[string]result.Result{
		"a full disk":      {Status: result.StatusDiskLimit, Fault: result.FaultEnvironment, ExitCode: 143, Explanation: "The disk was nearly full."},
		"a foreign signal": {Status: result.StatusSignaled, Fault: result.FaultOperator, ExitCode: 0, Signal: 15, Explanation: "Somebody else stopped it."},
		"a lost GPU":       {Status: result.StatusExited, Fault: result.FaultEnvironment, ExitCode: 1, Explanation: "The GPU is gone."},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.program = func(_ sandbox.Request, g *fakeGate) error {
				g.Status, g.Fault, g.ExitCode, g.Signal, g.Explanation = end.Status, end.Fault, end.ExitCode, end.Signal, end.Explanation
				return nil
			}
			o := options(t, f, oneTest)
			report, err := o.run(t.Context())
			require.NoError(t, err)
			require.Equal(t, evidence.Blocked, report.Verdict.Status)
			require.Equal(t, evidence.ReasonIncomplete, report.Verdict.StopReason, "%+v", report.Verdict.Findings)
			require.Contains(t, report.Verdict.Findings[0].Detail, end.Explanation)
			ended, err := report.Trial(trial.Job{}, nil)
			require.NoError(t, err)
			require.Equal(t, trial.Inconclusive, ended.Verdict)
			again, err := gate.Judge(t.Context(), o.OutDir)
			require.NoError(t, err)
			require.Equal(t, report.Verdict, again)
		})
	}
}

// noTools permits nothing.
type noTools struct{}

func (noTools) Check(argv []string) error { return fmt.Errorf("tool %q is not registered", argv[0]) }

// TestOurFailure: our failure is an error, what was seen is kept, and the verdict is
// no pass.
func TestOurFailure(t *testing.T) {
	lost := errors.New("the engine went away")
	for name, program := range map[string]func(*fake) func(sandbox.Request, *fakeGate) error{
		"engine not there": func(*fake) func(sandbox.Request, *fakeGate) error {
			return func(sandbox.Request, *fakeGate) error { return errors.Join(sandbox.ErrEngineUnavailable, lost) }
		},
		"engine lost": func(*fake) func(sandbox.Request, *fakeGate) error {
			return func(_ sandbox.Request, g *fakeGate) error {
				g.Status, g.Fault, g.OutputComplete = result.StatusEngineLost, result.FaultEnvironment, false
				return lost
			}
		},
		"second gate": func(f *fake) func(sandbox.Request, *fakeGate) error {
			return func(sandbox.Request, *fakeGate) error {
				if f.ran == 2 {
					return errors.Join(sandbox.ErrEngineUnavailable, lost)
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.program = program(f)
			o := options(t, f, strings.Replace(oneTest, "[pytest -q]", "[pytest -q, pytest -q b]", 1))
			report, err := o.run(t.Context())
			require.ErrorIs(t, err, lost)
			require.Equal(t, evidence.Blocked, report.Verdict.Status)
			require.Contains(t, reasons(report.Verdict), evidence.ReasonIncomplete)
			again, err := gate.Judge(t.Context(), o.OutDir)
			require.NoError(t, err)
			require.Equal(t, report.Verdict, again)
		})
	}
}

// TestCanceled: who ends a run gets the error, and the directory a verdict.
func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stopped by the test")
	f := newFake(t)
	f.program = func(_ sandbox.Request, g *fakeGate) error {
		cancel(stop)
		g.Status, g.Fault, g.ExitCode = result.StatusCanceled, result.FaultOperator, 143
		return nil
	}
	o := options(t, f, oneTest)
	report, err := o.run(ctx)
	require.ErrorIs(t, err, stop)
	require.Equal(t, evidence.Blocked, report.Verdict.Status)
	require.FileExists(t, filepath.Join(o.OutDir, "evidence/raw/01.result.json"))
	require.Equal(t, evidence.ReasonIncomplete, report.Verdict.StopReason, "that nothing was tested is no news")
	require.Contains(t, report.Verdict.Findings[0].Detail, "stopped by the test")
}

// TestFailureAfterTheGates: our failure while repeats are compared is an error, and
// the run has a verdict all the same.
func TestFailureAfterTheGates(t *testing.T) {
	f := newFake(t)
	o := options(t, f, oneTest)
	o.Mode.Repeats = 2
	o.Progress = func(e gate.Event) {
		if e.Stage == execute.StageHash {
			require.NoError(t, os.Remove(f.store.TempDir()))
			require.NoError(t, os.WriteFile(f.store.TempDir(), nil, 0o600))
		}
	}
	report, err := o.run(t.Context())
	require.ErrorIs(t, err, syscall.ENOTDIR)
	require.Equal(t, evidence.ReasonIncomplete, report.Verdict.StopReason, report.Verdict.Findings)
	require.Contains(t, report.Verdict.Findings[0].Detail, "comparing the repeats")
	require.FileExists(t, filepath.Join(o.OutDir, evidence.VerdictFile))
	verified, err := gate.Verify(t.Context(), o.OutDir, gate.VerifyOptions{})
	require.NoError(t, err)
	require.True(t, verified.OK, verified.Problems)
}

// TestNothingIsLeft: copies of repeats are gone as soon as they were compared.
func TestNothingIsLeft(t *testing.T) {
	f := newFake(t)
	o := options(t, f, oneTest)
	o.Mode.Repeats = 3
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	report, err := o.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, evidence.Pass, report.Verdict.Status, report.Verdict.Findings)
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestCrash: a directory that was left half-made is judged as blocked.
func TestCrash(t *testing.T) {
	f := newFake(t)
	o := options(t, f, oneTest)
	report, err := o.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, evidence.Pass, report.Verdict.Status)
	// What each step leaves, backwards.
	for _, name := range []string{
		evidence.ManifestFile, evidence.FindingsFile, evidence.ArtifactsFile, evidence.TestsFile, evidence.RunLogFile, "evidence/raw/01.result.json",
		evidence.EnvSnapshotFile, evidence.RunManifestFile, evidence.WishLockFile,
	} {
		require.NoError(t, os.Remove(filepath.Join(o.OutDir, name)))
		verdict, err := gate.Judge(t.Context(), o.OutDir)
		require.NoError(t, err)
		require.Equal(t, evidence.Blocked, verdict.Status, "without %s", name)
	}
}

// TestProveDeterministic: equal runs pass, and the first difference of unequal ones is
// reported.
func TestProveDeterministic(t *testing.T) {
	for name, c := range map[string]struct {
		program         func(f *fake) func(sandbox.Request, *fakeGate) error
		subject, detail string // empty: deterministic
	}{
		"same": {program: func(*fake) func(sandbox.Request, *fakeGate) error {
			return func(_ sandbox.Request, g *fakeGate) error { g.outputs["out/app"] = "same"; return nil }
		}},
		"durations only": {program: func(f *fake) func(sandbox.Request, *fakeGate) error {
			return func(_ sandbox.Request, g *fakeGate) error {
				g.Stdout = fmt.Sprintf(".                                                                        [100%%]\n1 passed in 0.0%ds\n", f.ran)
				return nil
			}
		}},
		"log": {program: func(f *fake) func(sandbox.Request, *fakeGate) error {
			return func(_ sandbox.Request, g *fakeGate) error {
				g.Stdout = fmt.Sprintf("seeded with lucky number %d\n", f.ran) + g.Stdout
				return nil
			}
		}, subject: evidence.RunLogFile, detail: `"seeded with lucky number 1", and "seeded with lucky number 2" in run 2`},
		"completeness": {program: func(f *fake) func(sandbox.Request, *fakeGate) error {
			return func(_ sandbox.Request, g *fakeGate) error { g.OutputComplete = f.ran != 2; return nil }
		}, subject: "pytest -q", detail: "Its output is complete, and not complete in run 2."},
		"report": {program: func(f *fake) func(sandbox.Request, *fakeGate) error {
			return func(_ sandbox.Request, g *fakeGate) error {
				if f.ran == 2 {
					g.report = g.report[:40]
				}
				return nil
			}
		}, subject: "pytest -q", detail: "in run 2"},
		"output": {program: func(f *fake) func(sandbox.Request, *fakeGate) error {
			return func(_ sandbox.Request, g *fakeGate) error { g.outputs["out/app"] = fmt.Sprint(f.ran); return nil }
		}, subject: "evidence/outputs/01/out/app", detail: "has other content in run 2"},
		"result": {program: func(f *fake) func(sandbox.Request, *fakeGate) error {
			return func(_ sandbox.Request, g *fakeGate) error {
				if f.ran == 3 {
					g.report = strings.Replace(g.report, "test_one", "test_two", 1)
				}
				return nil
			}
		}, subject: "test_one", detail: "Its outcome is passed, and missing in run 3."},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.program = c.program(f)
			o := options(t, f, oneTest)
			o.Mode.Repeats = 3
			report, err := o.run(t.Context())
			require.NoError(t, err)
			require.Equal(t, 3, f.ran)
			if c.subject == "" {
				require.Equal(t, evidence.Pass, report.Verdict.Status, report.Verdict.Findings)
				return
			}
			require.Equal(t, evidence.Blocked, report.Verdict.Status)
			require.Contains(t, reasons(report.Verdict), evidence.ReasonNonReproducible)
			var told []string
			for _, finding := range report.Verdict.Findings {
				if finding.Reason == evidence.ReasonNonReproducible {
					told = append(told, finding.Subject+": "+finding.Detail)
				}
			}
			require.Contains(t, strings.Join(told, "\n"), c.detail)
			require.Contains(t, strings.Join(told, "\n"), c.subject)
		})
	}
}

// TestVerifyFindsTampering: no file can be changed, added or taken away, and no verdict
// be made up.
func TestVerifyFindsTampering(t *testing.T) {
	failing := newFake(t)
	failing.program = func(_ sandbox.Request, g *fakeGate) error {
		g.ExitCode, g.Stdout, g.report = 1, "1 failed in 0.01s\n", ""
		return nil
	}
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string)
		file   string
	}{
		"log": {func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "evidence/raw/01.stdout.log"), []byte("1 passed\n"), 0o644))
		}, "evidence/raw/01.stdout.log"},
		"verdict": {func(t *testing.T, dir string) {
			file := filepath.Join(dir, evidence.VerdictFile)
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(text), `"BLOCKED"`, `"PASS"`, 1)), 0o644))
		}, evidence.VerdictFile},
		"gates": {func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, evidence.GatesFile), []byte("{}"), 0o644))
		}, evidence.GatesFile},
		"no verdict": {func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, evidence.VerdictFile)))
		}, evidence.VerdictFile},
		"link": {func(t *testing.T, dir string) {
			file := filepath.Join(dir, evidence.TestsFile)
			require.NoError(t, os.Rename(file, file+".away"))
			require.NoError(t, os.Symlink("tests.json.away", file))
		}, evidence.TestsFile},
		"more": {func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "evidence/raw/02.stdout.log"), nil, 0o644))
		}, "evidence/raw/02.stdout.log"},
		"a file beside the evidence": {func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "REPORT.md"), []byte("all tests passed"), 0o644))
		}, "REPORT.md"},
		"a directory beside the evidence": {func(t *testing.T, dir string) {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "evidence2", "raw"), 0o755))
		}, "evidence2"},
		"a link beside the evidence": {func(t *testing.T, dir string) {
			require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, ".hidden")))
		}, ".hidden"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, failing, oneTest)
			report, err := o.run(t.Context())
			require.NoError(t, err)
			require.Equal(t, evidence.Blocked, report.Verdict.Status)
			c.change(t, o.OutDir)
			verified, err := gate.Verify(t.Context(), o.OutDir, gate.VerifyOptions{})
			require.NoError(t, err)
			require.False(t, verified.OK)
			require.Equal(t, evidence.Blocked, verified.Verdict.Status)
			var files []string
			for _, problem := range verified.Problems {
				files = append(files, problem.File)
			}
			require.Contains(t, files, c.file)
		})
	}
}

// TestVerifyIsBounded: a gate directory from elsewhere may hold any number of entries.
func TestVerifyIsBounded(t *testing.T) {
	o := options(t, newFake(t), oneTest)
	_, err := o.run(t.Context())
	require.NoError(t, err)
	for i := range 300 {
		require.NoError(t, os.WriteFile(filepath.Join(o.OutDir, fmt.Sprintf("more-%03d", i)), nil, 0o644))
	}
	verified, err := gate.Verify(t.Context(), o.OutDir, gate.VerifyOptions{})
	require.NoError(t, err)
	require.False(t, verified.OK)
	require.Len(t, verified.Problems, 101)
	require.Contains(t, verified.Problems, gate.Problem{File: ".", Detail: "has 200 further entries that are not of a gate"})
}

// TestVerifyAttestation: the signed statement is checked by anybody with the key.
func TestVerifyAttestation(t *testing.T) {
	o := options(t, newFake(t), oneTest)
	_, err := o.run(t.Context())
	require.NoError(t, err)
	good := func(_ context.Context, root *os.Root) error { _, err := root.Stat(evidence.ManifestFile); return err }
	verified, err := gate.Verify(t.Context(), o.OutDir, gate.VerifyOptions{Attestation: good})
	require.NoError(t, err)
	require.True(t, verified.OK && verified.Attested, verified.Problems)
	bad := func(context.Context, *os.Root) error { return errors.New("signature is wrong") }
	verified, err = gate.Verify(t.Context(), o.OutDir, gate.VerifyOptions{Attestation: bad})
	require.NoError(t, err)
	require.False(t, verified.OK || verified.Attested)
	require.Equal(t, gate.Problem{File: evidence.AttestationFile, Detail: "signature is wrong"}, verified.Problems[0])

	_, err = gate.Verify(t.Context(), filepath.Join(o.OutDir, "nowhere"), gate.VerifyOptions{})
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestOutsideTheWish: a gate directory in the way is refused before anything is touched.
func TestOutsideTheWish(t *testing.T) {
	f := newFake(t)
	o := options(t, f, oneTest)
	o.OutDir, o.Replace = o.WishDir, true
	_, err := o.run(t.Context())
	var refused *gate.DirectoryError
	require.ErrorAs(t, err, &refused)
	require.FileExists(t, filepath.Join(o.WishDir, "test_a.py"))
	require.Zero(t, f.ran)
}

// TestCommit: a dirty workspace is blocked in strict mode; a named commit runs from a private
// checkout, and the evidence names the hash of the files that ran.
func TestCommit(t *testing.T) {
	f := newFake(t)
	o := options(t, f, oneTest)
	repository, err := gogit.PlainInit(o.WishDir, false)
	require.NoError(t, err)
	first := commit(t, repository, "first")
	file := filepath.Join(o.WishDir, "test_a.py")
	require.NoError(t, os.WriteFile(file, []byte("def test_one(): assert False\n"), 0o644))
	o.Mode.Strict = true
	report, err := o.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, evidence.ReasonDirty, report.Verdict.StopReason)
	require.Contains(t, report.Verdict.Findings[0].Detail, "test_a.py")
	require.Zero(t, f.ran)

	f.program = func(req sandbox.Request, _ *fakeGate) error {
		text, err := os.ReadFile(filepath.Join(req.Trees[0].Source, "test_a.py"))
		require.NoError(t, err)
		require.Equal(t, "def test_one(): pass\n", string(text))
		return nil
	}
	o.Mode.Strict, o.Replace, o.Commit = false, true, "HEAD"
	report, err = o.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, evidence.Pass, report.Verdict.Status, report.Verdict.Findings)
	require.Equal(t, first, report.Manifest.Repo.Commit)
	clean, err := treehash.Of(t.Context(), treetest.Dir(t, map[string]string{"test_a.py": "def test_one(): pass\n"}), treehash.Options{})
	require.NoError(t, err)
	require.Equal(t, clean.Sum, report.Gates.Workspace)
	replayed, err := o.replay(t.Context(), gate.ReplayOptions{From: o.OutDir})
	require.NoError(t, err)
	require.Equal(t, gate.ReplaySame, replayed.Outcome, "the commit is still there: %+v", replayed)
}

// TestTailAndTimes: the end of the output of a gate and the times of its tests are those of the raw
// files.
func TestTailAndTimes(t *testing.T) {
	f := newFake(t)
	f.program = func(_ sandbox.Request, g *fakeGate) error {
		g.ExitCode, g.DurationSeconds = 1, 2.5
		g.Stdout = strings.Repeat("before\n", 100_000) + "one\n\n\x1b[31mtwo\x1b[0m\n 10%\r 20%\n" + strings.Repeat("x", 5000)
		g.Stderr = "error: a\nerror: b\n"
		return nil
	}
	o := options(t, f, oneTest)
	report, err := o.run(t.Context())
	require.NoError(t, err)
	tail, err := report.Tail(1, 6)
	require.NoError(t, err)
	require.Len(t, tail, 6)
	require.Equal(t, []string{"one", "two", " 20%"}, tail[:3])
	require.Less(t, len(tail[3]), 1100)
	require.Equal(t, []string{"error: a", "error: b"}, tail[4:])
	tail, err = report.Tail(1, 2)
	require.NoError(t, err)
	require.Equal(t, "error: b", tail[1], "both streams have a part")
	none, err := report.Tail(7, 20)
	require.NoError(t, err)
	require.Empty(t, none)

	times := report.Times(t.Context())
	require.InDelta(t, 2.5, times[1].Seconds, 0.001)
	require.Equal(t, map[string]float64{"test_a.py::test_one": 0.001}, times[1].Cases)
}

// TestSubtestsInAnyOrder: Go walks maps in random order, so that the lines of subtests move. Other
// lines that move are a difference.
func TestSubtestsInAnyOrder(t *testing.T) {
	event := func(action, test, output string) string {
		return fmt.Sprintf(`{"Action":%q,"Package":"m","Test":%q,"Output":%q}`+"\n", action, test, output)
	}
	sub := func(name string) string {
		return event("run", name, "") + event("output", name, "=== RUN   "+name+"\n") + event("output", name, "    x_test.go:1: "+name+"\n") + event("pass", name, "")
	}
	for name, c := range map[string]struct {
		wish string
		want evidence.Status
	}{
		"go test":      {"name: fake\nimage: debian\ngate_commands: [go test ./...]\n", evidence.Pass},
		"another tool": {"name: fake\nimage: debian\ngate_commands: [{cmd: ./x, report: junit, report_path: out.xml}]\n", evidence.Blocked},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.program = func(_ sandbox.Request, g *fakeGate) error {
				subs := []string{sub("TestA/x"), sub("TestA/y")}
				if f.ran%2 == 0 {
					slices.Reverse(subs)
				}
				g.Stdout = event("run", "TestA", "") + strings.Join(subs, "") + event("pass", "TestA", "") + `{"Action":"pass","Package":"m"}` + "\n"
				return nil
			}
			o := options(t, f, c.wish)
			o.Mode.Repeats = 3
			report, err := o.run(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.want, report.Verdict.Status, report.Verdict.Findings)
			if c.want == evidence.Pass {
				replayed, err := o.replay(t.Context(), gate.ReplayOptions{From: o.OutDir})
				require.NoError(t, err)
				require.Equal(t, gate.ReplaySame, replayed.Outcome, "%+v", replayed)
				require.Nil(t, replayed.FirstLine)
			} else {
				require.Contains(t, reasons(report.Verdict), evidence.ReasonNonReproducible)
			}
		})
	}
}
