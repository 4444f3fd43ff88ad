package images

import (
	"errors"
	"testing"

	"github.com/docker/docker/api/types/image"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestResolve(t *testing.T) {
	cat := testCatalog(t)
	small, _ := cat.Lookup("small")
	eng := newFake(small.Tag(), "python:3.12", "sha256:"+testID)
	eng.images["python:3.12"] = image.Summary{ID: "sha256:py", RepoDigests: []string{
		"mirror.example/python@sha256:" + testID, "python@sha256:" + testID,
	}}
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
			assert.Equal(t, "linux/arm64/v8", r.Platform)
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
		{"evalbox/debian:0123456789ab", "is neither", "images of ours are in no registry: make it with sandbox image ensure"},
	} {
		t.Run(c.ref, func(t *testing.T) {
			eng := newFake()
			_, err := Resolve(t.Context(), eng, cat, c.ref)
			require.ErrorIs(t, err, ErrNotFound)
			assert.ErrorContains(t, err, c.message)
			var hinter interface{ Hint() string }
			require.ErrorAs(t, err, &hinter)
			assert.Contains(t, hinter.Hint(), c.hint)
			_, calls := eng.state()
			assert.Equal(t, map[string]int{"inspect": 1}, calls)
		})
	}
}

func TestResolveErrors(t *testing.T) {
	_, err := Resolve(t.Context(), newFake(), testCatalog(t), "Not A Reference")
	assert.ErrorContains(t, err, `image "Not A Reference" is not a reference`)

	down := errors.New("engine down")
	eng := newFake()
	eng.inspectErr = down
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
	assert.True(t, all[0].Makeable)
	assert.False(t, all[0].Present || all[0].Default)
	assert.Equal(t, Status{
		Name: "small", Description: "the smallest", Tag: small.Tag(), Base: "debian bookworm, 2 packages",
		Default: true, Makeable: true, Present: true, ID: "sha256:" + small.Tag(), SizeBytes: 1000,
		Created: "2026-01-01T00:00:00Z", Content: all[2].Content, Platform: "linux/arm64/v8",
	}, all[2])
	found, err := Resolve(t.Context(), newFake(small.Tag()), cat, "small")
	require.NoError(t, err)
	assert.Equal(t, found, all[2].Resolved())
}
