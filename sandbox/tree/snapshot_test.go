package tree

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evalbox/evalbox/sandbox/collect"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/result"
)

var wide = Limits{Entries: 10_000, Depth: 100, Bytes: 1 << 30}

var outputs = collect.Limits{Files: 100, Depth: 32, FileBytes: 1 << 20, TotalBytes: 1 << 20}

// copied copies a directory into a new one.
func copied(t *testing.T, from string, opts Options) (Base, string) {
	t.Helper()
	if opts.Limits == (Limits{}) {
		opts.Limits = wide
	}
	to := t.TempDir()
	base, left, err := Copy(t.Context(), treetest.Root(t, from), NewDirSink(treetest.Root(t, to), -1, -1), opts)
	require.NoError(t, err)
	require.Empty(t, left)
	return base, to
}

func TestCopyKeepsWhatItCan(t *testing.T) {
	from := t.TempDir()
	treetest.Write(t, from, map[string]string{"a": "A", "sub/run": "x", "sub/shut/f": "f", "empty/": "", "odd\n\xff": "odd"})
	require.NoError(t, os.Chmod(filepath.Join(from, "sub/run"), 0o751|fs.ModeSetuid))
	require.NoError(t, os.Chmod(filepath.Join(from, "sub/shut"), 0o500))
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(from, "link")))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(from, "sub/dangling")))
	base, to := copied(t, from, Options{})
	require.Len(t, base, 9)
	info, err := os.Stat(filepath.Join(to, "sub/run"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o751), info.Mode())
	was, err := os.Stat(filepath.Join(from, "sub/run"))
	require.NoError(t, err)
	require.True(t, info.ModTime().Equal(was.ModTime()))
	info, err = os.Stat(filepath.Join(to, "sub/shut"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o500), info.Mode().Perm())
	target, err := os.Readlink(filepath.Join(to, "link"))
	require.NoError(t, err)
	require.Equal(t, "/etc/passwd", target)
	now, err := List(t.Context(), treetest.Root(t, to), base, outputs)
	require.NoError(t, err)
	require.Equal(t, Changes{Complete: true}, Compare(base, now, 100), "nothing changed")

	var file bytes.Buffer
	require.NoError(t, base.Write(&file))
	read, err := readBase(&file)
	require.NoError(t, err)
	require.Equal(t, base, read)
	_, err = readBase(strings.NewReader("{"))
	require.Error(t, err)
}

func TestCopyLeavesOut(t *testing.T) {
	from := t.TempDir()
	treetest.Write(t, from, map[string]string{"a": "A", "big/x": "x", "secret": "s", "private/key": "k", "private/deep/key": "k", "data/f": "f"})
	require.NoError(t, os.Link(filepath.Join(from, "secret"), filepath.Join(from, "alias")))
	require.NoError(t, os.Link(filepath.Join(from, "private/deep/key"), filepath.Join(from, "big-alias")))
	to := t.TempDir()
	base, left, err := Copy(t.Context(), treetest.Root(t, from), NewDirSink(treetest.Root(t, to), -1, -1), Options{
		Exclude: Paths{"big", "data"}, Secret: Paths{"secret", "private", "missing"}, Limits: wide,
		Points: map[string]bool{"data": true, "secret": false, "new/deep/file": false},
	})
	require.NoError(t, err)
	require.Equal(t, []string{"a", "data", "new", "new/deep", "new/deep/file", "secret"}, slices.Sorted(maps.Keys(base)))
	require.Equal(t, []string{"alias", "big-alias"}, []string{left[0].Path, left[1].Path})
	require.Len(t, left, 2)
	text, err := os.ReadFile(filepath.Join(to, "secret"))
	require.NoError(t, err)
	require.Empty(t, text)

	_, _, err = Copy(t.Context(), treetest.Root(t, from), NewDirSink(treetest.Root(t, t.TempDir()), -1, -1), Options{
		Limits: wide, Points: map[string]bool{"a": true}})
	require.ErrorContains(t, err, "it is a file, where a directory is needed")
}

