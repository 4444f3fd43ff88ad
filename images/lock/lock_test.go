package lock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/imagestest"
	"github.com/evalbox/evalbox/images/packages"
	"github.com/evalbox/evalbox/images/store"
	"github.com/evalbox/evalbox/internal/treetest"
)

var idOf, hexOf = imagestest.IDOf, imagestest.HexOf

// testEntry is an entry whose every field is set.
func testEntry(name string) Entry {
	return Entry{
		Name: name, Reference: "evalbox/" + name + ":0123456789ab", ID: idOf("id " + name), Content: idOf("content " + name),
		Platform: "linux/amd64", System: "debian 12", Base: "debian bookworm, 2 packages", BaseDigest: noDigest,
		Created: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Builder: Builder{Evalbox: 1, Engine: "20.10.24"},
		Packages: packages.List{
			{Kind: packages.Conda, Name: "python", Version: "3.11.13"}, {Kind: packages.Deb, Name: "libc6", Version: "2.36-9+deb12u10", Arch: "amd64"}, {Kind: packages.Python, Name: "numpy", Version: "1.24.2"},
		},
	}
}

func TestEncode(t *testing.T) {
	bare := Entry{Name: "bare", Reference: "bare:1", ID: idOf("b"), Content: idOf("c"), Platform: "linux/arm64", Base: "image bare:1", BaseDigest: noDigest}
	l := Lock{}.With(testEntry("debian"), bare)
	text, err := l.Encode()
	require.NoError(t, err)
	treetest.Golden(t, "testdata/images.lock", string(text))
	again, err := Lock{}.With(bare).With(testEntry("debian")).Encode()
	require.NoError(t, err)
	assert.Equal(t, string(text), string(again), "the same lock gives the same bytes")

	back, err := Parse(text, "images.lock")
	require.NoError(t, err)
	assert.Equal(t, []string{"bare", "debian"}, back.Names())
	for _, want := range []Entry{testEntry("debian"), bare} {
		got, ok := back.Lookup(want.Name)
		require.True(t, ok)
		assert.Equal(t, want, got)
	}
	_, ok := back.Lookup("absent")
	assert.False(t, ok)

	empty, err := Lock{}.Encode()
	require.NoError(t, err)
	none, err := Parse(empty, "x")
	require.NoError(t, err)
	assert.Empty(t, none.Names())
}

