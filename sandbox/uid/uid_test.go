package uid

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseRange(t *testing.T) {
	for text, want := range map[string]Range{"70000-99999": Default, "5-5": {5, 5}, "1-2147483646": {1, maxID}} {
		r, err := ParseRange(text)
		require.NoError(t, err, text)
		require.Equal(t, want, r)
		require.Equal(t, text, r.String())
	}
	for _, text := range []string{"", "-", "5", "5-", "-5", "0-5", "6-5", "1-2147483647", "a-b", "1-2-3", "subuid:nobody-has-this-name", " 1-2"} {
		_, err := ParseRange(text)
		require.Error(t, err, text)
	}
	require.False(t, Range{}.Any())
	require.False(t, Range{}.Contains(0))
	require.False(t, Default.Contains(69999))
	require.True(t, Default.Contains(70000))
	require.True(t, Default.Contains(99999))
	require.False(t, Default.Contains(100000))
}

func TestSubordinateRangeIsInBothFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("subuid", "other:100000:65536\nbox:200000:10\nbox:300000:100\nbroken:x:y\nempty:5:0\n")
	write("subgid", "box:300000:100\nbroken:x:y\nempty:5:0\n")
	r, err := subordinate(dir, "box")
	require.NoError(t, err)
	require.Equal(t, Range{300000, 300099}, r)
	for _, name := range []string{"other", "broken", "empty", "none", ""} {
		_, err := subordinate(dir, name)
		require.ErrorContains(t, err, "no equal line", name)
	}
	_, err = subordinate(filepath.Join(dir, "none"), "box")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// three is a range for tests whose IDs are no accounts.
var three = Range{1_900_000_000, 1_900_000_002}

func holder(run string) Holder {
	return Holder{RunID: run, Engine: "e", Until: time.Unix(100, 0).UTC()}
}

// unasked is for leases that need no question.
func unasked(context.Context) (MayRun, error) { return nil, errors.New("asked") }

func lease(t *testing.T, d Dir, run string) *Lease {
	t.Helper()
	l, err := d.Lease(t.Context(), three, holder(run), unasked)
	require.NoError(t, err, run)
	return l
}

func TestEveryRunHasAnIDOfItsOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "uids")
	d := Open(path)
	a, b, c := lease(t, d, "a"), lease(t, Open(path), "b"), lease(t, d, "c")
	require.Equal(t, []int{three.First, three.First + 1, three.Last}, []int{a.ID(), b.ID(), c.ID()})

	_, err := d.Lease(t.Context(), three, holder("d"), unasked)
	require.ErrorIs(t, err, ErrExhausted)
	require.ErrorContains(t, err, "all 3 of 1900000000-1900000002 are taken")

	require.NoError(t, b.Release())
	b = lease(t, d, "e")
	require.Equal(t, three.First+1, b.ID(), "the lowest free one")
	for _, l := range []*Lease{a, b, c} {
		require.NoError(t, l.Release())
	}
	require.Equal(t, three.First, lease(t, d, "f").ID())

	entries, err := os.ReadDir(path)
	require.NoError(t, err)
	require.Len(t, entries, 3, "the number of files is bounded")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
}

func TestIDOfAContainerThatMayRunIsNotLent(t *testing.T) {
	d := Open(t.TempDir())
	a, b, c := lease(t, d, "a"), lease(t, d, "b"), lease(t, d, "c")
	require.NoError(t, a.Leave())
	require.NoError(t, b.Leave())

	asked := 0
	only := func(runs ...string) func(context.Context) (MayRun, error) {
		return func(context.Context) (MayRun, error) {
			asked++
			return func(h Holder) bool {
				require.Equal(t, holder(h.RunID), h)
				return strings.Contains(strings.Join(runs, " "), h.RunID)
			}, nil
		}
	}
	_, err := d.Lease(t.Context(), three, holder("d"), only("a", "b"))
	require.ErrorIs(t, err, ErrExhausted)
	got, err := d.Lease(t.Context(), three, holder("d"), only("a"))
	require.NoError(t, err)
	require.Equal(t, b.ID(), got.ID())
	require.Equal(t, 2, asked, "once for each lease")

	boom := errors.New("boom")
	_, err = d.Lease(t.Context(), three, holder("e"), func(context.Context) (MayRun, error) { return nil, boom })
	require.ErrorIs(t, err, boom)
	require.NoError(t, c.Release())
	require.Equal(t, c.ID(), lease(t, d, "e").ID(), "a free one needs no question")
}

