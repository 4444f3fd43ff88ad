//go:build unix

package sandbox

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/sandbox/internal/descend"
)

// chownTree gives root and everything below it to uid and gid, and follows
// nothing. Hard links are safe: ./final is a mount of its own, so a link in it
// cannot be to a file outside.
func chownTree(root *os.Root, uid, gid int) error {
	err := descend.Visit(root, func() bool { return true }, func(dir int, name string, _ *unix.Stat_t) error {
		return unix.Fchownat(dir, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW)
	})
	return errors.Join(err, root.Lchown(".", uid, gid))
}