// Each invalid file says in its first lines what the error must hold.
func TestParseInvalid(t *testing.T) {
	paths, err := filepath.Glob("testdata/invalid/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			data := []byte(treetest.Read(t, path))
			var wanted []string
			for line := range strings.Lines(string(data)) {
				if want, ok := strings.CutPrefix(line, "# want: "); ok {
					wanted = append(wanted, strings.TrimSuffix(want, "\n"))
				}
			}
			require.NotEmpty(t, wanted, "the file does not say what it wants")
			_, err := Parse(data, path)
			require.Error(t, err)
			for _, want := range wanted {
				assert.ErrorContains(t, err, want)
			}
			for line := range strings.Lines(err.Error()) {
				assert.True(t, strings.HasPrefix(line, path+":"), "does not name the file: %s", line)
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	dir := t.TempDir()
	_, err := Read(filepath.Join(dir, "absent"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "absent: no such file")
	_, err = Read(dir)
	require.ErrorContains(t, err, "is not a regular file")
	big := filepath.Join(dir, "big")
	require.NoError(t, os.WriteFile(big, nil, 0o600))
	require.NoError(t, os.Truncate(big, MaxBytes+1))
	_, err = Read(big)
	require.ErrorContains(t, err, "is larger than")
	require.NotEmpty(t, imagestest.HintOf(t, err))
}

func TestCheck(t *testing.T) {
	debian, other := testEntry("debian"), testEntry("other")
	l := Lock{Source: "images.lock"}.With(debian, other)
	is := func(e Entry) images.Resolved {
		return images.Resolved{Name: e.Name, CatalogName: true, ID: e.ID, Content: e.Content, Platform: e.Platform}
	}
	with := func(r images.Resolved, change func(*images.Resolved)) images.Resolved {
		change(&r)
		return r
	}
	for name, c := range map[string]struct {
		lock  Lock
		image images.Resolved
		want  string
	}{
		"the same":               {l, is(debian), ""},
		"the same ID only":       {l, with(is(debian), func(r *images.Resolved) { r.Content = idOf("x") }), ""},
		"the same content only":  {l, with(is(debian), func(r *images.Resolved) { r.ID = idOf("x") }), ""},
		"a variant of all":       {l, with(is(debian), func(r *images.Resolved) { r.Content, r.Platform = "", "linux/amd64/v8" }), ""},
		"another platform":       {l, with(is(debian), func(r *images.Resolved) { r.Content, r.Platform = "", "linux/arm64" }), "is not the locked one"},
		"another image":          {l, with(is(debian), func(r *images.Resolved) { r.ID, r.Content = idOf("x"), idOf("y") }), "the engine has " + idOf("x") + ", the lock images.lock holds " + debian.ID},
		"that of another name":   {l, with(is(other), func(r *images.Resolved) { r.Name = "debian" }), "is not the locked one"},
		"no entry":               {l, with(is(debian), func(r *images.Resolved) { r.Name = "new" }), "has no entry of this name"},
		"by ID":                  {l, with(is(debian), func(r *images.Resolved) { r.Name, r.CatalogName = r.ID, false }), ""},
		"by reference":           {l, with(is(other), func(r *images.Resolved) { r.Name, r.CatalogName = "some:tag", false }), ""},
		"an unknown reference":   {l, images.Resolved{Name: "some:tag", ID: idOf("x")}, `image "some:tag" (` + idOf("x") + `) is not locked`},
		"a reference that moved": {l.With(Entry{Name: "some:tag", ID: idOf("was")}), images.Resolved{Name: "some:tag", ID: idOf("x")}, "holds " + idOf("was")},
		"a reference that moved to another locked image": {l.With(Entry{Name: "some:tag", ID: idOf("was")}),
			with(is(other), func(r *images.Resolved) { r.Name, r.CatalogName = "some:tag", false }), "holds " + idOf("was")},
		"nothing known": {l.With(Entry{Name: "debian"}), images.Resolved{Name: "debian", CatalogName: true}, "no entry of this name"},
		"an empty lock": {Lock{Source: "images.lock"}, is(debian), "is not locked"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.lock.Check(c.image)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrUnlocked)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "images.lock")
			var refused *UnlockedError
			require.ErrorAs(t, err, &refused)
			require.Contains(t, refused.Hint(), "sandbox image lock "+c.image.Name)
			require.Contains(t, refused.Hint(), "--allow-unlocked")
		})
	}
}

// Many processes may lock at once; no entry is lost, and a reader never sees half
// a file.
func TestUpdateConcurrently(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	path := filepath.Join(t.TempDir(), "images.lock")
	var all sync.WaitGroup
	for _, name := range strings.Fields("a b c d e f g h") {
		all.Go(func() {
			assert.NoError(t, Update(t.Context(), path, func(l Lock) (Lock, error) { return l.With(testEntry(name)), nil }))
			_, err := Read(path)
			assert.NoError(t, err)
		})
	}
	all.Wait()
	l, err := Read(path)
	require.NoError(t, err)
	assert.Equal(t, strings.Fields("a b c d e f g h"), l.Names())
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, left, 1, "nothing but the lock stays in its directory")
}

