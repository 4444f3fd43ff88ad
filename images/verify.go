package images

import (
	"context"
	"fmt"
)

// A Verification says whether an image still is what was locked.
type Verification struct {
	Name string `json:"name"`
	// Same says that the image is the locked one and holds the locked packages.
	Same bool `json:"same"`
	// LockedID is the ID in the lock, ID what the engine has.
	LockedID string `json:"locked_id"`
	ID       string `json:"id"`
	// SameContent says that layers and configuration are the locked ones,
	// whatever ID this engine gives them.
	SameContent bool `json:"same_content"`
	// Packages is their number in the engine's image, Diff how they differ
	// from the locked ones.
	Packages int         `json:"packages"`
	Diff     PackageDiff `json:"diff"`
	// Error says why it could not be compared; the other fields then say nothing.
	Error string `json:"error,omitempty"`
}

// Verify compares the image that a locked name means now with its entry: ID,
// content and, read again from the image, the packages. Nothing of the image is
// run. An error means that it could not be compared.
func Verify(ctx context.Context, eng Reader, cat Catalog, lock Lock, name string) (Verification, error) {
	r, err := Resolve(ctx, eng, cat, name)
	if err != nil {
		return Verification{}, err
	}
	e, ok := lock.Lookup(r.Name)
	if !ok {
		return Verification{}, &NotLockedError{Name: r.Name, Source: lock.Source}
	}
	in, err := readImage(ctx, eng, r.ID)
	if err != nil {
		return Verification{}, fmt.Errorf("image %s: listing its packages: %w", r.Name, err)
	}
	v := Verification{
		Name: r.Name, LockedID: e.ID, ID: r.ID, SameContent: e.Content == r.Content,
		Packages: len(in.Packages), Diff: DiffPackages(e.Packages, in.Packages),
	}
	v.Same = e.Is(r) && v.Diff.Empty()
	return v, nil
}

// A NotLockedError names an image that a lock has no entry for.
type NotLockedError struct{ Name, Source string }

func (e *NotLockedError) Error() string {
	return fmt.Sprintf("image %s: the lock %s has no entry of this name", e.Name, e.Source)
}

// Hint says what to do about it.
func (e *NotLockedError) Hint() string { return "lock it with: sandbox image lock " + e.Name }
