//go:build unix

package tree

import (
	"io/fs"
	"os"
	"syscall"
)

// likeFile gives a new file the owner of the one that it replaces, or of its folder.
// Only root can, and only root has to.
func likeFile(dir *os.Root, name string, like fs.FileInfo) error {
	if os.Geteuid() != 0 {
		return nil
	}
	if like == nil {
		return likeFolder(dir, name)
	}
	if stat, ok := like.Sys().(*syscall.Stat_t); ok {
		return dir.Lchown(name, int(stat.Uid), int(stat.Gid))
	}
	return nil
}

// likeFolder gives a new entry the owner of the folder that it is in.
func likeFolder(dir *os.Root, name string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := dir.Stat(".")
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return dir.Lchown(name, int(stat.Uid), int(stat.Gid))
	}
	return nil
}