func TestUpdate(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir := t.TempDir()
	path := filepath.Join(dir, "images.lock")
	keep := func(l Lock) (Lock, error) { return l, nil }
	add := func(l Lock) (Lock, error) { return l.With(testEntry("debian")), nil }
	require.NoError(t, Update(t.Context(), path, keep))
	assert.NoFileExists(t, path, "nothing to write")

	// A link stays a link to the file that is meant.
	link := filepath.Join(dir, "link")
	require.NoError(t, Update(t.Context(), path, add))
	require.NoError(t, os.Symlink(path, link))
	require.NoError(t, Update(t.Context(), link, func(l Lock) (Lock, error) { return l.With(testEntry("other")), nil }))
	info, err := os.Lstat(link)
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&fs.ModeSymlink)
	l, err := Read(path)
	require.NoError(t, err)
	assert.Equal(t, []string{"debian", "other"}, l.Names())

	// What is as it was is not written: its time stays.
	was := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	require.NoError(t, os.Chtimes(path, was, was))
	require.NoError(t, Update(t.Context(), path, add))
	info, err = os.Stat(path)
	require.NoError(t, err)
	assert.True(t, info.ModTime().Equal(was))

	wrong := errors.New("no")
	require.ErrorIs(t, Update(t.Context(), path, func(Lock) (Lock, error) { return Lock{}, wrong }), wrong)
	require.NoError(t, os.WriteFile(path, []byte("nonsense"), 0o600))
	require.ErrorContains(t, Update(t.Context(), path, add), path)
	assert.Equal(t, "nonsense", treetest.Read(t, path))
	require.Error(t, Update(t.Context(), dir, add))
	require.Error(t, Update(t.Context(), filepath.Join(path, "below"), add))
	require.ErrorIs(t, Update(t.Context(), filepath.Join(dir, "typo", "images.lock"), add), fs.ErrNotExist)
	assert.NoDirExists(t, filepath.Join(dir, "typo"))
}

func TestPin(t *testing.T) {
	h, cat, small := imagestest.Small(t, "b 2", "a 1")
	eng := store.Docker{APIClient: h}
	e, err := Pin(t.Context(), eng, cat, "small")
	require.NoError(t, err)
	assert.Equal(t, "deb a 1 all\ndeb b 2 all\n", e.Packages.Text())
	assert.Equal(t, small.Tag(), e.Reference)
	assert.Equal(t, idOf("small"), e.ID)
	assert.Equal(t, "debian 12", e.System)
	assert.Equal(t, small.Base.String(), e.Base)
	assert.Equal(t, "none", e.BaseDigest)
	assert.Equal(t, Builder{Evalbox: images.BuilderVersion, Engine: "20.10.24"}, e.Builder)
	assert.Equal(t, "2026-01-01T00:00:00.5Z", e.Created.Format(time.RFC3339Nano))

	big, _ := cat.Lookup("big-one")
	h.Put(big.Tag(), idOf("big"), imagestest.ImageOf(t))
	e, err = Pin(t.Context(), eng, cat, "big-one")
	require.NoError(t, err)
	assert.Equal(t, big.Base.Reference, e.Base)
	assert.Contains(t, big.Base.Reference, e.BaseDigest)
	assert.Contains(t, e.BaseDigest, "sha256:")

	h.Put("other:1", idOf("other"), imagestest.ImageOf(t))
	e, err = Pin(t.Context(), eng, cat, "other:1")
	require.NoError(t, err)
	assert.Equal(t, "image other:1", e.Base)
	assert.Zero(t, e.Builder.Evalbox)
	assert.Empty(t, e.Packages)
	text, err := Lock{}.With(e).Encode()
	require.NoError(t, err)
	_, err = Parse(text, "x")
	require.NoError(t, err, "what is pinned can be read back")
}

func TestPinFails(t *testing.T) {
	h, cat, _ := imagestest.Small(t)
	eng := store.Docker{APIClient: h}
	h.Fail["export"] = errors.New("no export")
	_, err := Pin(t.Context(), eng, cat, "small")
	require.ErrorContains(t, err, "image small: listing its packages: no export")
}

