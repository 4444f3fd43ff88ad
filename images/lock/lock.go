// Package lock records the images of names, so that a run can refuse another image. A [Lock]
// is a file; [Put] and [Settle] write it, [Lock.Check] compares, [Verify] reads the image
// again. Nothing of an image is run.
package lock

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/packages"
)

// SchemaV1 is the version of the lock format that this package reads and writes.
const SchemaV1 = "evalbox/images.lock/v1"

// A Lock records the image of each name at the time of locking. It comes from [Parse] or
// [Read], is not changed afterwards and is safe for concurrent use. The zero Lock is empty.
type Lock struct {
	// Source is where the lock was read, for messages.
	Source string

	entries map[string]Entry
}

// An Entry is the image of one name.
type Entry struct {
	// Name is a name of the catalog, or else a reference of the engine.
	Name string `yaml:"-" json:"name"`
	// Reference is the name in the engine. For a name of the catalog it holds the recipe,
	// see [images.Entry.Tag].
	Reference string `yaml:"reference" json:"reference"`
	// ID is the ID in the engine that locked it ("sha256:…").
	ID string `yaml:"id" json:"id"`
	// Content is the hash over the layers and the configuration that matters to a run
	// ("sha256:…"): it is the same in every engine, the ID is not.
	Content string `yaml:"content" json:"content"`
	// Platform is os/architecture[/variant].
	Platform string `yaml:"platform" json:"platform"`
	// System is the distribution as the image reports it, such as "debian 12".
	System string `yaml:"system" json:"system"`
	// Base describes the base of the image. BaseDigest is its digest in its registry, or
	// "none" without a registry.
	Base       string `yaml:"base" json:"base"`
	BaseDigest string `yaml:"base_digest" json:"base_digest"`
	// Created is the time of the image.
	Created time.Time `yaml:"created" json:"created"`
	// Builder made it.
	Builder Builder `yaml:"builder" json:"builder"`
	// Packages are the installed packages.
	Packages packages.List `yaml:"-" json:"-"`
}

// Builder identifies the code and the engine that made an image.
type Builder struct {
	// Evalbox is [images.BuilderVersion], or 0 for an image that evalbox did not make.
	Evalbox int `yaml:"evalbox" json:"evalbox"`
	// Engine is the version of the engine that built the image, or if that is unknown, of
	// the engine that locked it.
	Engine string `yaml:"engine" json:"engine"`
}

// Names returns the names of all locked images, sorted.
func (l Lock) Names() []string { return slices.Sorted(maps.Keys(l.entries)) }

// Lookup returns the entry of this name.
func (l Lock) Lookup(name string) (Entry, bool) {
	e, ok := l.entries[name]
	return e, ok
}

// Require is Lookup with an error for a name without an entry.
func (l Lock) Require(name string) (Entry, error) {
	e, ok := l.entries[name]
	if !ok {
		err := fmt.Errorf("image %s: the lock %s has no entry of this name", name, l.Source)
		return Entry{}, images.WithHint(err, "lock it with: sandbox image lock "+name)
	}
	return e, nil
}

// former returns the entry of a name, or nil.
func (l Lock) former(name string) *Entry {
	if e, ok := l.entries[name]; ok {
		return &e
	}
	return nil
}

// With returns a lock that also holds these entries. They replace former ones of the same
// names.
func (l Lock) With(entries ...Entry) Lock {
	all := map[string]Entry{}
	maps.Copy(all, l.entries)
	for _, e := range entries {
		all[e.Name] = e
	}
	return Lock{Source: l.Source, entries: all}
}

// Without returns a lock that lacks the entry of this name.
func (l Lock) Without(name string) Lock {
	all := maps.Clone(l.entries)
	delete(all, name)
	return Lock{Source: l.Source, entries: all}
}

// ErrUnlocked means that an image is not the one that a lock holds. The error is an
// [*UnlockedError].
var ErrUnlocked = errors.New("image is not the locked one")

// An UnlockedError names an image that a run may not use, and the locked one.
type UnlockedError struct {
	// Name is the requested name, ID the ID of its image in the engine.
	Name, ID string
	// LockedID is the ID in the lock, empty when it has no entry.
	LockedID string
	// Source is the lock.
	Source string
	// CatalogName says that Name is a name of the catalog.
	CatalogName bool
	// Diff, in errors of [Settle] only, says how the packages of the engine's image differ
	// from the locked ones.
	Diff *packages.Diff
	// Remote says that the image is one of a cluster, which this machine cannot lock.
	Remote bool
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

// Hint says how to accept the image.
func (e *UnlockedError) Hint() string {
	if e.Remote {
		return "only images of a Docker engine can be locked; if you trust this digest, run it with --allow-unlocked"
	}
	if e.Diff != nil {
		return "until then runs refuse it; to accept it: sandbox image lock " + e.Name
	}
	see := ""
	if e.LockedID != "" {
		see = "see what differs with: sandbox image verify " + e.Name + "; "
	}
	return see + "accept it with: sandbox image lock " + e.Name + "; or run it once with --allow-unlocked"
}

// Check refuses an image that [images.Resolve] found unless it is the locked one: the error
// is an [*UnlockedError]. A name of the catalog must be the image of its
// entry; a reference or an ID may be that of any entry.
//
// An image is the locked one when its content is, or its ID, see [Entry].
func (l Lock) Check(r images.Resolved) error {
	own := l.entries[r.Name]
	if own.Is(r) {
		return nil
	}
	if !r.CatalogName {
		for _, e := range l.entries {
			if e.Is(r) {
				return nil
			}
		}
	}
	return &UnlockedError{Name: r.Name, ID: r.ID, LockedID: own.ID, Source: l.Source, CatalogName: r.CatalogName}
}

// OtherID returns the locked ID of a name if the engine's image is another one; empty if it is
// the locked one, or if the lock has no entry of the name.
func (l Lock) OtherID(r images.Resolved) string {
	if refused, ok := errors.AsType[*UnlockedError](l.Check(r)); ok && r.ID != "" {
		return refused.LockedID
	}
	return ""
}

// Is reports whether an image is that of the entry: it has the same content, or the same ID.
// An ID that stands for several platforms counts only for the locked one.
func (e Entry) Is(r images.Resolved) bool {
	if e.Content != "" && e.Content == r.Content {
		return true
	}
	return e.ID != "" && strings.EqualFold(e.ID, r.ID) && images.PlainPlatform(e.Platform) == images.PlainPlatform(r.Platform)
}
