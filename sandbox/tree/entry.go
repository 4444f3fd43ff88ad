package tree

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// Kinds of entries. Other kinds are never copied.
const (
	KindFile    = "file"
	KindDir     = "directory"
	KindSymlink = "symlink"
)

// Entry is one file, directory or link of a tree.
type Entry struct {
	// Path is relative to the root of the tree, with slashes. It may hold any bytes.
	Path string
	Kind string
	Size int64
	// SHA256 is the hash of a file's content, in hexadecimal.
	SHA256 string
	// Mode has the permission bits only.
	Mode fs.FileMode
	// Target is the target of a link.
	Target string
	// Ours says that the entry is not in the source: the copy has it as a mount point. It
	// never counts as a change.
	Ours bool
}

// Base holds the entries that a copy began with, by path.
type Base map[string]Entry

// Sum returns the number of entries, and the bytes in their files.
func (b Base) Sum() (entries int, bytes int64) {
	for _, e := range b {
		bytes += e.Size
	}
	return len(b), bytes
}

// Depth returns the number of directories above the deepest entry.
func (b Base) Depth() (depth int) {
	for name := range b {
		depth = max(depth, strings.Count(name, "/"))
	}
	return depth
}

// line is the form of an entry in a file: one JSON object per line, so that a base of any
// size is written and read in one pass. Paths may hold any bytes, which JSON has in base64.
type line struct {
	Path   []byte      `json:"path"`
	Kind   string      `json:"kind"`
	Size   int64       `json:"size_bytes"`
	SHA256 string      `json:"sha256,omitempty"`
	Mode   fs.FileMode `json:"mode"`
	Target []byte      `json:"target,omitempty"`
	Ours   bool        `json:"ours,omitempty"`
}

// Write writes the base, sorted by path. [Apply] reads it.
func (b Base) Write(to io.Writer) error {
	out := bufio.NewWriter(to)
	enc := json.NewEncoder(out)
	for _, name := range slices.Sorted(maps.Keys(b)) {
		e := b[name]
		if err := enc.Encode(line{[]byte(name), e.Kind, e.Size, e.SHA256, e.Mode, []byte(e.Target), e.Ours}); err != nil {
			return err
		}
	}
	return out.Flush()
}

// ReadBase reads the file of a record that holds the initial state of a copy.
func ReadBase(path string) (Base, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	base, err := readBase(file)
	return base, errors.Join(err, file.Close())
}

// readBase reads the output of [Base.Write].
func readBase(from io.Reader) (Base, error) {
	dec, base := json.NewDecoder(bufio.NewReader(from)), Base{}
	for {
		var l line
		err := dec.Decode(&l)
		if errors.Is(err, io.EOF) {
			return base, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading what a copy began with: %w", err)
		}
		name := string(l.Path)
		base[name] = Entry{name, l.Kind, l.Size, l.SHA256, l.Mode, string(l.Target), l.Ours}
	}
}

// Paths is a set of relative paths. Each includes everything below it.
type Paths []string

// Has reports whether a path is one of the set, or lies below one.
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

// LimitError says that a directory holds more than may be copied.
type LimitError struct{ rule string }

func (e *LimitError) Error() string { return e.rule }

// Limits bound a copy: its entries, the directories in one another, and the bytes of its
// files.
type Limits struct {
	Entries, Depth int
	Bytes          int64
}

// check returns a [*LimitError] if the counts exceed the limits.
func (l Limits) check(entries, depth int, bytes int64) error {
	switch {
	case bytes > l.Bytes:
		return &LimitError{fmt.Sprintf("holds at least %d bytes in %d entries; at most %d bytes may be copied", bytes, entries, l.Bytes)}
	case entries > l.Entries:
		return &LimitError{fmt.Sprintf("holds more than %d entries, which is the limit for a copy", l.Entries)}
	case depth > l.Depth:
		return &LimitError{fmt.Sprintf("holds directories more than %d levels deep, which is the limit for a copy", l.Depth)}
	}
	return nil
}

func depthOf(name string) int { return strings.Count(path.Clean(name), "/") }
