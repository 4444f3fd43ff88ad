package images

import (
	"context"
	"errors"
	"io/fs"
)

// A LockChange is what became of one entry of a lock.
type LockChange struct {
	// Before is the former entry, nil when there was none.
	Before *LockEntry
	// After is the entry as it is now.
	After LockEntry
	// Changed says that the file was changed.
	Changed bool
}

// Diff compares the packages of the two entries; empty when there was none.
func (c LockChange) Diff() PackageDiff {
	if c.Before == nil {
		return DiffPackages(nil, nil)
	}
	return DiffPackages(c.Before.Packages, c.After.Packages)
}

// A DiffersError means that the lock holds another image than the engine has.
// It is an [ErrUnlocked].
type DiffersError struct {
	UnlockedError

	// Diff says how the packages of the engine's image differ from the locked
	// ones.
	Diff PackageDiff
}

// Hint says what to do about it.
func (e *DiffersError) Hint() string {
	return "until then runs refuse it; to accept it: sandbox image lock " + e.Name
}

// LockImage writes what a name means now into the lock in a file, whatever it
// meant before.
func LockImage(ctx context.Context, eng Reader, cat Catalog, path, name string) (LockChange, error) {
	e, err := Pin(ctx, eng, cat, name)
	if err != nil {
		return LockChange{}, err
	}
	change := LockChange{After: e}
	err = UpdateLock(ctx, path, func(l Lock) (Lock, error) {
		change.Before, change.Changed = former(l, e.Name), true
		return l.With(e), nil
	})
	return change, err
}

// SettleLock makes the lock in a file and an image that was just made or found
// agree where that gives nothing up: an image without an entry is locked, and so
// is one whose recipe in the catalog is another than that of its entry, since
// that is another image on purpose. An entry of the same recipe stands: another
// image is a [*DiffersError], and nothing is changed.
func SettleLock(ctx context.Context, eng Reader, cat Catalog, path, name string) (LockChange, error) {
	r, err := Resolve(ctx, eng, cat, name)
	if err != nil {
		return LockChange{}, err
	}
	l, err := ReadLock(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return LockChange{}, err
	}
	if e, ok := l.Lookup(r.Name); ok && e.Is(r) && e.Reference == r.Reference {
		return LockChange{Before: &e, After: e}, nil
	}
	pinned, err := Pin(ctx, eng, cat, name)
	if err != nil {
		return LockChange{}, err
	}
	change := LockChange{After: pinned}
	err = UpdateLock(ctx, path, func(l Lock) (Lock, error) {
		change.Before = former(l, r.Name)
		if b := change.Before; b != nil && b.Reference == pinned.Reference {
			if b.Is(r) { // somebody else was faster
				change.After = *b
				return l, nil
			}
			refused := UnlockedError{Name: r.Name, ID: r.ID, LockedID: b.ID, Source: path, CatalogName: r.CatalogName}
			return l, &DiffersError{refused, DiffPackages(b.Packages, pinned.Packages)}
		}
		change.Changed = true
		return l.With(pinned), nil
	})
	if err != nil {
		return LockChange{}, err
	}
	return change, nil
}

// former is the entry of a name, nil for none.
func former(l Lock, name string) *LockEntry {
	if e, ok := l.Lookup(name); ok {
		return &e
	}
	return nil
}
