package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/imagestest"
	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/images/store"
	"github.com/evalbox/evalbox/internal/treetest"
)

type member = imagestest.Member

var idOf, hexOf = imagestest.IDOf, imagestest.HexOf

// exported is an archive of the image "small", and the lock it came from.
func exported(t *testing.T, packages ...string) (archive []byte, held lock.Lock) {
	t.Helper()
	h, cat, _ := imagestest.Small(t, packages...)
	e, err := lock.Pin(t.Context(), store.Docker{APIClient: h}, cat, "small")
	require.NoError(t, err)
	held = lock.Lock{Source: "images.lock"}.With(e)
	var buf bytes.Buffer
	require.NoError(t, Export(t.Context(), h, cat, held, "small", &buf))
	return buf.Bytes(), held
}

// emptyHost has no image.
func emptyHost(t *testing.T) (h *imagestest.Engine, cat images.Catalog, lockPath string) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	return imagestest.New(t), imagestest.Catalog(t), filepath.Join(t.TempDir(), "images.lock")
}

func importBytes(t *testing.T, h *imagestest.Engine, cat images.Catalog, lockPath string, archive []byte) (lock.Change, error) {
	t.Helper()
	return Import(t.Context(), h, cat, lockPath, bytes.NewReader(archive), "a.tar")
}

func TestExportImport(t *testing.T) {
	archive, held := exported(t, "a 1")
	h, cat, path := emptyHost(t)
	change, err := importBytes(t, h, cat, path, archive)
	require.NoError(t, err)
	assert.True(t, change.Changed)
	small, _ := cat.Lookup("small")
	assert.Equal(t, map[string]string{small.Tag(): idOf("small")}, h.Tags)
	got, err := lock.Read(path)
	require.NoError(t, err)
	want, _ := held.Lookup("small")
	have, _ := got.Lookup("small")
	assert.Equal(t, want, have)

	// Once more, with the image and the entry there.
	change, err = importBytes(t, h, cat, path, archive)
	require.NoError(t, err)
	assert.False(t, change.Changed)
}

func TestExportRefuses(t *testing.T) {
	h, cat, small := imagestest.Small(t, "a 1")
	e, err := lock.Pin(t.Context(), store.Docker{APIClient: h}, cat, "small")
	require.NoError(t, err)
	require.ErrorContains(t, Export(t.Context(), h, cat, lock.Lock{Source: "images.lock"}, "small", io.Discard), "has no entry")
	h.Put(small.Tag(), idOf("other"), imagestest.ImageOf(t, "a 2"))
	require.ErrorIs(t, Export(t.Context(), h, cat, lock.Lock{}.With(e), "small", io.Discard), lock.ErrUnlocked)
	require.ErrorIs(t, Export(t.Context(), h, cat, lock.Lock{}.With(e), "big-one", io.Discard), images.ErrNotFound)
}

// repacked is an archive with its members changed.
func repacked(t *testing.T, archive []byte, change func([]member) []member) []byte {
	t.Helper()
	var members []member
	in := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return imagestest.Tar(t, change(members)...)
		}
		require.NoError(t, err)
		body, err := io.ReadAll(in)
		require.NoError(t, err)
		members = append(members, member{Name: header.Name, Body: string(body), Link: header.Linkname, Kind: header.Typeflag})
	}
}

// renamed is an archive that says that it holds an image of another name.
func renamed(t *testing.T, archive []byte, name string) []byte {
	t.Helper()
	small, _ := imagestest.Catalog(t).Lookup("small")
	return repacked(t, archive, func(all []member) []member {
		all[0].Body = strings.Replace(strings.Replace(all[0].Body, "  small:", "  "+name+":", 1), small.Tag(), name, 1)
		return all
	})
}

