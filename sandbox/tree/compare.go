package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/collect"
)

// Changes are the differences between a copy and its base. Each list is sorted by path.
type Changes struct {
	// Created holds files and directories, Changed files, Deleted entries of any kind.
	Created, Changed, Deleted []Entry
	// Skipped are entries that are not listed as changes, with the reasons.
	Skipped []result.SkippedOutput
	// Complete says that the limit of changes left none out.
	Complete bool
}

// Now is the state of a copy after its program has ended.
type Now struct {
	// Entries are the entries that were read, by path.
	Entries map[string]Entry
	// Read are the directories whose names were all read, "." included.
	Read map[string]bool
	// Left are the entries that were left out, with the reasons.
	Left map[string]result.SkippedOutput
}

// Compare lists the changes. It is pure. An entry counts as deleted only if its directory
// was read to the end and does not hold its name, or was deleted itself: an entry that
// cannot be read is not gone. At most limit changes are listed.
func Compare(base Base, now Now, limit int) Changes {
	c := comparison{base: base, now: now, limit: limit, fates: map[string]fate{".": present}}
	c.Complete = true
	for _, name := range slices.Sorted(maps.Keys(now.Entries)) {
		c.found(name)
	}
	names := slices.Sorted(maps.Keys(base))
	slices.SortStableFunc(names, func(a, b string) int { return depthOf(a) - depthOf(b) })
	for _, name := range names {
		was := base[name]
		c.fates[name] = c.fateOf(was)
		if c.fates[name] == deleted && !was.Ours && c.count(was) {
			c.Deleted = append(c.Deleted, was)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now.Left)) {
		left := now.Left[name]
		c.skipped.Add(name, left.Kind, left.SizeBytes, left.Reason)
	}
	slices.SortFunc(c.Deleted, byPath)
	c.Skipped = c.skipped.Sorted()
	return c.Changes
}

// fate is what became of an entry of the base.
type fate int

const (
	unknown fate = iota
	present
	deleted
)

type comparison struct {
	Changes
	base    Base
	now     Now
	limit   int
	changes int
	fates   map[string]fate
	skipped collect.SkipList
}

// count counts a change, and reports whether it is within the limit.
func (c *comparison) count(e Entry) bool {
	if c.changes++; c.changes > c.limit {
		c.Complete = false
		c.skipped.Add(e.Path, e.Kind, e.Size, fmt.Sprintf("more than %d changes", c.limit))
		return false
	}
	return true
}

// found decides about an entry that exists now.
func (c *comparison) found(name string) {
	is, was := c.now.Entries[name], c.base[name]
	switch {
	case was.Ours:
	case is.Kind == KindSymlink:
		if was.Kind != KindSymlink || was.Target != is.Target {
			c.skipped.Add(name, KindSymlink, 0, collect.NotRegular)
		}
	case was.Kind != is.Kind:
		if c.count(is) {
			c.Created = append(c.Created, is)
		}
	case is.Kind == KindFile && (is.SHA256 != was.SHA256 || is.Size != was.Size || is.Mode != was.Mode):
		if c.count(is) {
			c.Changed = append(c.Changed, is)
		}
	}
}

// fateOf decides about an entry of the base. An entry that is left out, or a link, in its
// place does not prove that it was deleted.
func (c *comparison) fateOf(was Entry) fate {
	is, there := c.now.Entries[was.Path]
	_, left := c.now.Left[was.Path]
	parent := path.Dir(was.Path)
	switch {
	case left:
		return unknown
	case there && is.Kind == was.Kind:
		return present
	case there && is.Kind == KindSymlink:
		return unknown
	case there:
		return deleted
	case c.fates[parent] != present:
		return c.fates[parent]
	case c.now.Read[parent]:
		return deleted
	}
	return unknown
}

// Keep moves the created and changed files from the directory from to the directory to,
// both below root, and makes the directories of these files. No other process may write
// in from any more. It may be called again after it was cut short.
func Keep(root *os.Root, from, to string, changes Changes) error {
	for _, list := range [][]Entry{changes.Created, changes.Changed} {
		for _, e := range list {
			target := path.Join(to, e.Path)
			err := root.MkdirAll(path.Dir(target), 0o700)
			if err == nil && e.Kind == KindDir {
				err = root.MkdirAll(target, 0o700)
			} else if err == nil {
				err = root.Rename(path.Join(from, e.Path), target)
				if errors.Is(err, fs.ErrNotExist) {
					_, err = root.Lstat(target) // it was moved before
				}
			}
			if err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
	}
	return nil
}
