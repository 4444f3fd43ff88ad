//go:build linux

package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/stage"
)

// TestFinalThatWasReplaced by something else while its run had no controller: the run is finished as if
// another directory had taken its place, and nothing is held for it.
func TestFinalThatWasReplaced(t *testing.T) {
	for kind, replace := range map[string]func(out, other string) error{
		"directory": func(out, _ string) error { return os.Mkdir(out, 0o755) },
		"file":      func(out, _ string) error { return os.WriteFile(out, []byte("mine"), 0o600) },
		"link":      func(out, other string) error { return os.Symlink(other, out) },
	} {
		for _, transfer := range []string{spec.TransferBind, spec.TransferCopy} {
			for _, step := range []string{"begun", "accepted"} {
				for _, how := range []string{"gc", "adopt"} {
					t.Run(strings.Join([]string{kind, transfer, step, how}, ", "), func(t *testing.T) {
						base := t.TempDir()
						out, other := filepath.Join(base, "out"), filepath.Join(base, "other")
						treetest.Write(t, base, map[string]string{"other/mine": "precious", "out/before": "precious"})
						w := newWorker()
						close(w.letGo)
						fake := enginetest.NewFake(w.program)
						req := finalRequest("r1", out)
						req.Transfer = transfer
						r := dieAt(t, fake, step, req)
						require.NoError(t, os.Rename(out, out+".moved"))
						require.NoError(t, replace(out, other))
						want := treetest.Everything(t, base)

						if how == "gc" {
							_, err := r.GC(t.Context(), GCOptions{})
							require.NoError(t, err)
						} else {
							_, err := r.Adopt(t.Context(), "r1")
							require.NoError(t, err)
						}
						found, err := r.store.Get("r1")
						require.NoError(t, err)
						require.Equal(t, record.Finished, found.State)
						require.Equal(t, step == "accepted", found.Result.Status == result.StatusExited, found.Result.Explanation)
						require.Empty(t, fake.Left())
						require.FileExists(t, filepath.Join(out+".moved", "before"), "nothing is lost")
						switch {
						case step == "begun":
							require.Equal(t, want, treetest.Everything(t, base), "nothing came there")
						case kind == "directory":
							require.FileExists(t, filepath.Join(out, "model.bin"))
						default:
							require.Equal(t, want, treetest.Everything(t, base), "nothing is written through it")
							require.Contains(t, strings.Join(found.Result.Warnings, "\n"), `was replaced by a `)
							require.FileExists(t, filepath.Join(found.OutputDir(), "model.bin"), "outputs are kept in the record")
						}
						if kind != "directory" && step == "accepted" {
							require.ErrorIs(t, r.store.Remove("r1"), record.ErrRunning, "its outputs have still to come")
							require.NoError(t, os.Remove(out))
							_, err = r.GC(t.Context(), GCOptions{})
							require.NoError(t, err)
							require.FileExists(t, filepath.Join(out, "model.bin"))
						}
						require.NoError(t, r.store.Remove("r1"))
						_, err = r.GC(t.Context(), GCOptions{})
						require.NoError(t, err)
						_, next := stage.FilledLast(r.store, out)
						require.Empty(t, next)
					})
				}
			}
		}
	}
}

// TestFinalThatIsReplacedDuringARun: the outputs stay in the record, and come once they can.
func TestFinalThatIsReplacedDuringARun(t *testing.T) {
	base := t.TempDir()
	out := filepath.Join(base, "out")
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		if errors.Join(os.WriteFile(p.Final("model"), nil, 0o600), os.Rename(out, out+".moved"), os.WriteFile(out, nil, 0o600)) != nil {
			return 1
		}
		return 0
	})
	r := newFakeRunner(t, fake)
	res, err := r.Run(t.Context(), finalRequest("r1", out))
	require.NoError(t, err)
	require.Zero(t, res.ExitCode)
	require.Len(t, res.Outputs, 1)
	found, err := r.store.Get("r1")
	require.NoError(t, err)
	require.Contains(t, strings.Join(res.Warnings, "\n"), "was replaced by a file: the outputs are in "+found.OutputDir()+"; move them with: sandbox adopt r1")
	require.FileExists(t, filepath.Join(found.OutputDir(), "model"))
	_, err = r.Adopt(t.Context(), "r1")
	require.ErrorContains(t, err, "was replaced by a file")
	_, err = r.GC(t.Context(), GCOptions{})
	require.NoError(t, err, "only the user can make room")
	require.NoError(t, os.Remove(out))
	_, err = r.Adopt(t.Context(), "r1")
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(out, "model"))
	for range 2 {
		_, err = r.GC(t.Context(), GCOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, r.store.Remove("r1"))
}

