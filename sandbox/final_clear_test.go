//go:build linux

package sandbox

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
)

// TestClearFinal empties a ./final as the next run would, and loses nothing.
func TestClearFinal(t *testing.T) {
	final := filepath.Join(t.TempDir(), "final")
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		_ = os.WriteFile(p.Final("out.csv"), []byte("1\n"), 0o644)
		return 0
	})
	r := newFakeRunner(t, fake)
	clear := func(keep string) string {
		t.Helper()
		warning, err := r.ClearFinal(t.Context(), final, keep)
		require.NoError(t, err)
		return warning
	}
	require.Empty(t, clear(""), "one that does not exist is empty")
	require.Empty(t, r.LeftBy(t.Context(), final))
	require.NoDirExists(t, final)

	_, err := r.Run(t.Context(), finalRequest("r1", final))
	require.NoError(t, err)
	require.Equal(t, "r1", r.LeftBy(t.Context(), final))
	require.Empty(t, clear("r1"))
	require.FileExists(t, filepath.Join(final, "out.csv"), "it is what that run left")
	require.Empty(t, clear("r0"))
	require.Empty(t, treetest.Everything(t, final))
	require.Empty(t, clear(""), "once more")

	require.NoError(t, os.WriteFile(filepath.Join(final, "thesis.tex"), []byte("years"), 0o644))
	require.Empty(t, r.LeftBy(t.Context(), final))
	aside := clear("r1")
	require.Contains(t, aside, "they are now in "+final+".before-")
	kept, err := filepath.Glob(final + ".before-*/thesis.tex")
	require.NoError(t, err)
	require.Len(t, kept, 1)

	lock, err := os.Open(final)
	require.NoError(t, err)
	require.NoError(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	_, err = r.ClearFinal(t.Context(), final, "")
	require.ErrorIs(t, err, ErrBusy)
	require.NoError(t, lock.Close())

	record, err := r.Record("r1")
	require.NoError(t, err)
	require.Empty(t, record.ProgramPath(), "a command is no script")
}
