//go:build unix

package fsx

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxErrors bounds what is reported of a tree in which everything fails.
const maxErrors = 10

// level is a folder on the way down: which it is, and the folders in it that are
// left to visit.
type level struct {
	device, inode uint64
	left          []string
}

type visit struct {
	more   func() bool
	each   func(dir int, name string, stat *unix.Stat_t) error
	levels []level
	errs   []error
}

// Visit calls each for every entry below root, with the descriptor of the folder
// that holds it, as long as more says so. Nothing is followed. It goes down
// folder by folder and up again through "..", so it takes two descriptors and a
// few calls per folder at any depth; a path from the root would take as many
// steps as it has folders, and the program could make that last for hours.
//
// The tree may change meanwhile: a folder that was moved has another parent, and
// nothing is looked at that is not known to be the folder that Visit came
// through. Visit goes on after an error and joins the first ones.
func Visit(root *os.Root, more func() bool, each func(dir int, name string, stat *unix.Stat_t) error) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	v := &visit{more: more, each: each}
	v.enter(dir)
	for len(v.levels) > 0 && more() {
		next, err := v.step(root, dir)
		if next != nil {
			_ = dir.Close() // was only read
			dir = next
		}
		v.failed(err)
		if err != nil && len(v.levels) == 0 {
			break
		}
	}
	_ = dir.Close() // was only read
	return errors.Join(v.errs...)
}

func (v *visit) failed(err error) {
	if err != nil && len(v.errs) < maxErrors {
		v.errs = append(v.errs, err)
	}
}

// step goes down into the next folder, or up. It returns the folder that it went
// to, or nil if it stayed.
func (v *visit) step(root *os.Root, dir *os.File) (*os.File, error) {
	top := &v.levels[len(v.levels)-1]
	if n := len(top.left); n > 0 {
		name := top.left[n-1]
		top.left = top.left[:n-1]
		below, err := openAt(dir, name)
		if err != nil {
			return nil, err
		}
		v.enter(below)
		return below, nil
	}
	v.levels = v.levels[:len(v.levels)-1]
	if len(v.levels) == 0 {
		return nil, nil
	}
	above, err := openAt(dir, "..")
	if err == nil {
		known := v.levels[len(v.levels)-1]
		var stat unix.Stat_t
		if err = unix.Fstat(int(above.Fd()), &stat); err == nil &&
			uint64(stat.Dev) == known.device && stat.Ino == known.inode { //nolint:unconvert // int32 on some platforms
			return above, nil
		}
		_ = above.Close() // was only read
	}
	// The folder that we were in was moved. Go on from the top.
	v.levels = v.levels[:1]
	again, openErr := root.Open(".")
	if openErr != nil {
		v.levels = nil
	}
	return again, errors.Join(errors.New("a folder was moved while its tree was read"), err, openErr)
}

func openAt(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// enter passes the entries of one folder on and remembers the folders.
func (v *visit) enter(dir *os.File) {
	var stat unix.Stat_t
	err := unix.Fstat(int(dir.Fd()), &stat)
	here := level{device: uint64(stat.Dev), inode: stat.Ino} //nolint:unconvert // int32 on some platforms
	for err == nil && v.more() {
		var names []string
		names, err = dir.Readdirnames(256)
		for _, name := range names {
			var stat unix.Stat_t
			if err := unix.Fstatat(int(dir.Fd()), name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				v.failed(fmt.Errorf("%q: %w", name, err))
				stat.Mode = 0
			}
			if err := v.each(int(dir.Fd()), name, &stat); err != nil {
				v.failed(fmt.Errorf("%q: %w", name, err))
			}
			if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
				here.left = append(here.left, name)
			}
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		v.failed(err)
	}
	v.levels = append(v.levels, here)
}
