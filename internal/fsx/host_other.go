//go:build !linux

package fsx

import (
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// MountsBelow lists the mount points strictly below a directory.
func MountsBelow(dir string) ([]string, error) {
	n, err := unix.Getfsstat(nil, unix.MNT_NOWAIT)
	if err != nil {
		return nil, err
	}
	all := make([]unix.Statfs_t, n)
	if n, err = unix.Getfsstat(all, unix.MNT_NOWAIT); err != nil {
		return nil, err
	}
	var below []string
	for i := range all[:n] {
		if point := unix.ByteSliceToString(all[i].Mntonname[:]); point != dir && Within(point, dir) {
			below = append(below, point)
		}
	}
	return below, nil
}

// IsMountPoint reports whether something is mounted at a path.
func IsMountPoint(path string) (bool, error) {
	points, err := MountsBelow(filepath.Dir(path))
	return slices.Contains(points, path), err
}

// DirFlags are not read here.
func DirFlags(*os.Root) (int, error) { return 0, nil }

// Reserve cannot allocate disk space here.
func Reserve(*os.File, int64) error { return nil }
