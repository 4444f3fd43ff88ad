package images

import (
	"context"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"
)

// Resolved is one image that the engine has.
type Resolved struct {
	// Name is the name in the catalog, or the reference as it was given.
	Name string
	// Reference is what the engine was asked for.
	Reference string
	// ID is the immutable ID in the engine ("sha256:…"): use it from here on.
	ID string
	// Digest is the registry's digest ("name@sha256:…"), empty for an image
	// that never was in a registry.
	Digest string
	// Platform is os/architecture[/variant].
	Platform string
	// Content is a hash over what a program can tell of the image ("sha256:…"),
	// see [LockEntry].
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
func Resolve(ctx context.Context, eng Inspector, cat Catalog, ref string) (Resolved, error) {
	r, _, err := resolve(ctx, eng, cat, ref)
	return r, err
}

// resolve is Resolve with all that the engine says of the image.
func resolve(ctx context.Context, eng Inspector, cat Catalog, ref string) (Resolved, image.InspectResponse, error) {
	if ref == "" {
		ref = cat.Default
	}
	entry, named := cat.Lookup(ref)
	r := Resolved{Name: ref, Reference: ref, CatalogName: named}
	if named {
		r.Reference = entry.Tag()
	}
	if _, err := reference.ParseAnyReference(r.Reference); err != nil {
		return Resolved{}, image.InspectResponse{}, fmt.Errorf("image %q is not a reference: %w", ref, err)
	}
	found, err := eng.ImageInspect(ctx, r.Reference)
	if errdefs.IsNotFound(err) {
		return Resolved{}, image.InspectResponse{}, &NotFoundError{Ref: ref, CatalogName: named, Entry: entry}
	}
	if err != nil {
		return Resolved{}, image.InspectResponse{}, fmt.Errorf("looking up image %s: %w", ref, err)
	}
	r.ID, r.Digest, r.Platform = found.ID, digest(found, r.Reference), platform(found)
	r.Content = contentOf(found)
	return r, found, nil
}

// digest returns the digest under which the repository of ref offers the image,
// or else the first one there is.
func digest(found image.InspectResponse, ref string) string {
	if want, err := reference.ParseNormalizedNamed(ref); err == nil {
		for _, d := range found.RepoDigests {
			have, err := reference.ParseNormalizedNamed(d)
			if err == nil && have.Name() == want.Name() {
				return d
			}
		}
	}
	if len(found.RepoDigests) > 0 {
		return found.RepoDigests[0]
	}
	return ""
}

// platform writes the platform of an image as os/architecture[/variant].
func platform(found image.InspectResponse) string {
	parts := []string{found.Os, found.Architecture}
	if found.Variant != "" {
		parts = append(parts, found.Variant)
	}
	return strings.Join(parts, "/")
}
