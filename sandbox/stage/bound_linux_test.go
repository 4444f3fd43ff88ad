package stage

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/record/recordtest"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// boundRun is a run whose disk limit is enforced, with a tree and a ./final of another user.
func boundRun(t *testing.T, id string) (spec.Spec, string) {
	t.Helper()
	final := filepath.Join(t.TempDir(), "out")
	plan := workSpec(id)
	plan.Schema, plan.Job.Final, plan.Job.DiskBound = spec.SchemaV1, final, spec.DiskLoop
	plan.Job.DiskBytes, plan.Job.OutputFiles, plan.Job.OutputDepth = 8<<20, 100, 10
	plan.Job.OutputFileBytes, plan.Job.OutputTotalBytes = 1<<30, 1<<30
	plan.Job.Trees = []spec.JobTree{{Target: "/repo"}}
	require.NoError(t, os.Mkdir(final, 0o755))
	require.NoError(t, os.Chown(final, 1234, 1234))
	return plan, final
}

// program runs a script as the program's user, in ./final, with the tree as $REPO.
func program(t *testing.T, s *Stage, script string) error {
	t.Helper()
	for _, dir := range []string{s.Sources[spec.RoleFinal], s.trees[0].insideDir} {
		for at := dir; len(at) > len(os.TempDir()); at = filepath.Dir(at) {
			if at != dir {
				require.NoError(t, os.Chmod(at, 0o755)) // for the program's user
			}
		}
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
	cmd.Dir = s.Sources[spec.RoleFinal]
	cmd.Env = append(os.Environ(), "REPO="+s.trees[0].insideDir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 64646, Gid: 64646}}
	return cmd.Run()
}

// begun is a stage whose program may start, with its journal.
func begun(t *testing.T, store *record.Store, plan spec.Spec) *Stage {
	t.Helper()
	s, err := open(store, plan)
	require.NoError(t, err)
	_, err = s.Send(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, record.WriteJSON(filepath.Join(s.Dir, record.SpecFile), plan))
	require.NoError(t, s.Begin(t.Context()))
	require.NoError(t, record.WriteJSON(filepath.Join(s.Dir, record.JournalFile), record.Journal{
		Schema: record.JournalSchema, ID: plan.Job.RunID, Owner: owner.This().String(),
		Ref: record.Ref{ID: "0123456789ab"},
	}))
	return s
}

// leavesNothing checks that neither a mount nor an image is left.
func leavesNothing(t *testing.T, s *Stage) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	require.NotContains(t, string(mounts), s.Dir)
	require.NoFileExists(t, filepath.Join(s.Dir, record.DiskImage))
	require.NoDirExists(t, filepath.Join(s.Dir, record.DiskDir))
}

// owned checks whose a file is.
func owned(t *testing.T, path string, uid int) {
	t.Helper()
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.EqualValues(t, uid, info.Sys().(*syscall.Stat_t).Uid, path)
}

// TestLoopForARun is the life of a run whose disk limit is a file system. It takes root, as `make test`
// does.
func TestLoopForARun(t *testing.T) {
	require.True(t, treetest.IsRoot(), "loop mounts take root")
	store := recordtest.Open(t)
	t.Run("to its end", func(t *testing.T) {
		plan, final := boundRun(t, "ended")
		s := begun(t, store, plan)
		require.NoError(t, program(t, s, "echo x > x; mkfifo p; echo y > $REPO/y; ln -s /etc link"))
		require.Error(t, program(t, s, "dd if=/dev/zero of=a bs=64k count=80 && dd if=/dev/zero of=$REPO/b bs=64k count=80"))
		left := s.Collect(t.Context(), true, true, false)
		require.True(t, left.DiskFull)
		require.Len(t, left.Outputs, 2)
		require.Len(t, left.Skipped, 2)
		require.Len(t, left.Trees[0].Created, 2)
		require.NoError(t, s.Close())
		leavesNothing(t, s)
		owned(t, final, 1234)
		owned(t, filepath.Join(final, "x"), 1234)
		require.Equal(t, []string{"b", "y"}, treetest.Everything(t, record.KeptTree(s.Dir, 0)))
	})
	t.Run("to a start that failed", func(t *testing.T) {
		plan, final := boundRun(t, "failed")
		require.NoError(t, os.WriteFile(filepath.Join(final, "mine"), nil, 0o644))
		s := begun(t, store, plan)
		require.NoError(t, s.Rollback())
		require.FileExists(t, filepath.Join(final, "mine"))
		require.False(t, s.Collect(t.Context(), false, true, false).DiskFull)
		require.NoError(t, s.Close())
		leavesNothing(t, s)
		owned(t, final, 1234)
	})
	t.Run("to a request that was refused", func(t *testing.T) {
		plan, final := boundRun(t, "refused")
		s := begun(t, store, plan)
		require.NoError(t, s.Discard(t.Context()))
		require.NoDirExists(t, s.Dir)
		leavesNothing(t, s)
		owned(t, final, 1234)
	})
	t.Run("to the death of its controller", func(t *testing.T) {
		plan, final := boundRun(t, "lost")
		s := begun(t, store, plan)
		require.NoError(t, program(t, s, "echo x > x; echo y > $REPO/y"))
		require.NoError(t, s.Close())
		require.NoError(t, Reclaim(t.Context(), store, plan.Job.RunID))
		require.NoError(t, Reclaim(t.Context(), store, plan.Job.RunID))
		leavesNothing(t, s)
		owned(t, filepath.Join(final, "x"), 1234)
		require.FileExists(t, filepath.Join(record.LiveTree(s.Dir, 0), "y"))
	})
	t.Run("to the death of its controller before the start", func(t *testing.T) {
		plan, final := boundRun(t, "early")
		s, err := open(store, plan)
		require.NoError(t, err)
		require.NoError(t, record.WriteJSON(filepath.Join(s.Dir, record.JournalFile), record.Journal{
			Schema: record.JournalSchema, ID: plan.Job.RunID, Owner: owner.This().String(),
		}))
		require.NoError(t, s.Close())
		require.NoError(t, Reclaim(t.Context(), store, plan.Job.RunID))
		leavesNothing(t, s)
		owned(t, final, 1234)
	})
	t.Run("by another controller", func(t *testing.T) {
		plan, final := boundRun(t, "resumed")
		s := begun(t, store, plan)
		require.NoError(t, program(t, s, "echo x > x; echo y > $REPO/y"))
		require.NoError(t, s.Close())
		again, err := Resume(s.Options, nil, true)
		require.NoError(t, err)
		left := again.Collect(t.Context(), true, true, false)
		require.Len(t, left.Outputs, 1)
		require.Len(t, left.Trees[0].Created, 1)
		require.NoError(t, again.Close())
		leavesNothing(t, again)
		owned(t, filepath.Join(final, "x"), 1234)
	})
}