func TestCopyIsBounded(t *testing.T) {
	from := t.TempDir()
	treetest.Write(t, from, map[string]string{"a": "12345", "b/c/d": "12345"})
	for name, test := range map[string]struct {
		limits Limits
		want   string
	}{
		"bytes":   {Limits{Entries: 10, Depth: 10, Bytes: 9}, "holds at least 10 bytes in 4 entries; at most 9 bytes may be copied"},
		"entries": {Limits{Entries: 3, Depth: 10, Bytes: 100}, "holds more than 3 entries"},
		"depth":   {Limits{Entries: 10, Depth: 1, Bytes: 100}, "holds directories more than 1 levels deep"},
	} {
		_, _, err := Size(t.Context(), treetest.Root(t, from), nil, test.limits)
		require.ErrorContains(t, err, test.want, name)
		_, _, err = Copy(t.Context(), treetest.Root(t, from), NewDirSink(treetest.Root(t, t.TempDir()), -1, -1), Options{Limits: test.limits})
		require.ErrorContains(t, err, test.want, name)
	}
	entries, size, err := Size(t.Context(), treetest.Root(t, from), Paths{"b/c"}, Limits{Entries: 2, Depth: 0, Bytes: 5})
	require.NoError(t, err)
	require.Equal(t, 2, entries)
	require.EqualValues(t, 5, size)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	_, _, err = Copy(ctx, treetest.Root(t, from), NewDirSink(treetest.Root(t, t.TempDir()), -1, -1), Options{Limits: wide})
	require.ErrorIs(t, err, gone)
}

func file(name, text string) Entry {
	return Entry{Path: name, Kind: KindFile, Size: int64(len(text)), SHA256: text, Mode: 0o644}
}
func folder(name string) Entry { return Entry{Path: name, Kind: KindDir, Mode: 0o755} }
func link(name, target string) Entry {
	return Entry{Path: name, Kind: KindSymlink, Target: target, Mode: 0o777}
}
func ours(e Entry) Entry { e.Ours = true; return e }
func set(entries ...Entry) (b map[string]Entry) {
	b = map[string]Entry{}
	for _, e := range entries {
		b[e.Path] = e
	}
	return b
}

func names(entries []Entry) (list []string) {
	for _, e := range entries {
		list = append(list, e.Path)
	}
	return list
}

func TestCompare(t *testing.T) {
	base := set(folder("d"), file("d/a", "1"), folder("d/sub"), file("d/sub/x", "x"), file("f", "f"), link("l", "f"), ours(folder("point")))
	all := map[string]bool{".": true, "d": true, "d/sub": true, "point": true}
	same := slices.Collect(func(yield func(Entry) bool) {
		for _, e := range base {
			if !yield(e) {
				return
			}
		}
	})
	without := func(gone ...string) []Entry {
		return slices.DeleteFunc(slices.Clone(same), func(e Entry) bool {
			return slices.ContainsFunc(gone, func(g string) bool { return e.Path == g || strings.HasPrefix(e.Path, g+"/") })
		})
	}
	for name, test := range map[string]struct {
		now                       []Entry
		read                      map[string]bool
		left                      map[string]result.SkippedOutput
		created, changed, deleted []string
		skipped                   []string
	}{
		"nothing":           {now: same},
		"a new file":        {now: append(without(), file("n", "n"), folder("m")), created: []string{"m", "n"}},
		"content":           {now: append(without("f"), file("f", "g")), changed: []string{"f"}},
		"mode":              {now: append(without("f"), Entry{Path: "f", Kind: KindFile, Size: 1, SHA256: "f", Mode: 0o600}), changed: []string{"f"}},
		"mode of directory": {now: append(without("d"), Entry{Path: "d", Kind: KindDir}, file("d/a", "1"), folder("d/sub"), file("d/sub/x", "x"))},
		"file gone":         {now: without("f"), deleted: []string{"f"}},
		"folder gone":       {now: without("d"), deleted: []string{"d", "d/a", "d/sub", "d/sub/x"}},
		"all gone":          {now: nil, deleted: []string{"d", "d/a", "d/sub", "d/sub/x", "f", "l"}},
		"a file for a directory": {now: append(without("d"), file("d", "d")), created: []string{"d"},
			deleted: []string{"d", "d/a", "d/sub", "d/sub/x"}},
		"a directory for a file": {now: append(without("f"), folder("f"), file("f/x", "x")), created: []string{"f", "f/x"}, deleted: []string{"f"}},
		"a link for a directory": {now: append(without("d"), link("d", "/etc")), skipped: []string{"d"}},
		"a link for a file":      {now: append(without("f"), link("f", "/etc/passwd")), skipped: []string{"f"}},
		"a file for a link":      {now: append(without("l"), file("l", "x")), created: []string{"l"}, deleted: []string{"l"}},
		"another link":           {now: append(without("l"), link("l", "/etc")), skipped: []string{"l"}},
		"an unreadable directory": {now: without("d"), left: map[string]result.SkippedOutput{"d": {Kind: KindDir, Reason: "cannot be read"}},
			skipped: []string{"d"}},
		"an unreadable file":              {now: without("f"), left: map[string]result.SkippedOutput{"f": {Kind: KindFile, Reason: "too large"}}, skipped: []string{"f"}},
		"a directory not read to its end": {now: without("d/a", "d/sub/x"), read: map[string]bool{".": true, "d/sub": true}, deleted: []string{"d/sub/x"}},
		"a point that was moved":          {now: append(without("point"), folder("moved")), created: []string{"moved"}},
		"a point of another kind":         {now: append(without("point"), file("point", "x"))},
	} {
		t.Run(name, func(t *testing.T) {
			read := test.read
			if read == nil {
				read = all
			}
			got := Compare(base, Now{Entries: set(test.now...), Read: read, Left: test.left}, 100)
			require.True(t, got.Complete)
			require.Equal(t, test.created, names(got.Created))
			require.Equal(t, test.changed, names(got.Changed))
			require.Equal(t, test.deleted, names(got.Deleted))
			var skipped []string
			for _, s := range got.Skipped {
				skipped = append(skipped, s.Path)
			}
			require.Equal(t, test.skipped, skipped)
		})
	}
	few := Compare(base, Now{Entries: set(), Read: all}, 3)
	require.False(t, few.Complete)
	require.Len(t, few.Deleted, 3)
	require.Len(t, few.Skipped, 3)
}

