package images

import (
	"context"
	"errors"
	"testing"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A fakeEngine has images by reference.
type fakeEngine struct {
	images map[string]Image
	err    error
	calls  int
}

func newFake(refs ...string) *fakeEngine {
	f := &fakeEngine{images: map[string]Image{}}
	for _, ref := range refs {
		f.images[ref] = testImage(ref)
	}
	return f
}

func (f *fakeEngine) Image(_ context.Context, ref string) (Image, error) {
	f.calls++
	img, ok := f.images[ref]
	if !ok && f.err == nil {
		return Image{}, errdefs.ErrNotFound
	}
	return img, f.err
}

// testImage is an image with one layer of this name.
func testImage(layer string) Image {
	return Image{
		ID: "sha256:" + layer, Platform: "linux/arm64", Layers: []string{layer, "l2"}, SizeBytes: 1000, Created: "2026-01-01T00:00:00Z",
		Config: ocispec.ImageConfig{User: "1", Env: []string{"A=1"}, Cmd: []string{"c"}, WorkingDir: "/w"},
	}
}

func TestResolve(t *testing.T) {
	cat := testCatalog(t)
	small, _ := cat.Lookup("small")
	eng := newFake(small.Tag(), "python:3.12", "sha256:"+testID)
	python := eng.images["python:3.12"]
	python.Digests = []string{"mirror.example/python@sha256:" + testID, "python@sha256:" + testID}
	eng.images["python:3.12"] = python
	for _, c := range []struct{ ref, name, reference, digest string }{
		{"", "small", small.Tag(), ""},
		{"small", "small", small.Tag(), ""},
		{"python:3.12", "python:3.12", "python:3.12", "python@sha256:" + testID},
		{"sha256:" + testID, "sha256:" + testID, "sha256:" + testID, ""},
	} {
		t.Run(c.ref, func(t *testing.T) {
			r, err := Resolve(t.Context(), eng, cat, c.ref)
			require.NoError(t, err)
			assert.Equal(t, c.name, r.Name)
			assert.Equal(t, c.reference, r.Reference)
			assert.Equal(t, c.digest, r.Digest)
			assert.Equal(t, "linux/arm64", r.Platform)
			assert.NotEmpty(t, r.ID)
			assert.Regexp(t, `^sha256:[0-9a-f]{64}$`, r.Content)
			assert.Equal(t, c.name == "small", r.CatalogName)
		})
	}
}

const testID = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestResolveNotFound(t *testing.T) {
	cat := testCatalog(t)
	for _, c := range []struct{ ref, message, hint string }{
		{"", "image small (evalbox/small:", "sandbox image ensure small"},
		{"big-one", "image big-one (evalbox/big-one:", "sandbox image ensure big-one"},
		{"tools@sha256:" + testID, "is neither", "sandbox image pull tools@sha256:"},
		{"python:3.12", `image "python:3.12" is neither`, "docker pull python:3.12"},
		{"debian", `image "debian" is neither`, "see the names with: sandbox image list; name another catalog with --catalog"},
		{"sha256:" + testID, "is neither", "docker image ls"},
		{"evalbox/debian:0123456789ab", "is neither", "images of evalbox are in no registry: make it with sandbox image ensure"},
	} {
		t.Run(c.ref, func(t *testing.T) {
			eng := newFake()
			_, err := Resolve(t.Context(), eng, cat, c.ref)
			require.ErrorIs(t, err, ErrNotFound)
			assert.ErrorContains(t, err, c.message)
			var hinter interface{ Hint() string }
			require.ErrorAs(t, err, &hinter)
			assert.Contains(t, hinter.Hint(), c.hint)
			want := 1
			if c.ref == "debian" { // may be an own image
				want = 2
			}
			assert.Equal(t, want, eng.calls)
		})
	}
}

func TestOwnNames(t *testing.T) {
	name, ok := OwnName(OwnTag("mine-2"))
	assert.True(t, ok)
	assert.Equal(t, "mine-2", name)
	for _, tag := range []string{"evalbox/mine:0123456789ab", "mine:own", "evalbox/a/b:own", "evalbox/Mine:own", "evalbox/:own", "evalbox/mine:own:own"} {
		_, ok := OwnName(tag)
		assert.False(t, ok, tag)
	}
}

func TestResolveErrors(t *testing.T) {
	_, err := Resolve(t.Context(), newFake(), testCatalog(t), "Not A Reference")
	assert.ErrorContains(t, err, `image "Not A Reference" is not a reference`)

	down := errors.New("engine down")
	eng := newFake()
	eng.err = down
	_, err = Resolve(t.Context(), eng, testCatalog(t), "small")
	assert.ErrorIs(t, err, down)
	assert.NotErrorIs(t, err, ErrNotFound)
}

func TestList(t *testing.T) {
	cat := testCatalog(t)
	small, _ := cat.Lookup("small")
	all, err := List(t.Context(), newFake(small.Tag()), cat)
	require.NoError(t, err)
	require.Len(t, all, 3)
	assert.Equal(t, "big-one", all[0].Name)
	assert.False(t, all[0].Present || all[0].Default)
	found, img, err := Find(t.Context(), newFake(small.Tag()), cat, "small")
	require.NoError(t, err)
	assert.Equal(t, Status{Entry: small, Default: true, Present: true, Resolved: found, Image: img}, all[2])

	_, err = List(t.Context(), &fakeEngine{err: errors.New("engine down")}, cat)
	require.ErrorContains(t, err, "looking up image big-one: engine down")
}

// The content changes with everything that a program can tell, and with nothing
// else.
func TestContentOf(t *testing.T) {
	want := testImage("l").content()
	assert.Regexp(t, `^sha256:[0-9a-f]{64}$`, want)
	for name, c := range map[string]struct {
		change func(*Image)
		same   bool
	}{
		"ID":                {func(i *Image) { i.ID = "sha256:b" }, true},
		"created":           {func(i *Image) { i.Created = "2026-01-01T00:00:00Z" }, true},
		"labels":            {func(i *Image) { i.Config.Labels = map[string]string{"a": "b"} }, true},
		"variant of all":    {func(i *Image) { i.Platform += "/v8" }, true},
		"empty, not nil":    {func(i *Image) { i.Config.Entrypoint = []string{} }, true},
		"layers":            {func(i *Image) { i.Layers = []string{"l2", "l"} }, false},
		"architecture":      {func(i *Image) { i.Platform = "linux/amd64" }, false},
		"variant":           {func(i *Image) { i.Platform += "/v9" }, false},
		"user":              {func(i *Image) { i.Config.User = "0" }, false},
		"environment":       {func(i *Image) { i.Config.Env = []string{"A=1", "LD_PRELOAD=x"} }, false},
		"entry point":       {func(i *Image) { i.Config.Entrypoint = []string{"c"} }, false},
		"command":           {func(i *Image) { i.Config.Cmd = nil }, false},
		"working directory": {func(i *Image) { i.Config.WorkingDir = "/" }, false},
		"volumes":           {func(i *Image) { i.Config.Volumes = map[string]struct{}{"/v": {}} }, false},
		"no config":         {func(i *Image) { i.Config = ocispec.ImageConfig{} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			i := testImage("l")
			c.change(&i)
			assert.Equal(t, c.same, i.content() == want)
		})
	}
}
