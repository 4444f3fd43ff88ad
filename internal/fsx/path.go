package fsx

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Within reports whether a path is dir or lies below it. Both are cleaned and of one kind,
// absolute or relative to the same directory. Links are not looked at.
func Within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// RealPath resolves the links of an absolute path, whose last parts need not exist.
func RealPath(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		return real
	}
	if parent := filepath.Dir(path); parent != path {
		return filepath.Join(RealPath(parent), filepath.Base(path))
	}
	return path
}

// An ID is the identity of a file, the same under each of its names.
type ID struct{ device, inode uint64 }

func idOf(stat *unix.Stat_t) ID {
	return ID{uint64(stat.Dev), stat.Ino} //nolint:unconvert // int32 on some platforms
}

// IDOf identifies a file, and reports whether it has several names. A directory has one.
func IDOf(info fs.FileInfo) (id ID, several bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.IsDir() {
		return ID{}, false
	}
	return ID{uint64(stat.Dev), stat.Ino}, stat.Nlink > 1 //nolint:unconvert // int32 on some platforms
}

// OwnerOf is the user and the group that own a file.
func OwnerOf(info fs.FileInfo) (uid, gid int, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int(stat.Uid), int(stat.Gid), true
}

// Device is the device number of a device file.
func Device(info fs.FileInfo) (major, minor uint32) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0
	}
	device := uint64(stat.Rdev) //nolint:unconvert // int32 on some platforms
	return unix.Major(device), unix.Minor(device)
}

// IsDir reports whether a path is a directory, links to it followed.
func IsDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// IsRealDir reports whether a path is a directory, and not a link to one.
func IsRealDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

// FreeBytes returns the number of bytes that an unprivileged process may still write to
// the file system of a path. ok is false if that is unknown.
func FreeBytes(path string) (free int64, ok bool) {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return 0, false
	}
	return int64(stat.Bavail) * int64(stat.Bsize), true //nolint:unconvert // types differ between systems
}