// TestLinksOfAProgram: a path through a link that a program may have made is refused by name, wherever it
// leads to. The links of others are followed.
func TestLinksOfAProgram(t *testing.T) {
	base := t.TempDir()
	out, victim := filepath.Join(base, "out"), filepath.Join(base, "victim")
	treetest.Write(t, base, map[string]string{"victim/thesis": "years", "victim/in/run.py": "print(1)", "mine/f": "x"})
	require.NoError(t, os.Symlink(victim, filepath.Join(base, "link-of-the-user")))
	require.NoError(t, os.Symlink(filepath.Join(out, "deep", "..", "sub"), filepath.Join(base, "link-to-a-link")))
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		err := errors.Join(os.Symlink(victim, p.Final("sub")), os.Mkdir(p.Final("deep"), 0o755),
			os.Symlink("../../victim", p.Final("deep/sub")), os.Symlink("deep", p.Final("inside")), os.Symlink("nothing", p.Final("dangling")))
		if err != nil {
			return 1
		}
		return 0
	})
	r := newFakeRunner(t, fake)
	res, err := r.Run(t.Context(), finalRequest("r1", out))
	require.NoError(t, err)
	require.Zero(t, res.ExitCode)
	before := treetest.Everything(t, base)

	refused := func(t *testing.T, field, link string, req Request) {
		t.Helper()
		req.ID = "r2"
		_, err := r.Run(t.Context(), req)
		var path *PathError
		require.ErrorAs(t, err, &path)
		require.Equal(t, field, path.Field)
		require.ErrorContains(t, err, link)
		require.ErrorContains(t, err, "in "+out+", which a program filled")
		require.Equal(t, before, treetest.Everything(t, base))
	}
	for final, link := range map[string]string{
		"out/sub": "out/sub", "out/sub/in": "out/sub", "out/sub/new": "out/sub", "out/deep/sub": "out/deep/sub", "out/inside": "out/inside",
		"out/dangling": "out/dangling", "link-to-a-link": "out/sub", "link-to-a-link/new": "out/sub",
	} {
		refused(t, "final", filepath.Join(base, link), finalRequest("r2", filepath.Join(base, final)))
		_, err := r.ClearFinal(t.Context(), filepath.Join(base, final), "")
		if final != "out/sub/new" && final != "out/dangling" && final != "link-to-a-link/new" { // these do not exist
			require.ErrorContains(t, err, "which a program filled", final)
		}
	}
	require.Equal(t, before, treetest.Everything(t, base))
	sub := filepath.Join(out, "sub")
	refused(t, "script", sub, Request{Image: "debian", Script: filepath.Join(sub, "in/run.py")})
	req := command("true")
	req.Input = sub
	refused(t, "input", sub, req)
	req = command("true")
	req.Mounts = []Mount{{Source: sub, Target: "/repo"}}
	refused(t, "mount", sub, req)
	req = command("true")
	req.Trees = []Tree{{Source: sub, Target: "/repo"}}
	refused(t, "tree", sub, req)

	fake.Do(func(f *enginetest.Fake) { f.Program = nil })
	for i, final := range []string{"link-of-the-user/new", "out/deep", "new"} {
		_, err := r.Run(t.Context(), finalRequest("r"+string(rune('3'+i)), filepath.Join(base, final)))
		require.NoError(t, err, final)
	}
	require.NoError(t, r.store.Remove("r1"))
	_, err = r.GC(t.Context(), GCOptions{})
	require.NoError(t, err)
	_, err = r.Run(t.Context(), finalRequest("r9", sub))
	require.ErrorContains(t, err, "which a program filled", "also without its record")
}

