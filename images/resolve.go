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
	// Image describes the image of a reference or an ID. The error of an unknown image is
	// a "not found" of containerd/errdefs.
	Image(ctx context.Context, ref string) (Image, error)
}

// An Image is what an engine says of one of its images.
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
	// SizeBytes is what the engine reports: all layers together.
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
	// Digest is the registry's digest ("name@sha256:…"), empty for an image
	// that never was in a registry.
	Digest string
	// Platform is os/architecture[/variant].
	Platform string
	// Content is a hash ("sha256:…") over everything of the image that a program can see:
	// its file system, as the digests of its unpacked layers, and the part of its
	// configuration that a run takes over. Engines that keep images in different stores
	// give one image different IDs, and the same content.
	Content string
	// CatalogName says that Name is a name of the catalog.
	CatalogName bool
}

// Resolve finds the image that ref means: the empty string is the default of the
// catalog; a name of the catalog is that image; anything else is a reference or
// an ID of the engine. A name of the catalog wins over an equal reference: write
// name:tag for the latter. It asks the engine once, and never pulls.
//
// The error of an image that is not there is a [*NotFoundError].
func Resolve(ctx context.Context, eng Engine, cat Catalog, ref string) (Resolved, error) {
	r, _, err := Find(ctx, eng, cat, ref)
	return r, err
}

// Find is [Resolve] that also returns what the engine says of the image.
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
	found, err := eng.Image(ctx, r.Reference)
	if errdefs.IsNotFound(err) {
		return Resolved{}, Image{}, &NotFoundError{Ref: ref, CatalogName: named, Entry: entry}
	}
	if err != nil {
		return Resolved{}, Image{}, fmt.Errorf("looking up image %s: %w", ref, err)
	}
	r.ID, r.Digest, r.Platform, r.Content = found.ID, registryDigest(found, r.Reference), found.Platform, found.content()
	return r, found, nil
}

// registryDigest returns the digest under which the repository of ref offers the image,
// or else the first one there is.
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

// content is the hash of [Resolved].
func (i Image) content() string {
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

// list makes nil, which some engines send for empty, the same as empty.
func list(words []string) []string {
	if len(words) == 0 {
		return nil
	}
	return words
}

// PlainPlatform leaves out the variant that every 64-bit ARM has, and that only
// some engines report.
func PlainPlatform(platform string) string { return strings.TrimSuffix(platform, "/v8") }

// ErrNotPinned means that a reference has no digest.
var ErrNotPinned = errors.New("a pull wants a digest, as in NAME:TAG@sha256:…")

// ParsePinned reads a reference that has a digest of SHA-256 (name[:tag]@sha256:…). The tag
// is nil when there is none. The error of a reference without a digest is [ErrNotPinned].
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

// IsPinned says that a reference has a digest.
func IsPinned(ref string) bool {
	_, _, err := ParsePinned(ref)
	return err == nil
}

// Status is what the engine has of one image of a catalog.
type Status struct {
	Name        string
	Description string
	// Tag is the local name in the engine.
	Tag string
	// Base describes what the image stands on.
	Base string
	// Default says that a run without an image uses this one.
	Default bool
	// Present says that the engine has it; the fields below are zero if not.
	Present bool
	ID      string
	// Content and Platform are as in [Resolved].
	Content, Platform string
	// SizeBytes and Created are as in [Image].
	SizeBytes int64
	Created   string
}

// Resolved is the image as [Resolve] would find it, if it is present.
func (s Status) Resolved() Resolved {
	return Resolved{Name: s.Name, Reference: s.Tag, ID: s.ID, Platform: s.Platform, Content: s.Content, CatalogName: true}
}

// List says for every image of a catalog, sorted by name, what the engine has.
func List(ctx context.Context, eng Engine, cat Catalog) ([]Status, error) {
	var all []Status
	for _, name := range cat.Names() {
		e, _ := cat.Lookup(name)
		s := Status{Name: name, Description: e.Description, Tag: e.Tag(), Base: e.Base.String(), Default: name == cat.Default}
		r, found, err := Find(ctx, eng, cat, name)
		switch {
		case err == nil:
			s.Present, s.ID, s.Content, s.Platform = true, r.ID, r.Content, r.Platform
			s.SizeBytes, s.Created = found.SizeBytes, found.Created
		case !errors.Is(err, ErrNotFound):
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}
