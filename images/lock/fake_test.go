package lock

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/packages"
)

// A fakeEngine holds images and their packages.
type fakeEngine struct {
	images      map[string]packages.List // by ID
	tags        map[string]string        // the ID of each
	calls       []string
	contentsErr error
}

func (f *fakeEngine) Image(_ context.Context, ref string) (images.Image, error) {
	f.calls = append(f.calls, "inspect")
	if id, ok := f.tags[ref]; ok {
		ref = id
	}
	list, ok := f.images[ref]
	if !ok {
		return images.Image{}, errdefs.ErrNotFound
	}
	return images.Image{ID: ref, Platform: "linux/amd64", Layers: []string{list.SHA256()}, SizeBytes: 1000, Created: "2026-01-01T00:00:00.5Z"}, nil
}

func (f *fakeEngine) Contents(_ context.Context, id string) (packages.Contents, error) {
	f.calls = append(f.calls, "export")
	return packages.Contents{Packages: f.images[id], System: "debian 12"}, f.contentsErr
}

func (f *fakeEngine) Version(context.Context) (string, error) { return "20.10.24", nil }

// put gives an image a name.
func (f *fakeEngine) put(tag, id string, list packages.List) { f.images[id], f.tags[tag] = list, id }

// hexOf is the SHA-256 of a text, idOf an ID that looks like one.
func hexOf(text string) string { return digest.FromString(text).Encoded() }
func idOf(name string) string  { return "sha256:" + hexOf(name) }

// listOf has packages of Debian as "NAME VERSION".
func listOf(names ...string) packages.List {
	var list packages.List
	for _, p := range names {
		name, version, _ := strings.Cut(p, " ")
		list = append(list, packages.Package{Kind: packages.Deb, Name: name, Version: version, Arch: "all"})
	}
	slices.SortFunc(list, func(a, b packages.Package) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// smallHost has the image "small" of the catalog with these packages.
func smallHost(t *testing.T, names ...string) (*fakeEngine, images.Catalog, images.Entry) {
	t.Helper()
	cat, err := images.LoadCatalog(read(t, "../testdata/valid/full.yaml"), "full.yaml")
	require.NoError(t, err)
	small, ok := cat.Lookup("small")
	require.True(t, ok)
	f := &fakeEngine{images: map[string]packages.List{}, tags: map[string]string{}}
	f.put(small.Tag(), idOf("small"), listOf(names...))
	return f, cat, small
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}
