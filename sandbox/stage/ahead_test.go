//go:build linux

package stage

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/record/recordtest"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// openAhead opens the stage of a run whose container has waited. mounted is what it has mounted as
// ./final.
func openAhead(t *testing.T, store *record.Store, plan spec.Spec) (s *Stage, mounted *os.Root) {
	t.Helper()
	o := Options{Store: store, Plan: plan, Log: slog.New(slog.DiscardHandler), Warn: func(string, ...any) {}}
	o.Plan.Job = spec.Job{RunID: plan.Job.RunID, Script: plan.Job.Script}
	ahead, err := OpenAhead(o)
	require.NoError(t, err)
	mounted, err = os.OpenRoot(ahead.Sources[spec.RoleFinal])
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mounted.Close()) })
	o.Plan, o.Waited = plan, true
	s, err = Open(o)
	require.NoError(t, err)
	return s, mounted
}

// TestTheProgramOfAWaitingContainer is written into the file that the container has mounted.
func TestTheProgramOfAWaitingContainer(t *testing.T) {
	store := recordtest.Open(t)
	script := filepath.Join(t.TempDir(), "main.py")
	require.NoError(t, os.WriteFile(script, []byte("print(1)\n"), 0o600))
	plan := workSpec("r1")
	plan.Job.Script = script
	o := Options{Store: store, Plan: plan, Log: slog.New(slog.DiscardHandler), Warn: func(string, ...any) {}}
	previous := unix.Umask(0o077)
	defer unix.Umask(previous)
	ahead, err := OpenAhead(o)
	require.NoError(t, err)
	require.NoFileExists(t, filepath.Join(ahead.Dir, record.JournalFile))
	mounted, err := os.Open(ahead.Sources[spec.RoleProgram])
	require.NoError(t, err)
	defer mounted.Close()
	o.Waited = true
	s, err := Open(o)
	require.NoError(t, err)
	text := make([]byte, 100)
	n, err := mounted.Read(text)
	require.NoError(t, err)
	require.Equal(t, "print(1)\n", string(text[:n]))
	info, err := mounted.Stat()
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o444), info.Mode())
	for _, dir := range []string{filepath.Join(s.Dir, record.ProgramDir), filepath.Join(s.Dir, record.OwnFinal), filepath.Join(s.Dir, record.EmptyInput)} {
		info, err := os.Lstat(dir)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o755)|os.ModeDir, info.Mode(), dir)
	}
	require.NoError(t, s.Discard(t.Context()))
}

// TestFailuresAheadLeaveNothing of a container that was to wait.
func TestFailuresAheadLeaveNothing(t *testing.T) {
	store := recordtest.Open(t)
	plan := workSpec("r1")
	plan.Job.Input = filepath.Join(t.TempDir(), "missing")
	_, err := OpenAhead(Options{Store: store, Plan: plan, Log: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, "missing")
	require.Empty(t, treetest.Everything(t, store.PoolDir()))
}
