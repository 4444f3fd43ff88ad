//go:build !linux

package treehash

import "io/fs"

// stampOf is not known here, so every file is read.
func stampOf(fs.FileInfo) (stamp [4]int64, ok bool) { return stamp, false }
