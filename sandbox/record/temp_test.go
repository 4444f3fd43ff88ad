package record_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/record/recordtest"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// deadTemp makes temporary files of a process that has died: nobody has their lock.
func deadTemp(t *testing.T, s *record.Store, name string) string {
	t.Helper()
	dir := filepath.Join(s.TempDir(), name)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "answers", "closed"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "answers", "a.csv"), []byte("secret"), 0o600))
	require.NoError(t, os.Chmod(filepath.Join(dir, "answers", "closed"), 0))
	return dir
}

func TestTempBelongsToItsProcess(t *testing.T) {
	s := recordtest.Open(t)
	dir, remove, err := s.Temp("grading")
	require.NoError(t, err)
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, "drwx------", info.Mode().String())
	require.Equal(t, s.TempDir(), filepath.Dir(dir))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600))

	dead := deadTemp(t, s, "script-1")
	require.NoError(t, s.SweepTemp())
	require.FileExists(t, filepath.Join(dir, "file"), "its process lives")
	require.NoDirExists(t, dead)

	dead = deadTemp(t, s, "script-2")
	other, removeOther, err := s.Temp("script")
	require.NoError(t, err)
	require.NoDirExists(t, dead, "the next job removes it")
	require.NotEqual(t, dir, other)
	for path, own := range map[string]bool{
		dir: true, filepath.Join(other, "a", "b"): true, s.TempDir(): false, deadTemp(t, s, "script-3"): false,
		filepath.Dir(s.TempDir()): false, filepath.Join(dir, "..", "x"): false, dir + "0": false,
	} {
		require.Equal(t, own, s.IsOwnTemp(path), path)
	}
	require.NoError(t, removeOther())
	require.NoError(t, remove())
	require.False(t, s.IsOwnTemp(dir), "a directory of this name would be of another process")
	require.NoError(t, s.SweepTemp())
	left, err := os.ReadDir(s.TempDir())
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestTempStaysForARunThatReadsIt: the program of a dead controller still runs, and reads what it has mounted.
func TestTempStaysForARunThatReadsIt(t *testing.T) {
	for name, job := range map[string]func(dir string) spec.Job{
		"input": func(dir string) spec.Job { return spec.Job{Input: filepath.Join(dir, "input")} },
		"mount": func(dir string) spec.Job {
			return spec.Job{Mounts: []spec.HostMount{{Source: filepath.Join(dir, "program"), Target: "/p"}}}
		},
		"tree":  func(dir string) spec.Job { return spec.Job{Trees: []spec.JobTree{{Source: dir, Target: "/t"}}} },
		"final": func(dir string) spec.Job { return spec.Job{Final: filepath.Join(dir, "final")} },
	} {
		t.Run(name, func(t *testing.T) {
			s := recordtest.Open(t)
			dir, unused := deadTemp(t, s, "grading-1"), deadTemp(t, s, "grading-11")
			at := recordtest.Write(t, s, recordtest.Run{ID: "r1", Owner: recordtest.DeadOwner(), Created: time.Now(), Job: job(dir)})
			require.NoError(t, s.SweepTemp())
			require.DirExists(t, dir)
			require.NoDirExists(t, unused)

			text, err := result.Result{ID: "r1", Status: result.StatusEngineLost, Fault: result.FaultEnvironment}.Encode()
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(at, record.ResultFile), text, 0o600))
			require.NoError(t, s.SweepTemp())
			require.DirExists(t, dir, "its engine was lost: the program may run")
			require.NoError(t, s.Settle("r1"))
			require.NoError(t, s.SweepTemp())
			require.NoDirExists(t, dir, "nothing of the run is left")
		})
	}
}
