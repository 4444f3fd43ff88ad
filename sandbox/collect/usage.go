package collect

import (
	"context"
	"os"
)

// Usage adds up the disk space below root while the program may still be
// writing; what vanishes meanwhile is not an error. It stops early once either
// number is above its bound. Its time grows with the number of entries and not
// with their depth: a program must not be able to keep it busy.
func Usage(ctx context.Context, root *os.Root, maxBytes int64, maxEntries int) (bytes int64, entries int) {
	more := func() bool { return ctx.Err() == nil && bytes <= maxBytes && entries <= maxEntries }
	// What cannot be read has vanished, or is the program's own.
	_ = visit(root, more, func(space int64) {
		entries++
		bytes += space
	})
	return bytes, entries
}
