//go:build !linux

package treehash

import "io/fs"

// stampOf does not know when an inode changed, so every file is read.
func stampOf(info fs.FileInfo) (stamp [4]int64, ok bool) {
	return [4]int64{2: info.ModTime().UnixNano()}, false
}
