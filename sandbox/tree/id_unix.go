//go:build unix

package tree

import (
	"io/fs"
	"syscall"
)

// idOf identifies a file, and says whether it has several names. A folder has one.
func idOf(info fs.FileInfo) (id fileID, several bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.IsDir() {
		return fileID{}, false
	}
	return fileID{uint64(stat.Dev), stat.Ino}, stat.Nlink > 1 //nolint:unconvert // int32 on some platforms
}