func TestSweepFreesWhatCannotRun(t *testing.T) {
	dir := t.TempDir()
	d := Open(dir)
	a, b, c := lease(t, d, "a"), lease(t, d, "b"), lease(t, d, "c")
	require.NoError(t, a.Leave())
	require.NoError(t, b.Leave())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "README"), nil, 0o600))
	require.NoError(t, d.Sweep(t.Context(), func(context.Context) (MayRun, error) {
		return func(h Holder) bool { return h.RunID == "a" }, nil
	}))
	require.Equal(t, b.ID(), lease(t, d, "d").ID())
	_, err := d.Adopt(a.ID(), "a")
	require.NoError(t, err, "is still held")
	_, err = d.Adopt(c.ID(), "c")
	require.ErrorIs(t, err, ErrNotHeld, "its controller lives")
	require.NoError(t, Open(filepath.Join(dir, "none")).Sweep(t.Context(), func(context.Context) (MayRun, error) { return nil, nil }))
	boom := errors.New("boom")
	err = d.Sweep(t.Context(), func(context.Context) (MayRun, error) { return nil, boom })
	require.ErrorIs(t, err, boom)
}

func TestAdoptTakesALeaseOver(t *testing.T) {
	d := Open(t.TempDir())
	a := lease(t, d, "a")
	_, err := d.Adopt(a.ID(), "a")
	require.ErrorIs(t, err, ErrNotHeld, "its controller lives")
	require.NoError(t, a.Leave())
	_, err = d.Adopt(a.ID(), "b")
	require.ErrorIs(t, err, ErrNotHeld)
	_, err = d.Adopt(three.Last, "a")
	require.ErrorIs(t, err, ErrNotHeld)

	adopted, err := d.Adopt(a.ID(), "a")
	require.NoError(t, err)
	require.Equal(t, a.ID(), adopted.ID())
	require.Equal(t, three.First+1, lease(t, d, "b").ID())
	require.NoError(t, adopted.Release())
	require.Equal(t, a.ID(), lease(t, d, "c").ID())
}

func TestNoteThatWasCutOffHoldsNothing(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(three.First)), []byte(`{"run_id":"a","eng`), 0o600))
	require.Equal(t, three.First, lease(t, Open(dir), "b").ID())
}

func TestAccountsOfTheMachineAreNotLent(t *testing.T) {
	me := os.Getuid()
	if me == 0 {
		me = 1 // daemon, on every Linux and macOS
	}
	require.True(t, isAccount(me))
	_, err := Open(t.TempDir()).Lease(t.Context(), Range{me, me}, holder("a"), unasked)
	require.ErrorIs(t, err, ErrExhausted)
}

func TestDirectoryOfOthersIsRefused(t *testing.T) {
	open := t.TempDir()
	require.NoError(t, os.Chmod(open, 0o777))
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(t.TempDir(), link))
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for path, want := range map[string]string{open: "only this user may change", link: "only this user may change", file: "cannot be made"} {
		_, err := Open(path).Lease(t.Context(), three, holder("a"), unasked)
		require.ErrorContains(t, err, want)
	}
}

func TestEndedContextLeasesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Open(t.TempDir()).Lease(ctx, three, holder("a"), unasked)
	require.ErrorIs(t, err, context.Canceled)
}

// TestLeaseOutlivesItsController kills a process that holds a lease.
func TestLeaseOutlivesItsController(t *testing.T) {
	const variable = "EVALBOX_TEST_UID_DIR"
	if dir := os.Getenv(variable); dir != "" {
		l := lease(t, Open(dir), "child")
		_, err := os.Stdout.WriteString("leased\n")
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, os.Stdin) // until it is killed
		require.NoError(t, err)
		require.NoError(t, l.Leave())
		return
	}
	dir := t.TempDir()
	child := exec.Command(os.Args[0], "-test.run=^TestLeaseOutlivesItsController$")
	child.Env = append(os.Environ(), variable+"="+dir)
	stdin, err := child.StdinPipe()
	require.NoError(t, err)
	defer stdin.Close()
	stdout, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line := make([]byte, len("leased\n"))
	_, err = io.ReadFull(stdout, line)
	require.NoError(t, err)
	require.Equal(t, "leased\n", string(line))

	d := Open(dir)
	require.Equal(t, three.First+1, lease(t, d, "b").ID())
	_, err = d.Adopt(three.First, "child")
	require.ErrorIs(t, err, ErrNotHeld)
	require.NoError(t, child.Process.Kill())
	require.Error(t, child.Wait())

	require.Equal(t, three.Last, lease(t, d, "c").ID(), "its container may still run")
	adopted, err := d.Adopt(three.First, "child")
	require.NoError(t, err)
	require.NoError(t, adopted.Release())
	require.Equal(t, three.First, lease(t, d, "d").ID())
}