// changedTree is a directory, a copy of it that was changed, and how to apply that.
func changedTree(t *testing.T, files map[string]string, change func(copy string)) (host string, a *application, changes Changes) {
	t.Helper()
	host = t.TempDir()
	treetest.Write(t, host, files)
	record := t.TempDir()
	treetest.Write(t, record, map[string]string{"live/": "", "kept/": ""})
	live := filepath.Join(record, "live")
	base, _, err := Copy(t.Context(), treetest.Root(t, host), NewDirSink(treetest.Root(t, live), -1, -1), Options{Limits: wide})
	require.NoError(t, err)
	change(live)
	now, err := List(t.Context(), treetest.Root(t, live), base, outputs)
	require.NoError(t, err)
	changes = Compare(base, now, 1000)
	require.NoError(t, Keep(treetest.Root(t, record), "live", "kept", changes))
	return host, &application{to: treetest.Root(t, host), from: treetest.Root(t, filepath.Join(record, "kept")), base: base, temp: ".temp-"}, changes
}

func apply(t *testing.T, a *application, c Changes) map[string]string {
	t.Helper()
	verdicts, err := a.apply(t.Context(), c.Created, c.Changed, c.Deleted)
	require.NoError(t, err)
	states := map[string]string{}
	for _, v := range verdicts {
		states[v.Path] += v.State
	}
	return states
}

func TestApplyKindsThatTakeEachOthersPlace(t *testing.T) {
	host, a, changes := changedTree(t, map[string]string{"file": "f", "dir/x": "x", "dir/deep/y": "y"}, func(copy string) {
		require.NoError(t, errors.Join(os.Remove(filepath.Join(copy, "file")), os.RemoveAll(filepath.Join(copy, "dir"))))
		treetest.Write(t, copy, map[string]string{"file/inner/z": "z", "dir": "now a file"})
	})
	for range 2 {
		for name, state := range apply(t, a, changes) {
			require.NotContains(t, state, Skipped, name)
		}
		text, err := os.ReadFile(filepath.Join(host, "file/inner/z"))
		require.NoError(t, err)
		require.Equal(t, "z", string(text))
		text, err = os.ReadFile(filepath.Join(host, "dir"))
		require.NoError(t, err)
		require.Equal(t, "now a file", string(text))
	}
}

