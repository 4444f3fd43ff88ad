package tree

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/sandbox/collect"

	"github.com/evalbox/evalbox/result"
)

// Changes are what a program did to its copy, each list sorted by path.
type Changes struct {
	// Created and Changed are files, and Created folders; Deleted is of any kind.
	Created, Changed, Deleted []Entry
	Skipped                   []result.SkippedOutput
	// Complete says that nothing is missing from the lists.
	Complete bool
}

// Now is a copy as the program left it.
type Now struct {
	// Entries are all that were found, by path; files have their hashes, unless
	// they were left out.
	Entries map[string]Entry
	// Read are the folders all of whose names were read, "." among them.
	Read map[string]bool
	// Left are entries that were left out, each with the reason.
	Left map[string]result.SkippedOutput
}

// Compare tells what changed. It is pure. Something counts as deleted only if the
// folder that it was in was read to its end and does not hold its name, or was
// deleted itself: what cannot be read is not gone. At most limit changes are told.
func Compare(base Base, now Now, limit int) Changes {
	c := comparison{base: base, now: now, limit: limit, fates: map[string]fate{".": present}}
	c.Complete = true
	for _, name := range sortedKeys(now.Entries) {
		c.found(name)
	}
	names := sortedKeys(base)
	slices.SortStableFunc(names, func(a, b string) int { return depthOf(a) - depthOf(b) })
	for _, name := range names {
		was := base[name]
		c.fates[name] = c.fateOf(was)
		if c.fates[name] == deleted && !was.Ours && c.tell(was) {
			c.Deleted = append(c.Deleted, was)
		}
	}
	for _, name := range sortedKeys(now.Left) {
		left := now.Left[name]
		c.skipped.Add(name, left.Kind, left.SizeBytes, left.Reason)
	}
	slices.SortFunc(c.Deleted, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
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
	told    int
	fates   map[string]fate
	skipped collect.SkipList
}

// tell counts a change, and says whether there is room for it.
func (c *comparison) tell(e Entry) bool {
	if c.told++; c.told > c.limit {
		c.Complete = false
		c.skipped.Add(e.Path, e.Kind, e.Size, fmt.Sprintf("more than %d changes", c.limit))
		return false
	}
	return true
}

// found decides about an entry that is there.
func (c *comparison) found(name string) {
	is, was := c.now.Entries[name], c.base[name]
	switch {
	case was.Ours:
	case is.Kind == KindSymlink:
		if was.Kind != KindSymlink || was.Target != is.Target {
			c.skipped.Add(name, KindSymlink, 0, collect.NotRegular)
		}
	case was.Kind != is.Kind:
		if c.tell(is) {
			c.Created = append(c.Created, is)
		}
	case is.Kind == KindFile && (is.SHA256 != was.SHA256 || is.Size != was.Size || is.Mode != was.Mode):
		if c.tell(is) {
			c.Changed = append(c.Changed, is)
		}
	}
}

// fateOf decides about an entry of the base. What stands in its place decides as
// well: something that is left out replaces nothing.
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
