package fsx

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"os"

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
	// were moved to another directory: that changes the ctime of those files.
	Tree  string `json:"tree"`
	Moved string `json:"moved"`
}

// Identify returns the identity of what is below root. It is nil if there are more entries than
// max. An error means that not everything could be read, or that ctx ended.
func Identify(ctx context.Context, root *os.Root, most int) (*Identity, error) {
	top, err := rootID(root)
	if err != nil {
		return nil, err
	}
	i := newIdentifier(top, most)
	err = Visit(root, func() bool { return ctx.Err() == nil && !i.unknown }, func(v Visited) error {
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

// identifier adds up the identity of a tree, entry by entry.
type identifier struct {
	top     ID
	most    int
	entries int
	// The sums do not depend on the order of the entries, which a file system may change.
	tree, moved hashSum
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
	return &Identity{Entries: i.entries, Tree: i.tree.String(), Moved: i.moved.String()}
}

// hashSum adds hashes as numbers of 256 bits. Somebody who wants two trees with one sum would have
// to choose the ctimes of their entries.
type hashSum [4]uint64

func (s *hashSum) add(text []byte) {
	hash := sha256.Sum256(text)
	var carry uint64
	for n := range s {
		at := len(s) - 1 - n // the last ones are the least
		s[at], carry = bits.Add64(s[at], binary.BigEndian.Uint64(hash[8*at:]), carry)
	}
}

func (s *hashSum) String() string {
	var text []byte
	for _, n := range s {
		text = binary.BigEndian.AppendUint64(text, n)
	}
	return hex.EncodeToString(text)
}