// TestCloseLeavesWhatIsFinishedBehind to the next process: a run does not wait for the outputs of another.
func TestCloseLeavesWhatIsFinishedBehind(t *testing.T) {
	for _, transfer := range []string{spec.TransferBind, spec.TransferCopy} {
		t.Run(transfer, func(t *testing.T) {
			w := newWorker()
			close(w.letGo)
			fake := enginetest.NewFake(w.program)
			repo := readable(t, map[string]string{"f": "1"})
			req := finalRequest("r1", filepath.Join(t.TempDir(), "out"))
			req.Transfer, req.Trees = transfer, []Tree{{Source: repo, Target: "/repo"}}
			r := dieAt(t, fake, "ended", req)
			fake.Do(func(f *enginetest.Fake) { f.Program = nil })
			collecting := make(chan struct{})
			r.at = func(step string, a *run) {
				if a.spec.Job.RunID == "r1" && step == "ended" {
					// It has begun to collect when its runner is closed.
					ctx, leave := context.WithCancelCause(context.Background())
					leave(stage.ErrLeft)
					a.stage.Collect(ctx, true, true, false)
					close(collecting)
					<-a.leave.Done()
				}
			}
			next := command("other")
			next.ID = "r2"
			_, err := r.Run(t.Context(), next)
			require.NoError(t, err)
			<-collecting
			r.behind.Close()
			found, err := r.store.Get("r1")
			require.NoError(t, err)
			require.Equal(t, record.Lost, found.State, "nobody owns it")

			again := newFakeRunner(t, fake, WithStateDir(r.store.Dir()))
			res, err := again.Adopt(t.Context(), "r1")
			require.NoError(t, err)
			require.Equal(t, result.StatusExited, res.Status, res.Explanation)
			require.Len(t, res.Outputs, 1)
			require.Len(t, res.Trees, 1)
			require.True(t, res.Trees[0].Complete)
			require.Equal(t, 1, w.times())
			require.Empty(t, fake.Left())
		})
	}
}

// TestAGarbageCollectionThatIsInterrupted leaves the outputs of a run to the next process.
func TestAGarbageCollectionThatIsInterrupted(t *testing.T) {
	w := newWorker()
	close(w.letGo)
	fake := enginetest.NewFake(w.program)
	r := dieAt(t, fake, "ended", finalRequest("r1", filepath.Join(t.TempDir(), "out")))
	ctx, cancel := context.WithCancel(t.Context())
	r.at = func(step string, _ *run) {
		if step == "ended" {
			cancel()
		}
	}
	report, _ := r.GC(ctx, GCOptions{})
	require.Empty(t, report.Finished)
	state, err := r.store.State("r1")
	require.NoError(t, err)
	require.Equal(t, record.Lost, state)
	report, err = r.GC(t.Context(), GCOptions{})
	require.NoError(t, err)
	require.Len(t, report.Finished, 1)
}

// TestAGarbageCollectionBesideARun fails for no run of another state directory whose ./final is in use: the
// run that uses it moves the outputs, or the next collection does.
func TestAGarbageCollectionBesideARun(t *testing.T) {
	w := newWorker()
	close(w.letGo)
	fake := enginetest.NewFake(w.program)
	out := filepath.Join(t.TempDir(), "out")
	r := dieAt(t, fake, "written", finalRequest("r1", out))
	lock, err := fsx.LockPath(out)
	require.NoError(t, err)
	report, err := newFakeRunner(t, fake).GC(t.Context(), GCOptions{})
	require.NoError(t, err)
	require.Len(t, report.Left, 1)
	require.Contains(t, report.Left[0].Reason, "in use by another run")
	require.NoError(t, lock.Close())
	_, err = r.Adopt(t.Context(), "r1")
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(out, "model.bin"))
	require.Empty(t, fake.Left())
}
