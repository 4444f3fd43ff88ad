package images

import (
	"context"
	"fmt"
	"time"

	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"
)

// Pin returns the entry of a lock for an image that the engine has: name is as
// for [Resolve]. It reads the packages of the image, which takes seconds, and
// runs nothing of it. The errors are those of [Resolve], or say what failed.
func Pin(ctx context.Context, eng Reader, cat Catalog, name string) (LockEntry, error) {
	r, found, err := resolve(ctx, eng, cat, name)
	if err != nil {
		return LockEntry{}, err
	}
	in, err := readImage(ctx, eng, r.ID)
	if err != nil {
		return LockEntry{}, fmt.Errorf("image %s: listing its packages: %w", r.Name, err)
	}
	e := LockEntry{
		Name: r.Name, Reference: r.Reference, ID: r.ID, Content: r.Content, Platform: r.Platform,
		System: in.System, Created: imageTime(found), Packages: in.Packages,
	}
	e.Base, e.BaseDigest = baseOf(cat, r)
	e.Builder, err = builderOf(ctx, eng, cat, r, found)
	if err != nil {
		return LockEntry{}, fmt.Errorf("image %s: %w", r.Name, err)
	}
	return e, nil
}

// baseOf says what an image stands on.
func baseOf(cat Catalog, r Resolved) (base, digest string) {
	entry, named := cat.Lookup(r.Name)
	switch {
	case !named || !r.CatalogName:
		base, digest = "image "+r.Reference, digestOf(r.Digest)
	case entry.Base.Bootstrap != nil:
		base, digest = entry.Base.String(), noDigest
	default:
		base, digest = entry.Base.Reference, digestOf(entry.Base.Reference)
	}
	return base, digest
}

// digestOf returns the digest of name@digest.
func digestOf(ref string) string {
	if named, err := reference.ParseNormalizedNamed(ref); err == nil {
		if pinned, ok := named.(reference.Digested); ok {
			return pinned.Digest().String()
		}
	}
	return noDigest
}

// imageTime is the time of an image; zero when the engine does not know it.
func imageTime(found image.InspectResponse) time.Time {
	at, err := time.Parse(time.RFC3339Nano, found.Created)
	if err != nil {
		return time.Time{}
	}
	return at.UTC()
}

func builderOf(ctx context.Context, eng Reader, cat Catalog, r Resolved, found image.InspectResponse) (Builder, error) {
	b := Builder{Engine: found.DockerVersion} //nolint:staticcheck // engines that still tell are right
	if _, named := cat.Lookup(r.Name); named && r.CatalogName {
		b.Evalbox = builderVersion
	}
	if b.Engine == "" {
		version, err := eng.ServerVersion(ctx)
		if err != nil {
			return Builder{}, fmt.Errorf("asking for the version of the engine: %w", err)
		}
		b.Engine = version.Version
	}
	return b, nil
}