func TestApplyOverwritesNothingOfTheHosts(t *testing.T) {
	files := map[string]string{"changed": "1", "deleted": "1", "gone": "1", "dir/x": "x", "denied/f": "1", "moved/f": "1", "touched": "1"}
	host, a, changes := changedTree(t, files, func(copy string) {
		treetest.Write(t, copy, map[string]string{"changed": "22", "gone": "22", "new": "new", "denied/f": "22", "denied/g": "g", "moved/f": "22", "moved/n/g": "g",
			"twin": "same", "touched": "22"})
		require.NoError(t, errors.Join(os.Remove(filepath.Join(copy, "deleted")), os.RemoveAll(filepath.Join(copy, "dir"))))
	})
	outside := t.TempDir()
	treetest.Write(t, outside, map[string]string{"f": "1"})
	// Meanwhile:
	treetest.Write(t, host, map[string]string{"changed": "mine", "deleted": "mine", "new": "mine", "dir/more": "mine", "twin": "same"})
	require.NoError(t, os.Remove(filepath.Join(host, "gone")))
	require.NoError(t, os.RemoveAll(filepath.Join(host, "moved")))
	require.NoError(t, os.Symlink(outside, filepath.Join(host, "moved")))
	require.NoError(t, os.Link(filepath.Join(host, "touched"), filepath.Join(outside, "other-name")))
	a.deny = Paths{"denied"}
	require.Equal(t, map[string]string{
		"changed": Conflict, "deleted": Conflict, "gone": Conflict, "new": Conflict, "dir/x": Applied, "dir": Conflict,
		"denied/f": Skipped, "denied/g": Skipped, "moved/f": Conflict, "moved/n": Conflict, "moved/n/g": Conflict, "twin": Applied, "touched": Applied,
	}, apply(t, a, changes))
	for name, want := range map[string]string{"changed": "mine", "deleted": "mine", "new": "mine", "dir/more": "mine", "denied/f": "1", "touched": "22"} {
		text, err := os.ReadFile(filepath.Join(host, name))
		require.NoError(t, err)
		require.Equal(t, want, string(text), name)
	}
	text, err := os.ReadFile(filepath.Join(outside, "other-name"))
	require.NoError(t, err)
	require.Equal(t, "1", string(text), "nothing is written through another name")
	entries, err := os.ReadDir(outside)
	require.NoError(t, err)
	require.Len(t, entries, 2)
}

// TestApplyWhatIsInTheWay: an application that was killed left its file, and a link has
// the name of the next one.
func TestApplyWhatIsInTheWay(t *testing.T) {
	host, a, changes := changedTree(t, map[string]string{"f": "1"}, func(copy string) { treetest.Write(t, copy, map[string]string{"f": "22", "n": "n"}) })
	outside := filepath.Join(t.TempDir(), "canary")
	require.NoError(t, os.WriteFile(outside, []byte("canary"), 0o644))
	treetest.Write(t, host, map[string]string{".temp-" + shortHash("f"): "half"})
	require.NoError(t, os.Symlink(outside, filepath.Join(host, ".temp-"+shortHash("n"))))
	require.Equal(t, map[string]string{"f": Applied, "n": Applied}, apply(t, a, changes))
	text, err := os.ReadFile(outside)
	require.NoError(t, err)
	require.Equal(t, "canary", string(text))
	left, err := os.ReadDir(host)
	require.NoError(t, err)
	require.Len(t, left, 2)
}

func TestApplyTrustsTheHashesAlone(t *testing.T) {
	_, a, changes := changedTree(t, map[string]string{"f": "1"}, func(copy string) { treetest.Write(t, copy, map[string]string{"f": "22"}) })
	file, err := a.from.OpenFile("f", os.O_WRONLY|os.O_TRUNC, 0)
	require.NoError(t, err)
	_, err = file.WriteString("33")
	require.NoError(t, errors.Join(err, file.Close()))
	require.Equal(t, map[string]string{"f": Skipped}, apply(t, a, changes))

	for _, name := range []string{"../up", "/abs", "a/../../b", ".", ""} {
		verdicts, err := a.apply(t.Context(), []Entry{{Path: name, Kind: KindFile}}, nil, nil)
		require.NoError(t, err)
		require.Equal(t, Skipped, verdicts[0].State, name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	verdicts, err := a.apply(ctx, changes.Created, changes.Changed, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, verdicts)
}

// TestApplyWhileFoldersBecomeLinks: somebody swaps a directory for a link all the time;
// nothing gets outside.
func TestApplyWhileFoldersBecomeLinks(t *testing.T) {
	outside := t.TempDir()
	files := map[string]string{}
	for i := range 40 {
		files["d/sub/"+string(rune('a'+i%26))+strings.Repeat("x", i/26)] = "1"
	}
	host, a, changes := changedTree(t, files, func(copy string) {
		for name := range files {
			treetest.Write(t, copy, map[string]string{name: "22", name + "-new": "n"})
		}
	})
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		real, aside := filepath.Join(host, "d/sub"), filepath.Join(host, "d/aside")
		for {
			select {
			case <-stop:
				return
			default:
				_ = os.Rename(real, aside)
				_ = os.Symlink(outside, real)
				_ = os.Remove(real)
				_ = os.Rename(aside, real)
			}
		}
	}()
	for range 20 {
		apply(t, a, changes)
	}
	close(stop)
	<-stopped
	entries, err := os.ReadDir(outside)
	require.NoError(t, err)
	require.Empty(t, entries)
}
