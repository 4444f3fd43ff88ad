//go:build unix

package fsx

import (
	"io/fs"
	"syscall"
)

// fileID tells a file whatever its name is.
type fileID struct{ device, inode uint64 }

// idOf identifies a file, and says whether it has several names.
func idOf(info fs.FileInfo) (id fileID, several bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}, false
	}
	return fileID{uint64(stat.Dev), stat.Ino}, stat.Nlink > 1 //nolint:unconvert // int32 on some platforms
}
