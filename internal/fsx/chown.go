//go:build unix

package fsx

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// ChownTree gives root, and everything below it that belongs to the user from, to
// uid and gid; from -1 means everything. It follows nothing, and a file of
// somebody else's that has a second name in the tree keeps its owner.
func ChownTree(root *os.Root, from, uid, gid int) error {
	err := Visit(root, func() bool { return true }, func(dir int, name string, stat *unix.Stat_t) error {
		if from >= 0 && int(stat.Uid) != from {
			return nil
		}
		return unix.Fchownat(dir, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW)
	})
	return errors.Join(err, root.Lchown(".", uid, gid))
}
