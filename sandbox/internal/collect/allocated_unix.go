//go:build unix

package collect

import (
	"io/fs"
	"syscall"
)

// allocated is the disk space of a file: a sparse file has a size without using
// it.
func allocated(info fs.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int64(stat.Blocks) * 512 //nolint:unconvert // int32 on some platforms
	}
	return info.Size()
}
