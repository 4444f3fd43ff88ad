package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// An Engine describes its images. Package store has the one of Docker.
type Engine interface {
	// Image describes the image of a reference or an ID. The error of an unknown image is a
	// "not found" of containerd/errdefs.
	Image(ctx context.Context, ref string) (Image, error)
}

// An Image is the description of an image by its engine.
type Image struct {
	// ID is the immutable ID in the engine ("sha256:…").
	ID string
	// Tags are its names, and Digests those with the digest of a registry
	// ("name@sha256:…").
	Tags, Digests []string
	// Platform is os/architecture[/variant].
	Platform string
	// Layers are the digests of the unpacked layers.
	Layers []string
	Config ocispec.ImageConfig
	// SizeBytes is the size of all layers together, as the engine reports it.
	SizeBytes int64
	// Created is RFC 3339, empty when the engine does not know it.
	Created string
	// Builder is the version of the engine that made the image, empty if unknown.
	Builder string
}

// Resolved is one image that the engine has.
type Resolved struct {
	// Name is the name in the catalog, or the reference as it was given.
	Name string
	// Reference is the reference that the engine was asked for.
	Reference string
	// ID is the immutable ID in the engine ("sha256:…"): use it from here on.
	ID string
	// Digest is the registry's digest ("name@sha256:…"), empty for an image that never was
	// in a registry.
	Digest string
	// Platform is os/architecture[/variant].
	Platform string
	// Content is a hash ("sha256:…") over everything of the image that a program can see:
	// its file system, as the digests of its unpacked layers, and the part of its
	// configuration that a run takes over. Engines with different image stores give one
	// image different IDs, and the same content.
	Content string
	// CatalogName says that Name is a name of the catalog.
	CatalogName bool
	// Own says that the image is an own image of that name.
	Own bool
}

// Resolve finds the image of ref: the empty string is the default of the catalog; a
// name of the catalog is that image; else the name of an own image, see [OwnTag], is that;
// anything else is a reference or an ID of the engine. A name wins over an equal reference:
// write name:tag for the latter. It asks the engine once, or twice for a plain word that is
// not in the catalog. It never pulls.
//
// The error of a missing image is a [*NotFoundError].
func Resolve(ctx context.Context, eng Engine, cat Catalog, ref string) (Resolved, error) {
	r, _, err := Find(ctx, eng, cat, ref)
	return r, err
}

// Find is [Resolve] that also returns the engine's description of the image.
func Find(ctx context.Context, eng Engine, cat Catalog, ref string) (Resolved, Image, error) {
	if ref == "" {
		ref = cat.Default
	}
	entry, named := cat.Lookup(ref)
	r := Resolved{Name: ref, Reference: ref, CatalogName: named}
	if named {
		r.Reference = entry.Tag()
	}
	if _, err := reference.ParseAnyReference(r.Reference); err != nil {
		return Resolved{}, Image{}, fmt.Errorf("image %q is not a reference: %w", ref, err)
	}
	var found Image
	var err error = errdefs.ErrNotFound
	if !named && IsName(ref) {
		if found, err = eng.Image(ctx, OwnTag(ref)); err == nil {
			r.Reference, r.Own = OwnTag(ref), true
		}
	}
	if errdefs.IsNotFound(err) {
		found, err = eng.Image(ctx, r.Reference)
	}
	if errdefs.IsNotFound(err) {
		return Resolved{}, Image{}, &NotFoundError{Ref: ref, CatalogName: named, Entry: entry}
	}
	if err != nil {
		return Resolved{}, Image{}, fmt.Errorf("looking up image %s: %w", ref, err)
	}
	r.ID, r.Digest, r.Platform, r.Content = found.ID, registryDigest(found, r.Reference), found.Platform, found.content()
	return r, found, nil
}

// registryDigest returns the digest under which the repository of ref offers the image, or
// else the first one there is.
func registryDigest(found Image, ref string) string {
	if want, err := reference.ParseNormalizedNamed(ref); err == nil {
		for _, d := range found.Digests {
			have, err := reference.ParseNormalizedNamed(d)
			if err == nil && have.Name() == want.Name() {
				return d
			}
		}
	}
	if len(found.Digests) > 0 {
		return found.Digests[0]
	}
	return ""
}

// content returns the Content of [Resolved].
func (i Image) content() string {
	list := func(words []string) []string { return append([]string(nil), words...) } // nil for empty: engines differ
	text, err := json.Marshal(struct {
		Platform   string   `json:"platform"`
		Layers     []string `json:"layers"`
		Env        []string `json:"env"`
		User       string   `json:"user"`
		Entrypoint []string `json:"entrypoint"`
		Cmd        []string `json:"cmd"`
		WorkingDir string   `json:"working_dir"`
		Volumes    []string `json:"volumes"`
	}{
		PlainPlatform(i.Platform), list(i.Layers), list(i.Config.Env), i.Config.User, list(i.Config.Entrypoint),
		list(i.Config.Cmd), i.Config.WorkingDir, slices.Sorted(maps.Keys(i.Config.Volumes)),
	})
	if err != nil { // strings always marshal
		panic(fmt.Sprintf("marshalling the content of image %s: %v", i.ID, err))
	}
	return digest.FromBytes(text).String()
}

// PlainPlatform drops the variant of 64-bit ARM, which only some engines report.
func PlainPlatform(platform string) string { return strings.TrimSuffix(platform, "/v8") }

// ErrNotPinned means that a reference has no digest.
var ErrNotPinned = errors.New("a pull wants a digest, as in NAME:TAG@sha256:…")

// ParsePinned reads a reference that has a digest of SHA-256 (name[:tag]@sha256:…). The tag
// is nil for a reference without one. The error of a reference without a digest is
// [ErrNotPinned].
func ParsePinned(ref string) (reference.Canonical, reference.NamedTagged, error) {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return nil, nil, err
	}
	digested, ok := named.(reference.Digested)
	if !ok || digested.Digest().Algorithm() != digest.SHA256 {
		return nil, nil, ErrNotPinned
	}
	repo := reference.TrimNamed(named)
	pinned, err := reference.WithDigest(repo, digested.Digest())
	if tagged, ok := named.(reference.Tagged); ok && err == nil {
		tag, err := reference.WithTag(repo, tagged.Tag())
		return pinned, tag, err
	}
	return pinned, nil, err
}

// IsPinned reports whether a reference has a digest.
func IsPinned(ref string) bool {
	_, _, err := ParsePinned(ref)
	return err == nil
}

// Status says whether the engine has an image of a catalog.
type Status struct {
	Entry
	// Default says that a run without an image uses this one.
	Default bool
	// Present says that the engine has it; the fields below are zero if not.
	Present  bool
	Resolved Resolved
	Image    Image
}

// List returns the status of every image of a catalog, sorted by name.
func List(ctx context.Context, eng Engine, cat Catalog) ([]Status, error) {
	var all []Status
	for _, name := range cat.Names() {
		s := Status{Entry: cat.entries[name], Default: name == cat.Default}
		var err error
		s.Resolved, s.Image, err = Find(ctx, eng, cat, name)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		s.Present = err == nil
		all = append(all, s)
	}
	return all, nil
}