// What is wrong with an archive is found before or after it is loaded; nothing of
// it stays, and no name changes.
func TestImportRefusesArchives(t *testing.T) {
	good, _ := exported(t, "a 1")
	other, _ := exported(t, "a 2")
	edit := func(name, old, text string) func([]member) []member {
		return func(all []member) []member {
			for i := range all {
				if all[i].Name == name {
					all[i].Body = strings.ReplaceAll(all[i].Body, old, text)
				}
			}
			return all
		}
	}
	content := func(archive []byte) string {
		_, e, err := openArchive(bytes.NewReader(archive), "x")
		require.NoError(t, err)
		return e.Content
	}
	for name, c := range map[string]struct {
		archive []byte
		want    string
	}{
		"empty":                  {nil, "is empty"},
		"garbage":                {bytes.Repeat([]byte("garbage "), 500), "is not a tar archive"},
		"a gzip file":            {append([]byte{0x1f, 0x8b, 8}, make([]byte, 2000)...), "is not a tar archive"},
		"cut in the first block": {good[:300], "is not a tar archive"},
		"cut in the lock":        {good[:700], "ends in the middle"},
		"cut in the image":       {good[:len(good)-3000], "ends in the middle"},
		"of docker save":         {repacked(t, good, func(all []member) []member { return all[1:] }), "is not one of ours"},
		"no manifest":            {repacked(t, good, func(all []member) []member { return all[:len(all)-1] }), "has no member manifest.json"},
		"two manifests":          {repacked(t, good, func(all []member) []member { return append(all, all[len(all)-1]) }), `has two members "manifest.json"`},
		"two images":             {repacked(t, good, edit("manifest.json", "[{", `[{},{`)), "manifest.json has 2 images"},
		"a broken manifest":      {repacked(t, good, edit("manifest.json", "[{", "{")), "manifest.json: "},
		"a lock of two images":   {repacked(t, good, edit(lockMember, "images:\n", "images:\n  other: {}\n")), "evalbox.lock.yaml: images.other.id"},
		"a broken lock":          {repacked(t, good, edit(lockMember, "images:", "imagse:")), `unknown key "imagse"`},
		"many members": {repacked(t, good, func(all []member) []member {
			for n := range maxMembers {
				all = append(all, member{Name: "blobs/sha256/" + hexOf(fmt.Sprint(n))})
			}
			return all
		}), "has more than"},
		"another recipe":       {repacked(t, good, edit(lockMember, "reference: evalbox/small:", "reference: evalbox/small:f")), "of the catalog full.yaml is"},
		"an unknown name":      {repacked(t, good, edit(lockMember, "  small:", "  strange:")), `image "strange" is not in the catalog`},
		"no name":              {repacked(t, good, edit(lockMember, "  small:", `  "":`)), "its image has no name"},
		"a name of ours":       {renamed(t, good, "evalbox/debian:0123456789ab"), "is not in the catalog"},
		"spelled differently":  {renamed(t, good, "docker.io/evalbox/debian:0123456789ab"), "is not in its short form"},
		"no reference":         {renamed(t, good, "Not A Reference"), "is not a reference"},
		"another image inside": {repacked(t, other, edit(lockMember, content(other), content(good))), "its image has the content"},
		"another list": {repacked(t, good, func(all []member) []member {
			all = edit(lockMember, "deb a 1 all", "deb a 3 all")(all)
			return edit(lockMember, hexOf("deb a 1 all\n"), hexOf("deb a 3 all\n"))(all)
		}), "the first difference: ~ deb a 3 all -> 1"},
	} {
		t.Run(name, func(t *testing.T) {
			h, cat, path := emptyHost(t)
			h.Put("mine:1", idOf("mine"), imagestest.ImageOf(t))
			_, err := importBytes(t, h, cat, path, c.archive)
			require.ErrorContains(t, err, "archive a.tar: ")
			require.ErrorContains(t, err, c.want)
			require.NotEmpty(t, imagestest.HintOf(t, err))
			assert.Equal(t, map[string]string{"mine:1": idOf("mine")}, h.Tags)
			assert.Len(t, h.Images, 1)
			assert.NoFileExists(t, path)
		})
	}
}

