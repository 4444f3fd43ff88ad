//go:build unix

package collect

import (
	"os"

	"github.com/evalbox/evalbox/internal/fsx"

	"golang.org/x/sys/unix"
)

// visit tells each the disk space of every entry, of folders as 0.
func visit(root *os.Root, more func() bool, each func(space int64)) error {
	return fsx.Visit(root, more, func(_ int, _ string, stat *unix.Stat_t) error {
		if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
			each(0)
			return nil
		}
		// A sparse file has a size without using it. A file of several names
		// takes its space once; all its names are below root, since links do
		// not leave a mount.
		each(int64(stat.Blocks) * 512 / max(1, int64(stat.Nlink))) //nolint:unconvert // int32 on some platforms
		return nil
	})
}
