package collect

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/fsx"
)

// Usage adds up the disk space below root while the program may still be
// writing; what vanishes meanwhile is not an error. It stops early once either
// number is above its bound. Its time grows with the number of entries and not
// with their depth: a program must not be able to keep it busy.
func Usage(ctx context.Context, root *os.Root, maxBytes int64, maxEntries int) (bytes int64, entries int) {
	more := func() bool { return ctx.Err() == nil && bytes <= maxBytes && entries <= maxEntries }
	// What cannot be read has vanished, or is the program's own.
	_ = fsx.Visit(root, more, func(_ int, _ string, stat *unix.Stat_t) error {
		entries++
		if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
			// A sparse file has a size without using it. A file of several names
			// takes its space once; all its names are below root, since links do
			// not leave a mount.
			bytes += int64(stat.Blocks) * 512 / max(1, int64(stat.Nlink)) //nolint:unconvert // int32 on some platforms
		}
		return nil
	})
	return bytes, entries
}