// Only what engines write gets to an engine.
func TestImportRefusesMembers(t *testing.T) {
	good, _ := exported(t, "a 1")
	x, y := hexOf("x"), hexOf("y")
	for name, added := range map[string][]member{
		"a way out":                     {{Name: "../../etc/passwd"}},
		"an absolute name":              {{Name: "/etc/passwd"}},
		"a detour":                      {{Name: "./manifest.json"}},
		"a name with a newline":         {{Name: "blobs/sha256/" + x + "\n"}},
		"a long name":                   {{Name: strings.Repeat("x", 5000)}},
		"upper case":                    {{Name: strings.ToUpper(x) + ".json"}},
		"another file":                  {{Name: x + "/manifest.json"}},
		"a directory as a file":         {{Name: x}},
		"a file as a directory":         {{Name: "manifest.json/", Kind: tar.TypeDir}},
		"a second lock":                 {{Name: lockMember}},
		"a member twice":                {{Name: x + ".json"}, {Name: x + ".json"}},
		"a directory by a link":         {{Name: "zz", Kind: tar.TypeSymlink, Link: "."}, {Name: "zz/manifest.json"}},
		"a layer's directory by a link": {{Name: x, Kind: tar.TypeSymlink, Link: "."}, {Name: x + "/json"}},
		"blobs by a link":               {{Name: "blobs", Kind: tar.TypeSymlink, Link: "."}},
		"a link as a blob":              {{Name: "blobs/sha256/" + x, Kind: tar.TypeSymlink, Link: "../../" + y}},
		"a layer to elsewhere":          {{Name: x + "/layer.tar", Kind: tar.TypeSymlink, Link: "../manifest.json"}},
		"a layer to outside":            {{Name: x + "/layer.tar", Kind: tar.TypeSymlink, Link: "../../" + y + "/layer.tar"}},
		"a layer over a link": {
			{Name: x + "/layer.tar", Kind: tar.TypeSymlink, Link: "../" + y + "/layer.tar"}, {Name: x + "/layer.tar"},
		},
		"a hard link": {{Name: x + "/layer.tar", Kind: tar.TypeLink, Link: "../" + y + "/layer.tar"}},
		"a device":    {{Name: x + "/layer.tar", Kind: tar.TypeChar}},
	} {
		t.Run(name, func(t *testing.T) {
			h, cat, path := emptyHost(t)
			_, err := importBytes(t, h, cat, path, repacked(t, good, func(all []member) []member { return append(all, added...) }))
			require.ErrorContains(t, err, "archive ")
			assert.Regexp(t, "has two members|does not belong to a saved image", err.Error())
			assert.Less(t, len(err.Error()), 500)
			assert.Empty(t, h.Images)
			assert.NoFileExists(t, path)
		})
	}
}

// A layer that an image has twice is a link in the second place.
func TestImportTakesRepeatedLayers(t *testing.T) {
	good, _ := exported(t, "a 1")
	link := member{Name: hexOf("x") + "/layer.tar", Kind: tar.TypeSymlink, Link: "../" + hexOf("y") + "/layer.tar"}
	h, cat, path := emptyHost(t)
	_, err := importBytes(t, h, cat, path, repacked(t, good, func(all []member) []member {
		return append(all, member{Name: hexOf("x") + "/", Kind: tar.TypeDir}, link)
	}))
	require.NoError(t, err)
}

// The names in an archive never become names in the engine.
func TestImportTakesNoNames(t *testing.T) {
	good, _ := exported(t, "a 1")
	hostile := repacked(t, good, func(all []member) []member {
		for i := range all {
			if all[i].Name == "manifest.json" {
				all[i].Body = strings.Replace(all[i].Body, "RepoTags", `repotags": ["mine:1"], "RepoTags`, 1)
			}
		}
		return append(all, member{Name: "index.json", Body: "{}"}, member{Name: "oci-layout", Body: "{}"})
	})
	var passed bytes.Buffer
	in, _, err := openArchive(bytes.NewReader(hostile), "x")
	require.NoError(t, err)
	require.NoError(t, passImage(&passed, in))
	assert.NotContains(t, passed.String(), "mine:1")
	assert.NotContains(t, passed.String(), "index.json")
	assert.NotContains(t, passed.String(), "repositories")
	assert.Contains(t, passed.String(), `"RepoTags":null`)
}

// What is known by a digest only could not be named again.
func TestExportRefusesADigest(t *testing.T) {
	h, _, _ := emptyHost(t)
	ref := "tools@sha256:" + hexOf("tools")
	h.Put(ref, idOf("x"), imagestest.ImageOf(t, "a 1"))
	e, err := lock.Pin(t.Context(), store.Docker{APIClient: h}, images.Catalog{}, ref)
	require.NoError(t, err)
	err = Export(t.Context(), h, images.Catalog{}, lock.Lock{}.With(e), ref, io.Discard)
	require.ErrorContains(t, err, "cannot name it by a digest")
	assert.Contains(t, imagestest.HintOf(t, err), "docker tag "+ref+" NAME:TAG")
	assert.NotContains(t, h.Calls, "save")
}

