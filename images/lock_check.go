package images

import (
	"errors"
	"fmt"
	"strings"
)

// ErrUnlocked means that an image is not the one that a lock holds. The error is
// an [*UnlockedError].
var ErrUnlocked = errors.New("image is not the locked one")

// An UnlockedError names an image that a run may not use, and what the lock
// holds instead.
type UnlockedError struct {
	// Name is what was asked for, ID what the engine has.
	Name, ID string
	// LockedID is the ID in the lock, empty when it has no entry.
	LockedID string
	// Source is the lock.
	Source string
	// CatalogName says that Name is a name of the catalog.
	CatalogName bool
}

func (e *UnlockedError) Error() string {
	switch {
	case e.LockedID != "":
		return fmt.Sprintf("image %s is not the locked one: the engine has %s, the lock %s holds %s", e.Name, e.ID, e.Source, e.LockedID)
	case e.CatalogName:
		return fmt.Sprintf("image %s (%s) is not locked: the lock %s has no entry of this name", e.Name, e.ID, e.Source)
	}
	return fmt.Sprintf("image %q (%s) is not locked: no entry of the lock %s is this image", e.Name, e.ID, e.Source)
}

// Is makes errors.Is(err, ErrUnlocked) true.
func (e *UnlockedError) Is(target error) bool { return target == ErrUnlocked }

// Hint says what to do about it.
func (e *UnlockedError) Hint() string {
	see := ""
	if e.LockedID != "" {
		see = "see what differs with: sandbox image verify " + e.Name + "; "
	}
	return see + "accept it with: sandbox image lock " + e.Name + "; or run it once with --allow-unlocked"
}

// Check says whether a run may use an image that [Resolve] found: nil when it is
// the locked one, else an [*UnlockedError]. A name of the catalog must be the
// image of its entry; a reference or an ID may be that of any entry.
//
// An image is the locked one when its content is, or its ID, see [LockEntry].
func (l Lock) Check(r Resolved) error {
	refused := &UnlockedError{Name: r.Name, ID: r.ID, Source: l.Source, CatalogName: r.CatalogName}
	if r.CatalogName {
		e, ok := l.entries[r.Name]
		if ok && e.Is(r) {
			return nil
		}
		refused.LockedID = e.ID
		return refused
	}
	for _, e := range l.entries {
		if e.Is(r) {
			return nil
		}
	}
	refused.LockedID = l.entries[r.Name].ID
	return refused
}

// otherID is the ID in the lock of an image that is not the locked one of its name;
// empty when it is, or when the lock has no entry of the name.
func (l Lock) otherID(r Resolved) string {
	if refused, ok := errors.AsType[*UnlockedError](l.Check(r)); ok {
		return refused.LockedID
	}
	return ""
}

// OtherID is the ID in the lock if the engine's image of a catalog is there and
// another one than the lock holds, else empty.
func (l Lock) OtherID(s Status) string {
	if !s.Present {
		return ""
	}
	return l.otherID(s.Resolved())
}

// Is says that an image is the one of the entry: it has the same content, or else
// the same ID. An ID that stands for several platforms counts for the locked one
// only.
func (e LockEntry) Is(r Resolved) bool {
	if e.Content != "" && e.Content == r.Content {
		return true
	}
	return e.ID != "" && strings.EqualFold(e.ID, r.ID) && plainPlatform(e.Platform) == plainPlatform(r.Platform)
}