func TestSettle(t *testing.T) {
	h, cat, small := imagestest.Small(t, "a 1")
	eng := store.Docker{APIClient: h}
	path := filepath.Join(t.TempDir(), "images.lock")
	settle := func() (Change, error) { return Settle(t.Context(), eng, cat, path, "small") }

	change, err := settle()
	require.NoError(t, err)
	assert.True(t, change.Changed)
	assert.Nil(t, change.Before)
	first := treetest.Read(t, path)

	h.Calls = nil
	change, err = settle()
	require.NoError(t, err)
	assert.False(t, change.Changed)
	assert.Equal(t, []string{"inspect"}, h.Calls, "an image that is locked is not read again")

	// Another image of the same recipe is refused, and nothing is changed.
	h.Put(small.Tag(), idOf("again"), imagestest.ImageOf(t, "a 2", "b 1"))
	_, err = settle()
	var differs *UnlockedError
	require.ErrorAs(t, err, &differs)
	require.ErrorIs(t, err, ErrUnlocked)
	assert.ErrorContains(t, err, idOf("small"))
	assert.ErrorContains(t, err, idOf("again"))
	assert.Equal(t, []string{"+ deb b 1 all", "~ deb a 1 all -> 2"}, differs.Diff.Lines())
	assert.Contains(t, differs.Hint(), "sandbox image lock small")
	assert.Equal(t, first, treetest.Read(t, path))

	// Unless it is accepted.
	change, err = Put(t.Context(), eng, cat, path, "small")
	require.NoError(t, err)
	assert.Equal(t, idOf("small"), change.Before.ID)
	assert.Equal(t, *differs.Diff, change.Diff())
	_, err = settle()
	require.NoError(t, err)

	// Another recipe is another image on purpose.
	require.NoError(t, Update(t.Context(), path, func(l Lock) (Lock, error) {
		e, _ := l.Lookup("small")
		e.Reference, e.ID, e.Content = "evalbox/small:ffffffffffff", idOf("old"), idOf("old")
		return l.With(e), nil
	}))
	change, err = settle()
	require.NoError(t, err)
	assert.True(t, change.Changed)
	assert.Equal(t, idOf("old"), change.Before.ID)
	assert.Equal(t, small.Tag(), change.After.Reference)

	_, err = Settle(t.Context(), eng, cat, path, "big-one")
	require.ErrorIs(t, err, images.ErrNotFound)
}

func TestVerify(t *testing.T) {
	h, cat, small := imagestest.Small(t, "a 1")
	eng := store.Docker{APIClient: h}
	e, err := Pin(t.Context(), eng, cat, "small")
	require.NoError(t, err)
	l := Lock{Source: "images.lock"}.With(e)

	v, err := Verify(t.Context(), eng, cat, l, "small")
	require.NoError(t, err)
	assert.True(t, v.Same)
	assert.Equal(t, 1, v.Packages)

	h.Put(small.Tag(), idOf("moved"), imagestest.ImageOf(t, "a 1"))
	v, err = Verify(t.Context(), eng, cat, l, "small")
	require.NoError(t, err)
	assert.True(t, v.Same, "another store of images gives another ID")
	assert.True(t, v.SameContent)
	assert.NotEqual(t, v.ID, v.LockedID)

	h.Put(small.Tag(), idOf("other"), imagestest.ImageOf(t, "a 2"))
	v, err = Verify(t.Context(), eng, cat, l, "small")
	require.NoError(t, err)
	assert.False(t, v.Same)
	assert.Equal(t, []string{"~ deb a 1 all -> 2"}, v.Diff.Lines())

	// A lock that lies about the packages of its own image.
	e.Packages = nil
	h.Put(small.Tag(), idOf("small"), imagestest.ImageOf(t, "a 1"))
	v, err = Verify(t.Context(), eng, cat, Lock{}.With(e), "small")
	require.NoError(t, err)
	assert.False(t, v.Same)

	_, err = Verify(t.Context(), eng, cat, Lock{Source: "images.lock"}, "small")
	require.ErrorContains(t, err, "image small: the lock images.lock has no entry")
	_, err = Verify(t.Context(), eng, cat, l, "big-one")
	require.ErrorIs(t, err, images.ErrNotFound)
}
