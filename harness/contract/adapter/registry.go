package adapter

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/evalbox/evalbox/harness/contract/adapter/web"
	"github.com/evalbox/evalbox/harness/contract/registry"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/strict"
)

// Registry is a set of adapters. It keeps little of each, and reads the whole document when it is
// used (PD-02). Its methods may be called concurrently.
type Registry struct {
	entries []entry
	// LookupEnv looks up the secrets of web APIs; see [web.Request].
	LookupEnv func(name string) (string, bool)

	cache *Cache
	web   *web.Client

	mu   sync.Mutex
	full map[string]*Adapter // by ID
}

// entry is what a registry knows of an adapter without its document.
type entry struct {
	ID      string `json:"adapter_id"`
	Name    string `json:"name"`
	ToolID  string `json:"tool_id"`
	Type    Type   `json:"type"`
	Version string `json:"version"`
	Status  Status `json:"status"`
	// Digest is the SHA-256 of the document.
	Digest string `json:"digest"`

	source string
	read   func() ([]byte, error)
}

// Open returns the adapters of a directory, then the shipped ones; a shipped one whose ID the
// directory has is left out. The order within each is that of the file names (CI-05). An empty dir
// is none. shipped and cache may be nil. The error joins the problems of all documents.
func Open(dir string, shipped fs.FS, cache *Cache) (*Registry, error) {
	r := &Registry{full: map[string]*Adapter{}, cache: cache, web: &web.Client{}}
	var errs []error
	if dir != "" {
		dir, err := filepath.Abs(dir) // the cache and the golden outputs are of this place
		if err != nil {
			return nil, err
		}
		names, err := documents(dir)
		errs = append(errs, err)
		for _, name := range names {
			errs = append(errs, r.add(filepath.Join(dir, name), func() ([]byte, error) { return fsx.Read(filepath.Join(dir, name), MaxDocument) }, cache))
		}
	}
	own := len(r.entries)
	for _, name := range shippedNames(shipped) {
		read := func() ([]byte, error) { return fs.ReadFile(shipped, name) }
		text, err := read()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		a, err := Parse(text, path.Join("adapters", name))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !slices.ContainsFunc(r.entries[:own], func(e entry) bool { return e.ID == a.ID }) {
			r.entries = append(r.entries, a.entry(a.source, read))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if cache != nil {
		cache.write()
	}
	return r, nil
}

// shippedNames are the documents of a file system; nil has none.
func shippedNames(shipped fs.FS) []string {
	if shipped == nil {
		return nil
	}
	names, _ := fs.Glob(shipped, "*.yaml") // the pattern is a valid one
	return names
}

// documents are the names of the documents of a directory.
func documents(dir string) (names []string, err error) {
	found, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("adapters %s: %w", dir, fsx.Cause(err))
	}
	for _, each := range found {
		if ext := filepath.Ext(each.Name()); each.Type().IsRegular() && (ext == ".yaml" || ext == ".yml" || ext == ".json") {
			names = append(names, each.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// add adds the adapter of a file, from the cache if it has not changed.
func (r *Registry) add(file string, read func() ([]byte, error), cache *Cache) error {
	e, known := cache.get(file)
	if !known {
		stamp, _ := os.Lstat(file) // before it is read: a later change is one
		text, err := read()
		if err != nil {
			return fmt.Errorf("%s: %w", file, fsx.Cause(err))
		}
		a, err := Parse(text, file)
		if err != nil {
			return err
		}
		e = a.entry(file, nil)
		cache.put(file, stamp, e)
	}
	e.source, e.read = file, read
	for _, other := range r.entries {
		if other.ID == e.ID {
			return fmt.Errorf("%s: adapter_id %s is that of %s as well", file, strict.Quoted(e.ID), other.source)
		}
	}
	r.entries = append(r.entries, e)
	return nil
}

func (a *Adapter) entry(source string, read func() ([]byte, error)) entry {
	return entry{a.ID, a.Name, a.ToolID, a.Type, a.Version, a.Metadata.Status, a.digest, source, read}
}

// List returns all adapters at level L0, in the order in which they are chosen. tool, if it is not
// empty, restricts the list.
func (r *Registry) List(tool string) []Disclosure {
	all := []Disclosure{}
	for _, e := range r.entries {
		if tool == "" || e.ToolID == tool {
			all = append(all, Disclosure{ID: e.ID, Name: e.Name, ToolID: e.ToolID, Type: e.Type})
		}
	}
	return all
}

// Resolve returns the adapter with an ID, whatever its status; without an ID the first active one
// for a tool (CI-05). It returns nil if a tool has none.
func (r *Registry) Resolve(id, tool string) (*Adapter, error) {
	for _, e := range r.entries {
		if id == "" && e.ToolID == tool && e.Status == Active || id != "" && e.ID == id {
			return r.load(e)
		}
	}
	if id != "" {
		return nil, &UnknownError{id, r.ids()}
	}
	return nil, nil //nolint:nilnil // the tool has none
}

// Source is the file of an adapter; empty for a shipped one.
func (r *Registry) Source(id string) string {
	for _, e := range r.entries {
		if e.ID == id && filepath.IsAbs(e.source) {
			return e.source
		}
	}
	return ""
}

func (r *Registry) ids() (ids []string) {
	for _, e := range r.entries {
		ids = append(ids, e.ID)
	}
	return ids
}

// load reads a document, and checks its chain of fallbacks.
func (r *Registry) load(e entry) (*Adapter, error) {
	a, err := r.document(e)
	if err != nil {
		return nil, err
	}
	seen := []string{a.ID}
	for at := a; at.Errors.Fallback != nil; {
		next := at.Errors.Fallback.AdapterID
		refuse := func(format string, args ...any) error {
			return fmt.Errorf("%s: errors.fallback.adapter_id %s: %s", at.source, strict.Quoted(next), fmt.Sprintf(format, args...))
		}
		i := slices.IndexFunc(r.entries, func(e entry) bool { return e.ID == next })
		switch {
		case i < 0:
			return nil, refuse("is not an adapter")
		case slices.Contains(seen, next):
			return nil, refuse("closes a circle: %s", strings.Join(append(seen, next), " -> "))
		case r.entries[i].ToolID != a.ToolID:
			return nil, refuse("is for tool %s, and this one is for %s", r.entries[i].ToolID, a.ToolID)
		}
		seen = append(seen, next)
		if at, err = r.document(r.entries[i]); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (r *Registry) document(e entry) (*Adapter, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a, ok := r.full[e.ID]; ok {
		return a, nil
	}
	text, err := e.read()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.source, fsx.Cause(err))
	}
	a, err := Parse(text, e.source)
	if err != nil {
		return nil, err
	}
	if a.digest != e.Digest {
		return nil, fmt.Errorf("%s: was changed meanwhile", e.source)
	}
	r.full[e.ID] = a
	return a, nil
}

// CheckAll reads every document, and checks all chains of fallbacks.
func (r *Registry) CheckAll() error {
	var errs []error
	for _, e := range r.entries {
		_, err := r.load(e)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// An UnknownError is an ID that no adapter has.
type UnknownError struct {
	ID    string
	Known []string
}

func (e *UnknownError) Error() string { return "No adapter found " + strict.Quoted(e.ID) }

// matches reports whether an adapter is for the version of a tool: each part of the tool's version
// that is said must be the same (CK-01). So "14" has 14.1.0.
func (a *Adapter) matches(tool registry.Tool) bool {
	version := a.ToolVersion
	if version == "" {
		version = a.Version
	}
	of := func(v string) []string {
		return strings.FieldsFunc(strings.TrimPrefix(v, "v"), func(r rune) bool { return r == '.' || r == '-' || r == '+' })
	}
	have, want := of(version), of(tool.Version)
	for i := range min(len(have), len(want)) {
		if have[i] != want[i] {
			return false
		}
	}
	return true
}
