//go:build !unix

package collect

import (
	"os"
	"path"
)

// visit tells each the size of every entry, of folders as 0.
func visit(root *os.Root, more func() bool, each func(space int64)) error {
	queue := []string{"."}
	for len(queue) > 0 && more() {
		at := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		dir, err := root.Open(at)
		if err != nil {
			continue
		}
		for err == nil && more() {
			var list []os.DirEntry
			list, err = dir.ReadDir(256)
			for _, entry := range list {
				full := path.Join(at, entry.Name())
				info, statErr := root.Lstat(full)
				switch {
				case entry.IsDir():
					queue = append(queue, full)
					each(0)
				case statErr == nil:
					each(info.Size())
				default:
					each(0)
				}
			}
		}
		_ = dir.Close() // was only read
	}
	return nil
}
