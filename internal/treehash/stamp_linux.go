package treehash

import (
	"io/fs"
	"syscall"
)

// stampOf returns what the kernel changes with a file: device, inode, and the times in
// nanoseconds at which its content and its inode changed. A program cannot set the last one.
func stampOf(info fs.FileInfo) (stamp [4]int64, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return [4]int64{2: info.ModTime().UnixNano()}, false
	}
	return [4]int64{int64(stat.Dev), int64(stat.Ino), stat.Mtim.Nano(), stat.Ctim.Nano()}, true
}