// TestLoopOfAProgramThatMayRun: nothing is copied while the program may still write, and a garbage
// collection brings back all of it.
func TestLoopOfAProgramThatMayRun(t *testing.T) {
	require.True(t, treetest.IsRoot(), "loop mounts take root")
	store := recordtest.Open(t)
	plan, final := boundRun(t, "running")
	s := begun(t, store, plan)
	require.NoError(t, program(t, s, "echo x > x; echo y > $REPO/y"))
	require.Empty(t, s.Collect(t.Context(), true, false, false).Outputs)
	require.NoError(t, s.Close())
	require.FileExists(t, filepath.Join(s.Dir, record.DiskImage))
	require.NoError(t, Reclaim(t.Context(), store, plan.Job.RunID))
	leavesNothing(t, s)
	owned(t, filepath.Join(final, "x"), 1234)
	require.FileExists(t, filepath.Join(record.LiveTree(s.Dir, 0), "y"))
}

// TestLoopWithOneTreeCollected: a controller that dies while it collects has kept the changes of the
// first tree. Those of the second one are still in the file system.
func TestLoopWithOneTreeCollected(t *testing.T) {
	require.True(t, treetest.IsRoot(), "loop mounts take root")
	store := recordtest.Open(t)
	plan, _ := boundRun(t, "half")
	plan.Job.Trees = append(plan.Job.Trees, spec.JobTree{Target: "/other"})
	s := begun(t, store, plan)
	require.NoError(t, os.WriteFile(filepath.Join(s.trees[1].insideDir, "z"), nil, 0o644))
	require.NoError(t, os.Remove(record.LiveTree(s.Dir, 0)))
	require.NoError(t, s.Close())
	require.NoError(t, Reclaim(t.Context(), store, plan.Job.RunID))
	leavesNothing(t, s)
	require.FileExists(t, filepath.Join(record.LiveTree(s.Dir, 1), "z"))
}

// TestLoopOfAControllerThatDiesBehindACopy: who goes on with the run, or cleans up, finds a
// whole copy or makes one.
func TestLoopOfAControllerThatDiesBehindACopy(t *testing.T) {
	require.True(t, treetest.IsRoot(), "loop mounts take root")
	store := recordtest.Open(t)
	half := func(id string) (*Stage, spec.Spec) {
		plan, _ := boundRun(t, id)
		s := begun(t, store, plan)
		require.NoError(t, program(t, s, "echo x > x; echo y > $REPO/y"))
		s.bringBack(t.Context(), "final", s.bound.final, s.final.root)
		s.bringBack(t.Context(), "tree", s.trees[0].inside, s.trees[0].root)
		require.NoError(t, s.Close())
		return s, plan
	}
	t.Run("adopted", func(t *testing.T) {
		s, _ := half("adopted")
		s.Warn = func(format string, args ...any) { t.Errorf(format, args...) }
		again, err := Resume(s.Options, nil, true)
		require.NoError(t, err)
		left := again.Collect(t.Context(), true, true, false)
		require.Len(t, left.Outputs, 1)
		require.Len(t, left.Trees[0].Created, 1)
		require.NoError(t, again.Close())
		leavesNothing(t, again)
	})
	t.Run("reclaimed", func(t *testing.T) {
		s, plan := half("reclaimed")
		require.NoError(t, Reclaim(t.Context(), store, plan.Job.RunID))
		leavesNothing(t, s)
		owned(t, filepath.Join(plan.Job.Final, "x"), 1234)
		require.FileExists(t, filepath.Join(record.LiveTree(s.Dir, 0), "y"))
	})
}

// TestLoopKeepsWhatCannotBeCopied: the outputs are not lost, and a warning says where they are. A
// garbage collection leaves them there.
func TestLoopKeepsWhatCannotBeCopied(t *testing.T) {
	require.True(t, treetest.IsRoot(), "loop mounts take root")
	store := recordtest.Open(t)
	plan, _ := boundRun(t, "deep")
	var warnings []string
	s := begun(t, store, plan)
	s.Warn = func(format string, args ...any) { warnings = append(warnings, strings.TrimSpace(format)) }
	require.NoError(t, program(t, s, "i=0; while [ $i -lt 600 ]; do mkdir d; cd d; i=$((i+1)); done; echo x > x"))
	s.Collect(t.Context(), true, true, false)
	require.NoError(t, s.Close())
	require.Contains(t, strings.Join(warnings, "\n"), "all of it is in the file system")
	require.NoError(t, Reclaim(t.Context(), store, plan.Job.RunID))
	require.FileExists(t, filepath.Join(s.Dir, record.DiskImage))
	require.NoDirExists(t, filepath.Join(s.Dir, record.DiskDir))
}
