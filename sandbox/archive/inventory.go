package archive

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/sandbox/collect"
)

// Inventory lists the entries of a directory on the engine's machine. An archive holds no
// sockets, and no entries after the point at which it broke off.
type Inventory struct {
	// kinds are the kinds of entries, by path.
	kinds map[string]string
	// paths are the keys of kinds, sorted.
	paths []string
	// Files is the number of all entries that are not directories, also of those that the list does
	// not hold.
	Files int
	// Truncated says that there are more entries than the list holds.
	Truncated bool
}

// kindLetters are the types of find(1), in the order of [Script].
var kindLetters = []struct{ letter, kind string }{
	{"f", "file"}, {"d", "directory"}, {"l", "symlink"}, {"p", "fifo"}, {"s", "socket"}, {"b", "device"}, {"c", "device"},
}

const (
	// maxInventory bounds the bytes of all kept names.
	maxInventory = 64 << 20
	// maxListed bounds one name: find(1) descends to paths that no system call takes.
	maxListed = 8 * maxPath
)

// ReadInventory reads the answer of the disk monitor to "list": for each type the names of
// find -print0, and an empty name. Names are untrusted bytes. At most limit names are kept,
// and none in a directory that is deeper than depth. The answer is read to its end anyway.
func ReadInventory(from *bufio.Reader, limit, depth int) (*Inventory, error) {
	list := &Inventory{kinds: map[string]string{}}
	size := 0
	for _, k := range kindLetters {
		for {
			name, levels, long, err := readName(from)
			if err != nil {
				return nil, fmt.Errorf("reading the list of outputs: %w", err)
			}
			if name == "" && !long {
				break
			}
			if k.kind != "directory" {
				list.Files++
			}
			full := path.Clean(name)
			switch {
			case full == ".", levels > depth+1:
			case long, path.IsAbs(full), full == "..", strings.HasPrefix(full, "../"):
				list.Truncated = true
			case len(list.paths) >= limit || size+len(full) > maxInventory:
				list.Truncated = true
			case list.kinds[full] == "":
				size += len(full)
				list.kinds[full] = k.kind
				list.paths = append(list.paths, full)
			}
		}
	}
	slices.Sort(list.paths)
	return list, nil
}

// readName reads one name and its NUL, and counts the levels of its path. A name that is
// too long is not kept.
func readName(from *bufio.Reader) (name string, levels int, long bool, err error) {
	var text []byte
	for {
		part, err := from.ReadSlice(0)
		levels += bytes.Count(part, []byte("/"))
		if !long {
			text = append(text, part...)
		}
		if len(text) > maxListed+1 {
			long, text = true, nil
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return "", 0, false, err
		}
		if long {
			return "", levels, true, nil
		}
		return string(text[:len(text)-1]), levels, false, nil
	}
}

// Left returns the paths of the inventory that have not been unpacked yet and can be
// fetched: files and directories whose own directory is here. It notes entries of other
// kinds as left out.
func (u *Unpacker) Left(list *Inventory) []string {
	var left []string
	for _, full := range list.paths {
		if u.seen[full] != 0 || u.seen[path.Dir(full)] != kindDir || u.entries > u.limits.Files {
			continue
		}
		switch kind := list.kinds[full]; kind {
		case "file", "directory":
			left = append(left, full)
		default:
			if u.entries++; u.entries > u.limits.Files {
				u.leave(full, kind, 0, u.limits.TooMany())
				continue
			}
			u.skip(full, kind, 0, collect.NotRegular)
		}
	}
	return left
}

// Missing notes that an entry of the inventory could not be fetched. It does nothing if the
// entry has been unpacked.
func (u *Unpacker) Missing(list *Inventory, full, reason string) {
	if u.seen[full] == 0 {
		u.skip(full, list.kinds[full], 0, reason)
	}
}