// An archive of another catalog is well made: what is missing is that catalog.
func TestImportHintsAtTheCatalog(t *testing.T) {
	good, _ := exported(t, "a 1")
	h, _, path := emptyHost(t)
	_, err := importBytes(t, h, images.Catalog{Source: "mine.yaml"}, path, good)
	require.ErrorContains(t, err, `image "small" is not in the catalog mine.yaml`)
	assert.Equal(t, "name the catalog that it was exported with: --catalog FILE", imagestest.HintOf(t, err))
}

// An image that the lock, or the engine, knows otherwise is refused.
func TestImportKeepsWhatIsKnown(t *testing.T) {
	good, _ := exported(t, "a 1")
	_, newer := exported(t, "a 2")
	small, _ := imagestest.Catalog(t).Lookup("small")

	t.Run("another is locked", func(t *testing.T) {
		h, cat, path := emptyHost(t)
		require.NoError(t, lock.Update(t.Context(), path, func(lock.Lock) (lock.Lock, error) {
			e, _ := newer.Lookup("small")
			e.ID = idOf("newer")
			return lock.Lock{}.With(e), nil
		}))
		was := treetest.Read(t, path)
		_, err := importBytes(t, h, cat, path, good)
		require.ErrorContains(t, err, "holds "+idOf("newer"))
		assert.Contains(t, imagestest.HintOf(t, err), "--lock FILE")
		assert.NotContains(t, h.Calls, "load", "it is refused before it is loaded")
		assert.Equal(t, was, treetest.Read(t, path))
	})
	// The ID that an archive claims must not pass for the image that it holds.
	t.Run("another is locked, whose ID it claims", func(t *testing.T) {
		h, cat, path := emptyHost(t)
		require.NoError(t, lock.Update(t.Context(), path, func(lock.Lock) (lock.Lock, error) {
			e, _ := newer.Lookup("small")
			e.ID = idOf("newer")
			return lock.Lock{}.With(e), nil
		}))
		claims := bytes.ReplaceAll(good, []byte("id: "+idOf("small")), []byte("id: "+idOf("newer")))
		_, err := importBytes(t, h, cat, path, claims)
		require.ErrorContains(t, err, "holds "+idOf("newer"))
		assert.Contains(t, h.Calls, "load")
		assert.Empty(t, h.Images)
	})
	t.Run("an ID that it claims is not locked", func(t *testing.T) {
		h, cat, path := emptyHost(t)
		claims := bytes.ReplaceAll(good, []byte("id: "+idOf("small")), []byte("id: "+idOf("another")))
		change, err := importBytes(t, h, cat, path, claims)
		require.NoError(t, err)
		assert.Equal(t, idOf("small"), change.After.ID)
		assert.NotContains(t, treetest.Read(t, path), idOf("another"))
	})
	t.Run("the name is taken", func(t *testing.T) {
		h, cat, path := emptyHost(t)
		h.Put(small.Tag(), idOf("mine"), imagestest.ImageOf(t, "a 3"))
		_, err := importBytes(t, h, cat, path, good)
		require.ErrorContains(t, err, "the engine has another image small ("+idOf("mine")+"), which is not locked")
		assert.Equal(t, "keep the engine's with: sandbox image lock small; or take the name off it with: docker rmi "+small.Tag(), imagestest.HintOf(t, err))
		assert.Equal(t, idOf("mine"), h.Tags[small.Tag()])
	})
	t.Run("the name is taken, and the archive is the locked one", func(t *testing.T) {
		h, cat, path := emptyHost(t)
		_, err := importBytes(t, h, cat, path, good)
		require.NoError(t, err)
		h.Put(small.Tag(), idOf("mine"), imagestest.ImageOf(t, "a 3"))
		_, err = importBytes(t, h, cat, path, good)
		require.NoError(t, err)
		assert.Equal(t, idOf("small"), h.Tags[small.Tag()], "import brings the locked image back")
	})
	t.Run("what was there before stays", func(t *testing.T) {
		h, cat, path := emptyHost(t)
		h.Put("mine:1", idOf("small"), imagestest.ImageOf(t, "a 1"))
		h.Fail["export"] = errors.New("no export")
		_, err := importBytes(t, h, cat, path, good)
		require.ErrorContains(t, err, "no export")
		assert.Equal(t, map[string]string{"mine:1": idOf("small")}, h.Tags)
	})
}

