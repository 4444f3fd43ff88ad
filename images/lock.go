package images

import (
	"maps"
	"slices"
	"time"
)

// LockSchema is the version of the lock format that this package reads and
// writes.
const LockSchema = "evalbox/images.lock/v1"

// A Lock records what names of images meant when they were locked. It comes from
// [LoadLock] or [ReadLock], is not changed afterwards and is safe for concurrent
// use. The zero Lock holds no image: nothing is locked with it.
type Lock struct {
	// Source is where the lock was read, for messages.
	Source string

	entries map[string]LockEntry
}

// A LockEntry is what one name means.
type LockEntry struct {
	// Name is a name of the catalog, or else a reference of the engine.
	Name string `yaml:"-" json:"name"`
	// Reference is what the engine calls the image. For a name of the catalog
	// it holds the recipe, see [Entry.Tag].
	Reference string `yaml:"reference" json:"reference"`
	// ID is the ID in the engine that locked it ("sha256:…").
	ID string `yaml:"id" json:"id"`
	// Content is the hash over the layers and the configuration that matters
	// to a run ("sha256:…"): it is the same in every engine, the ID is not.
	Content string `yaml:"content" json:"content"`
	// Platform is os/architecture[/variant].
	Platform string `yaml:"platform" json:"platform"`
	// System is the distribution as the image tells it, such as "debian 12".
	System string `yaml:"system" json:"system"`
	// Base describes what the image stands on, BaseDigest is the digest of
	// that in its registry, or "none" where no registry is involved.
	Base       string `yaml:"base" json:"base"`
	BaseDigest string `yaml:"base_digest" json:"base_digest"`
	// Created is the time of the image.
	Created time.Time `yaml:"created" json:"created"`
	// Builder is what made it.
	Builder Builder `yaml:"builder" json:"builder"`
	// Packages are what is installed in it.
	Packages Packages `yaml:"-" json:"-"`
}

// Builder is what made an image.
type Builder struct {
	// Evalbox is the version of our code that makes images, 0 for an image
	// that others made.
	Evalbox int `yaml:"evalbox" json:"evalbox"`
	// Engine is the version of the engine: of the one that built the image if
	// it tells, else of the one that locked it.
	Engine string `yaml:"engine" json:"engine"`
}

// noDigest is the base digest of an image without a registry.
const noDigest = "none"

// Names returns the names of all locked images, sorted.
func (l Lock) Names() []string { return slices.Sorted(maps.Keys(l.entries)) }

// Lookup returns the entry of this name.
func (l Lock) Lookup(name string) (LockEntry, bool) {
	e, ok := l.entries[name]
	return e, ok
}

// With returns a lock that also holds these entries, in the place of former ones
// of their names.
func (l Lock) With(entries ...LockEntry) Lock {
	all := map[string]LockEntry{}
	maps.Copy(all, l.entries)
	for _, e := range entries {
		all[e.Name] = e
	}
	return Lock{Source: l.Source, entries: all}
}
