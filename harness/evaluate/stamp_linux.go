package evaluate

import (
	"io/fs"
	"syscall"
	"time"
)

// stampOf is what the kernel changes with a file: device, inode, time of the last
// change of content and of anything. The last one cannot be set by a program.
func stampOf(info fs.FileInfo) (stamp [4]int64, changed time.Time, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return stamp, changed, false
	}
	modified, inode := time.Unix(stat.Mtim.Unix()), time.Unix(stat.Ctim.Unix())
	changed = modified
	if inode.After(changed) {
		changed = inode
	}
	return [4]int64{int64(stat.Dev), int64(stat.Ino), modified.UnixNano(), inode.UnixNano()}, changed, true
}
