package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/distribution/reference"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/packages"
)

// An Engine can read its images. Package store has the one of Docker.
type Engine interface {
	images.Engine
	// Contents reads the packages of an image, by its ID. It runs nothing of the image.
	Contents(ctx context.Context, id string) (packages.Contents, error)
	// Version is the version of the engine.
	Version(ctx context.Context) (string, error)
}

// noDigest is the base digest of an image without a registry.
const noDigest = "none"

// Pin returns the entry of a lock for an image that the engine has: name is as for
// [images.Resolve]. It reads the packages of the image, which takes seconds, and runs
// nothing of it.
func Pin(ctx context.Context, eng Engine, cat images.Catalog, name string) (Entry, error) {
	r, found, err := images.Find(ctx, eng, cat, name)
	if err != nil {
		return Entry{}, err
	}
	in, err := eng.Contents(ctx, r.ID)
	if err != nil {
		return Entry{}, fmt.Errorf("image %s: listing its packages: %w", r.Name, err)
	}
	e := Entry{
		Name: r.Name, Reference: r.Reference, ID: r.ID, Content: r.Content, Platform: r.Platform,
		System: in.System, Created: Created(found), Packages: in.Packages, Builder: Builder{Engine: found.Builder},
	}
	entry, _ := cat.Lookup(r.Name)
	switch {
	case r.Own:
		e.Base, e.BaseDigest = cmp.Or(found.Config.Labels[images.LabelOwn], "own image"), noDigest
		e.Builder.Evalbox = images.BuilderVersion
	case !r.CatalogName:
		e.Base, e.BaseDigest = "image "+r.Reference, digestOf(r.Digest)
	default:
		e.Base, e.BaseDigest, e.Builder.Evalbox = entry.Base.String(), digestOf(entry.Base.Reference), images.BuilderVersion
	}
	if e.Builder.Engine == "" {
		if e.Builder.Engine, err = eng.Version(ctx); err != nil {
			return Entry{}, fmt.Errorf("image %s: asking for the version of the engine: %w", r.Name, err)
		}
	}
	return e, nil
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

// Created returns the time of an image; zero if the engine does not know it.
func Created(img images.Image) time.Time {
	at, err := time.Parse(time.RFC3339Nano, img.Created)
	if err != nil {
		return time.Time{}
	}
	return at.UTC()
}

// A Change is the change of one entry of a lock.
type Change struct {
	// Before is the former entry, nil when there was none.
	Before *Entry
	// After is the entry as it is now.
	After Entry
	// Changed says that the file was changed.
	Changed bool
}

// Diff compares the packages of the two entries; it is empty without a former entry.
func (c Change) Diff() packages.Diff {
	if c.Before == nil {
		return packages.Compare(nil, nil)
	}
	return packages.Compare(c.Before.Packages, c.After.Packages)
}

// Put locks the present image of a name in a file, and replaces a former entry.
func Put(ctx context.Context, eng Engine, cat images.Catalog, path, name string) (Change, error) {
	e, err := Pin(ctx, eng, cat, name)
	if err != nil {
		return Change{}, err
	}
	change := Change{After: e, Changed: true}
	err = Update(ctx, path, func(l Lock) (Lock, error) {
		change.Before = l.former(e.Name)
		return l.With(e), nil
	})
	return change, err
}

// Drop removes the entry of a name from the lock in a file, and returns the entry. The error
// of a name without an entry is that of [Lock.Require].
func Drop(ctx context.Context, path, name string) (dropped Entry, err error) {
	err = Update(ctx, path, func(l Lock) (Lock, error) {
		if dropped, err = l.Require(name); err != nil {
			return l, err
		}
		return l.Without(name), nil
	})
	return dropped, err
}

// Settle locks an image that was just made or found, unless that would hide a change. An
// image without an entry is locked, and so is one whose recipe in the catalog differs from
// that of its entry, because the catalog was changed on purpose. If an entry of the same
// recipe is another image, the error is an [*UnlockedError] with a Diff, and nothing is
// changed.
func Settle(ctx context.Context, eng Engine, cat images.Catalog, path, name string) (Change, error) {
	r, err := images.Resolve(ctx, eng, cat, name)
	if err != nil {
		return Change{}, err
	}
	l, err := Read(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Change{}, err
	}
	if e, ok := l.Lookup(r.Name); ok && e.Is(r) && e.Reference == r.Reference {
		return Change{Before: &e, After: e}, nil
	}
	pinned, err := Pin(ctx, eng, cat, name)
	if err != nil {
		return Change{}, err
	}
	change := Change{After: pinned}
	err = Update(ctx, path, func(l Lock) (Lock, error) {
		change.Before = l.former(r.Name)
		if b := change.Before; b != nil && b.Reference == pinned.Reference {
			if b.Is(r) { // somebody else was faster
				change.After = *b
				return l, nil
			}
			diff := packages.Compare(b.Packages, pinned.Packages)
			return l, &UnlockedError{Name: r.Name, ID: r.ID, LockedID: b.ID, Source: path, CatalogName: r.CatalogName, Diff: &diff}
		}
		change.Changed = true
		return l.With(pinned), nil
	})
	if err != nil {
		return Change{}, err
	}
	return change, nil
}

// A Verification compares an image with its locked entry.
type Verification struct {
	Name string `json:"name"`
	// Same says that the image is the locked one and holds the locked packages.
	Same bool `json:"same"`
	// LockedID is the ID in the lock, ID that of the engine.
	LockedID string `json:"locked_id"`
	ID       string `json:"id"`
	// SameContent says that layers and configuration are the locked ones. The ID may differ.
	SameContent bool `json:"same_content"`
	// Packages is the number of packages in the engine's image, Diff their difference from
	// the locked ones.
	Packages int           `json:"packages"`
	Diff     packages.Diff `json:"diff"`
	// Error says why it could not be compared; the other fields are then meaningless.
	Error string `json:"error,omitempty"`
}

// Verify compares the present image of a locked name with its entry: ID, content and,
// read again from the image, the packages. Nothing of the image is run. An error means that
// it could not be compared.
func Verify(ctx context.Context, eng Engine, cat images.Catalog, l Lock, name string) (Verification, error) {
	r, err := images.Resolve(ctx, eng, cat, name)
	if err != nil {
		return Verification{}, err
	}
	e, err := l.Require(r.Name)
	if err != nil {
		return Verification{}, err
	}
	in, err := eng.Contents(ctx, r.ID)
	if err != nil {
		return Verification{}, fmt.Errorf("image %s: listing its packages: %w", r.Name, err)
	}
	v := Verification{
		Name: r.Name, LockedID: e.ID, ID: r.ID, SameContent: e.Content == r.Content,
		Packages: len(in.Packages), Diff: packages.Compare(e.Packages, in.Packages),
	}
	v.Same = e.Is(r) && v.Diff.Empty()
	return v, nil
}

// Details describe one image of the engine.
type Details struct {
	// Entry is the present or possible lock entry; its ID is the one in this engine.
	Entry Entry
	// Digest is the registry's digest, see [images.Resolved].
	Digest string
	// SizeBytes is the size of all layers together, as the engine reports it.
	SizeBytes int64
	// Locked says that the image is the locked one. The packages are then those of the
	// lock, else they were read from the image.
	Locked bool
	// LockedID is the ID in the lock if that holds another image of this name, else empty.
	LockedID string
	// Python is the version of Python 3 that the image reports, empty if none.
	Python string
}

// Inspect describes an image; name is as for [images.Resolve]. It runs nothing of the image.
// The errors are those of [Pin].
func Inspect(ctx context.Context, eng Engine, cat images.Catalog, l Lock, name string) (Details, error) {
	r, found, err := images.Find(ctx, eng, cat, name)
	if err != nil {
		return Details{}, err
	}
	d := Details{Digest: r.Digest, SizeBytes: found.SizeBytes, LockedID: l.OtherID(r), Locked: l.Check(r) == nil}
	if e, ok := l.Lookup(r.Name); ok && e.Is(r) {
		d.Entry, d.Entry.ID = e, r.ID
	} else if d.Entry, err = Pin(ctx, eng, cat, name); err != nil {
		return Details{}, err
	}
	d.Python = packages.PythonVersion(found.Config.Env, d.Entry.Packages)
	return d, nil
}