func TestImportFails(t *testing.T) {
	good, _ := exported(t, "a 1")
	for name, c := range map[string]struct {
		fail func(*imagestest.Engine)
		want string
	}{
		"load":      {func(h *imagestest.Engine) { h.Fail["load"] = errors.New("disk full") }, "the engine does not take it: disk full"},
		"in answer": {func(h *imagestest.Engine) { h.FailLate["load"] = errors.New("bad layer") }, "bad layer"},
		"two images": {func(h *imagestest.Engine) {
			h.Loaded = `{"stream":"Loaded image ID: ` + idOf("x") + `"}`
			h.OnLoad = func(string) { h.Images[idOf("x")] = imagestest.Image{} }
		}, "reports 2 images"},
		"a name that moves": {func(h *imagestest.Engine) {
			h.Loaded = `{"stream":"Loaded image: mine:1\n"}`
			h.OnLoad = func(id string) { h.Tags["mine:1"] = id }
		}, "the engine took names from it"},
		"a new name": {func(h *imagestest.Engine) {
			h.Loaded = `{"stream":"Loaded image: new:1\nLoaded image: newer:1\n"}`
			h.OnLoad = func(id string) { h.Tags["new:1"], h.Tags["newer:1"] = id, id }
		}, "the engine took names from it"},
		"reading": {func(h *imagestest.Engine) { h.Fail["export"] = errors.New("no export") }, "listing its packages: no export"},
	} {
		t.Run(name, func(t *testing.T) {
			h, cat, path := emptyHost(t)
			h.Put("mine:1", idOf("mine"), imagestest.ImageOf(t))
			c.fail(h)
			_, err := importBytes(t, h, cat, path, good)
			require.ErrorContains(t, err, c.want)
			assert.Equal(t, map[string]string{"mine:1": idOf("mine")}, h.Tags)
			assert.Len(t, h.Images, 1, "what was loaded is removed")
			assert.NoFileExists(t, path)
		})
	}
	t.Run("what others did meanwhile stays", func(t *testing.T) {
		h, cat, path := emptyHost(t)
		h.Put("", idOf("nameless"), imagestest.ImageOf(t))
		h.FailLate["load"] = errors.New("bad layer")
		h.OnLoad = func(string) {
			h.Images[idOf("pulled")], h.Tags["other:1"] = imagestest.Image{}, idOf("pulled")
			h.Images[idOf("built")] = imagestest.Image{Parent: idOf("pulled")}
			h.Images[idOf("used")] = imagestest.Image{}
			h.Containers["theirs"] = container.Summary{ID: "theirs", ImageID: idOf("used")}
		}
		_, err := importBytes(t, h, cat, path, good)
		require.ErrorContains(t, err, "bad layer")
		assert.NotContains(t, err.Error(), "removing")
		assert.Len(t, h.Images, 4)
		assert.NotContains(t, h.Images, idOf("small"))
	})
	t.Run("nothing is removed after an archive that was cut off", func(t *testing.T) {
		h, cat, path := emptyHost(t)
		h.OnList = func() { h.Images[idOf("theirs")] = imagestest.Image{} }
		_, err := importBytes(t, h, cat, path, good[:len(good)-3000])
		require.ErrorContains(t, err, "ends in the middle")
		assert.NotContains(t, h.Calls, "remove image", "what is new is of somebody else")
	})
	t.Run("what cannot be removed is told", func(t *testing.T) {
		h, cat, path := emptyHost(t)
		h.FailLate["load"] = errors.New("bad layer")
		h.Fail["remove image"] = errors.New("no removal")
		_, err := importBytes(t, h, cat, path, good)
		require.ErrorContains(t, err, "bad layer")
		require.ErrorContains(t, err, "removing what was loaded: no removal")
	})
	t.Run("canceled", func(t *testing.T) {
		h, cat, path := emptyHost(t)
		ctx, cancel := context.WithCancel(t.Context())
		h.OnLoad = func(string) { cancel() }
		_, err := Import(ctx, h, cat, path, bytes.NewReader(good), "a.tar")
		require.ErrorIs(t, err, context.Canceled)
		assert.NoFileExists(t, path)
		assert.Empty(t, h.Images)
	})
	t.Run("a lock that cannot be written", func(t *testing.T) {
		h, cat, path := emptyHost(t)
		require.NoError(t, os.WriteFile(path, []byte("nonsense"), 0o600))
		_, err := importBytes(t, h, cat, path, good)
		require.ErrorContains(t, err, path)
		assert.Empty(t, h.Images)
	})
}
