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

// Inventory is what a folder on the engine's machine holds, by path: an archive
// does not tell of sockets, nor of what comes after the point at which it ended.
type Inventory struct {
	kinds map[string]string
	// paths are the keys of kinds, sorted.
	paths []string
	// Truncated says that there is more than was listed.
	Truncated bool
}

// kindLetters are the types of find(1), in the order of the list.
var kindLetters = []struct{ letter, kind string }{
	{"f", "file"}, {"d", "directory"}, {"l", "symlink"}, {"p", "fifo"}, {"s", "socket"}, {"b", "device"}, {"c", "device"},
}

const (
	// maxInventory bounds the bytes of all names that are kept.
	maxInventory = 64 << 20
	// maxListed bounds one name: find(1) goes deeper than a path can name.
	maxListed = 8 * maxPath
)

// ReadInventory reads the answer of the watcher to "list": for each type the
// names of find -print0, and an empty name. Names are untrusted bytes. At most
// limit of them are kept, none that lies in a folder that is too deep to be
// listed, and the answer is read to its end all the same.
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

// readName reads one name and its NUL, and counts the levels of its path. Of a
// name that is too long nothing is kept.
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

// Left lists what of the inventory has not come yet and can be fetched: files
// and folders whose own folder is here. What is neither is noted as left out.
func (u *Unpacker) Left(list *Inventory) []string {
	var left []string
	for _, full := range list.paths {
		if u.seen[full] != 0 || u.seen[path.Dir(full)] != kindFolder || u.entries > u.limits.Files {
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

// Missing notes that an entry of the inventory could not be had. It does nothing
// when it has come.
func (u *Unpacker) Missing(list *Inventory, full, reason string) {
	if u.seen[full] == 0 {
		u.skip(full, list.kinds[full], 0, reason)
	}
}
