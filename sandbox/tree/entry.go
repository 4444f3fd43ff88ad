package tree

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// Kinds of entries; what is none of them is never copied.
const (
	KindFile    = "file"
	KindDir     = "directory"
	KindSymlink = "symlink"
)

// Entry is one entry of a folder.
type Entry struct {
	// Path is relative to the folder, with slashes; its bytes are those of the name.
	Path string
	Kind string
	Size int64
	// SHA256 is the hash of a file's content, in hexadecimal.
	SHA256 string
	// Mode is the permission bits.
	Mode fs.FileMode
	// Target is where a link leads.
	Target string
	// Ours says that we made the entry for something to be mounted on. The program
	// cannot have made it, and nothing of it is a change.
	Ours bool
}

// Base is what a copy began with, by path.
type Base map[string]Entry

// Sum is the number of entries, and the bytes in their files.
func (b Base) Sum() (entries int, bytes int64) {
	for _, e := range b {
		bytes += e.Size
	}
	return len(b), bytes
}

// Depth is the number of folders above the deepest entry.
func (b Base) Depth() (depth int) {
	for name := range b {
		depth = max(depth, strings.Count(name, "/"))
	}
	return depth
}

// Paths is a set of relative paths, each with everything below it.
type Paths []string

// Has reports whether a path is, or lies below, one of the set.
func (p Paths) Has(name string) bool {
	for _, one := range p {
		if one == "." || name == one || strings.HasPrefix(name, one+"/") {
			return true
		}
	}
	return false
}

// Below reports whether one of the set lies below a path.
func (p Paths) Below(name string) bool {
	for _, one := range p {
		if name == "." || strings.HasPrefix(one, name+"/") {
			return true
		}
	}
	return false
}

// LimitError says that a folder holds more than may be copied.
type LimitError struct {
	// Entries, Bytes and Depth are what was counted until a limit was passed.
	Entries, Depth int
	Bytes          int64
	Limits         Limits
}

func (e *LimitError) Error() string {
	switch {
	case e.Bytes > e.Limits.Bytes:
		return fmt.Sprintf("holds at least %d bytes in %d entries; at most %d bytes may be copied", e.Bytes, e.Entries, e.Limits.Bytes)
	case e.Entries > e.Limits.Entries:
		return fmt.Sprintf("holds more than %d entries, which is the limit for a copy", e.Limits.Entries)
	}
	return fmt.Sprintf("holds folders more than %d levels deep, which is the limit for a copy", e.Limits.Depth)
}

// Limits bound what is copied.
type Limits struct {
	Entries, Depth int
	Bytes          int64
}

func (l Limits) check(entries, depth int, bytes int64) error {
	if entries > l.Entries || depth > l.Depth || bytes > l.Bytes {
		return &LimitError{Entries: entries, Depth: depth, Bytes: bytes, Limits: l}
	}
	return nil
}

func depthOf(name string) int { return strings.Count(path.Clean(name), "/") }
