//go:build !linux

package fsx

import (
	"os"

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

// SameMount reports whether an entry can be moved from one directory to the other: both are of one
// mount. One that cannot be read is of none.
func SameMount(a, b string) bool {
	var at [2]unix.Stat_t
	return unix.Stat(a, &at[0]) == nil && unix.Stat(b, &at[1]) == nil && at[0].Dev == at[1].Dev
}

// Reserve cannot allocate disk space here.
func Reserve(*os.File, int64) error { return nil }
