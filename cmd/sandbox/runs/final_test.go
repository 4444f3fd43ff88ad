package runs

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/record"
)

// TestOutputsAsTheyAreNow: a record stays when another run gets the same ./final, and when somebody
// changes what is in it.
func TestOutputsAsTheyAreNow(t *testing.T) {
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		for _, name := range []string{"a", "b", "c"} {
			if os.WriteFile(p.Final(name), []byte(p.Job.RunID), 0o600) != nil {
				return 1
			}
		}
		return 0
	})
	r, err := sandbox.New(sandbox.WithEngine(fake), sandbox.WithStateDir(filepath.Join(t.TempDir(), "state")))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	final := filepath.Join(t.TempDir(), "final")
	run := func(id, final string) record.Record {
		t.Helper()
		res, err := r.Run(t.Context(), sandbox.Request{ID: id, Image: "debian", Command: []string{"x"}, Final: final})
		require.NoError(t, err)
		require.Len(t, res.Outputs, 3)
		each, err := r.Record(id)
		require.NoError(t, err)
		return each
	}
	first := run("r1", final)
	require.Equal(t, render.Final{Dir: final, Lost: map[string]string{}}, nowIn(r.Store(), first))

	second := run("r2", final)
	require.Equal(t, render.Final{Dir: final, Replaced: "r2", Lost: map[string]string{}}, nowIn(r.Store(), first))
	require.Equal(t, render.Final{Dir: final, Lost: map[string]string{}}, nowIn(r.Store(), second))
	replaced := replacedError(r.Store(), first, "r2", ".", "there")
	require.EqualError(t, replaced, `run r1: its outputs in "`+final+`" were replaced by run r2`)
	require.Equal(t, []string{"copy the outputs of that run with: sandbox cp r2: there"}, (&cli.App{}).Hints(replaced))
	elsewhere := replacedError(r.Store(), first, "r2", "never", "there")
	require.Equal(t, []string{`that run has no "never"; see its outputs with: sandbox show r2`}, (&cli.App{}).Hints(elsewhere))

	require.NoError(t, os.Remove(filepath.Join(final, "a")))
	require.NoError(t, os.WriteFile(filepath.Join(final, "b"), []byte("longer"), 0o600))
	require.Equal(t, map[string]string{"a": "not there any more", "b": "changed since the run ended"}, nowIn(r.Store(), second).Lost)
	gone := notThere(second, final, "a", fs.ErrNotExist)
	require.EqualError(t, gone, `run r2: "a" is not in "`+final+`" any more: it was deleted or moved after the run`)
	require.Equal(t, []string{"put it back there, or run the program again"}, (&cli.App{}).Hints(gone))
	require.ErrorContains(t, notThere(second, final, "never", fs.ErrNotExist), `"never" in ./final: file does not exist`)

	require.NoError(t, os.RemoveAll(final))
	require.Len(t, nowIn(r.Store(), second).Lost, 3, "the directory itself is gone")
	require.NoError(t, r.Store().Remove("r2"))
	require.Equal(t, []string{"a run without --final keeps its outputs in its record"}, (&cli.App{}).Hints(replacedError(r.Store(), first, "r2", "a", "there")))

	own := run("r3", "")
	require.Empty(t, nowIn(r.Store(), own).Replaced)
	require.Empty(t, nowIn(r.Store(), own).Lost)
}

// TestCopyNamesWhatIsMissing: a directory that has only some of the outputs is not copied as if it had
// them all.
func TestCopyNamesWhatIsMissing(t *testing.T) {
	final, dest := t.TempDir(), t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(final, "d"), 0o755))
	c, _ := copying(t, final)
	c.sums["elsewhere/x"] = "not below d"
	info, err := fsx.LstatBelow(c.from, "d")
	require.NoError(t, err)
	require.EqualError(t, c.toDir("d", info, dest), `run r1: not all of its outputs are there any more: 1 file deleted or moved after the run, such as "d/kept"`)
}
