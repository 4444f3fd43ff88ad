package collect

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
)

// Usage adds up the disk space below root while the program may still be
// writing; what vanishes meanwhile is not an error. It stops early once either
// number is above its bound.
func Usage(ctx context.Context, root *os.Root, maxBytes int64, maxEntries int) (bytes int64, entries int) {
	queue := []string{"."}
	for len(queue) > 0 && ctx.Err() == nil && bytes <= maxBytes && entries <= maxEntries {
		at := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		dir, err := root.OpenFile(at, os.O_RDONLY|openFlags, 0)
		if err != nil {
			continue
		}
		for err == nil && ctx.Err() == nil && bytes <= maxBytes && entries <= maxEntries {
			var names []os.DirEntry
			names, err = dir.ReadDir(256)
			for _, entry := range names {
				entries++
				full := path.Join(at, entry.Name())
				if entry.IsDir() {
					queue = append(queue, full)
					continue
				}
				if info, statErr := root.Lstat(full); statErr == nil {
					bytes += allocated(info)
				}
			}
			if errors.Is(err, io.EOF) {
				break
			}
		}
		dir.Close()
	}
	return bytes, entries
}
