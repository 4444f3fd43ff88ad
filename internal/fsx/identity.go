package fsx

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Identity stands for every entry of a tree: its name and directory, its device and inode, its
// kind and permissions, its size, and the time of its last change (ctime), which nobody can
// set. Content that was written, a file that was replaced by one of equal size and time, a
// new entry at any depth: each gives another identity. Contents are not read.
//
// It has the same size for any number of entries, because it is kept with a record.
type Identity struct {
	// Entries is the number of entries.
	Entries int `json:"entries"`
	// Tree stands for the tree, Moved for the same entries after those of the first level
	// were moved to another directory: that changes the ctime of those files. Each is the SHA-256 of
	// the SHA-256 of all entries in ascending order, so that the order of the file system does not
	// matter; in Tree the directory itself is one of them.
	Tree  string `json:"tree"`
	Moved string `json:"moved"`
}

// Identify returns the identity of what is below root, without the named directories in it. It is nil
// if there are more entries than most. An error means that not everything could be read, or that ctx
// ended.
func Identify(ctx context.Context, root *os.Root, most int, without ...string) (*Identity, error) {
	top, err := rootID(root)
	if err != nil {
		return nil, err
	}
	i := newIdentifier(top, most)
	err = Visit(root, func() bool { return ctx.Err() == nil && !i.unknown }, func(v Visited) error {
		if v.In == top && slices.Contains(without, v.Name) {
			return fs.SkipDir
		}
		i.add(v.In, v.Name, v.Stat)
		return nil
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return i.identity(), err
}

func rootID(root *os.Root) (ID, error) {
	dir, err := root.Open(".")
	if err != nil {
		return ID{}, err
	}
	defer dir.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &stat); err != nil {
		return ID{}, &os.PathError{Op: "stat", Path: ".", Err: err}
	}
	return idOf(&stat), nil
}

// identifier finds the identity of a tree, entry by entry. It takes 64 bytes of memory for each entry: 64 MB for a
// million, the most that a ./final may have.
type identifier struct {
	top         ID
	most        int
	entries     int
	tree, moved hashes
	// unknown says that there is no identity.
	unknown bool
}

func newIdentifier(top ID, most int) *identifier {
	i := &identifier{top: top, most: most}
	i.tree.add(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, top.device), top.inode))
	return i
}

func (i *identifier) add(in ID, name string, stat *unix.Stat_t) {
	if i.entries++; i.entries > i.most {
		i.unknown = true
		return
	}
	here, moved := in, stat.Ctim
	if in == i.top {
		here = ID{}
	}
	if in == i.top || stat.Nlink > 1 && stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		moved = unix.Timespec{} // another of its names may be on the first level
	}
	i.tree.add(entryText(here, name, stat, stat.Ctim))
	i.moved.add(entryText(here, name, stat, moved))
}

// entryText is an entry as bytes; no two entries have the same.
func entryText(in ID, name string, stat *unix.Stat_t, changed unix.Timespec) []byte {
	text := make([]byte, 0, 11*8+len(name))
	for _, n := range []uint64{
		in.device, in.inode, uint64(stat.Dev), stat.Ino, uint64(stat.Mode), uint64(stat.Uid), uint64(stat.Size), //nolint:unconvert // other systems have other types
		uint64(stat.Mtim.Sec), uint64(stat.Mtim.Nsec), uint64(changed.Sec), uint64(changed.Nsec),
	} {
		text = binary.BigEndian.AppendUint64(text, n)
	}
	return append(text, name...)
}

// identity returns the identity of the entries that were added.
func (i *identifier) identity() *Identity {
	if i.unknown {
		return nil
	}
	return &Identity{Entries: i.entries, Tree: i.tree.sum(), Moved: i.moved.sum()}
}

// hashes are the hashes of entries.
type hashes [][sha256.Size]byte

func (h *hashes) add(text []byte) { *h = append(*h, sha256.Sum256(text)) }

// sum hashes the sorted hashes.
func (h hashes) sum() string {
	slices.SortFunc(h, func(a, b [sha256.Size]byte) int { return bytes.Compare(a[:], b[:]) })
	sum := sha256.New()
	for _, one := range h {
		_, _ = sum.Write(one[:]) // never fails
	}
	return hex.EncodeToString(sum.Sum(nil))
}
