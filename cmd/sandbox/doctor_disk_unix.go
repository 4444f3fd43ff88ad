//go:build unix

package main

import "golang.org/x/sys/unix"

// freeBytes is what an ordinary user may still write below a folder.
func freeBytes(dir string) (int64, bool) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return 0, false
	}
	return int64(stat.Bavail) * int64(stat.Bsize), true //nolint:unconvert // types differ between systems
}
