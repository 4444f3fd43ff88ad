package fsx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// Walk calls each for every entry below root with its path and the result of Lstat: level by
// level, a directory before its entries. It enters a directory only if each returns true.
// It follows nothing and passes over entries that vanish meanwhile.
func Walk(ctx context.Context, root *os.Root, each func(name string, info fs.FileInfo) (into bool, err error)) error {
	queue := []string{"."}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		err := ReadDir(ctx, root, at, func(name string) error {
			full := path.Join(at, name)
			info, err := root.Lstat(full)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			into, err := each(full, info)
			if into && info.IsDir() {
				queue = append(queue, full)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ReadDir calls each for the names in a directory below root, in chunks, each of them
// sorted: a directory may hold millions of names. A link is refused.
func ReadDir(ctx context.Context, root *os.Root, at string, each func(name string) error) error {
	listed, err := root.Lstat(at)
	if err != nil {
		return err
	}
	dir, err := root.OpenFile(at, os.O_RDONLY|OpenFlags, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	if opened, err := dir.Stat(); err != nil || !os.SameFile(opened, listed) {
		return errors.Join(openError(at, ErrReplaced), err)
	}
	for {
		names, err := dir.Readdirnames(256)
		slices.Sort(names)
		for _, name := range names {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := each(name); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return context.Cause(ctx)
		case err != nil:
			return err
		}
	}
}

// maxErrors bounds the errors of a tree in which everything fails.
const maxErrors = 10

// level is a directory on the way down: its identity, and the directories in it that are
// left to visit.
type level struct {
	id   ID
	left []string
}

// Visited is one entry that [Visit] comes to.
type Visited struct {
	// Dir is the descriptor of the directory that holds the entry, In its identity.
	Dir  int
	In   ID
	Name string
	// Stat is the result of lstat, with the mode 0 if that failed.
	Stat *unix.Stat_t
}

// OtherDevice reports whether the entry is on another file system than the directory that holds it.
func (v Visited) OtherDevice() bool { return idOf(v.Stat).device != v.In.device }

type visit struct {
	more   func() bool
	each   func(Visited) error
	levels []level
	errs   []error
}

// Visit calls each for every entry below root as long as more returns true. A directory comes
// before its entries; each may return [fs.SkipDir] to leave them out. Nothing is followed.
// Visit goes down directory by directory and up again through "..", so it takes two
// descriptors and a few calls per directory at any depth; a path from the root would take
// as many steps as it has parts, and an untrusted program could make that last for hours.
//
// The tree may change meanwhile: a directory that was moved has another parent, and Visit
// looks only at directories that it knows to have come through. Visit goes on after an
// error and joins the first ones.
func Visit(root *os.Root, more func() bool, each func(Visited) error) error {
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

// step goes down into the next directory, or up. It returns the directory that it went
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
		if err = unix.Fstat(int(above.Fd()), &stat); err == nil && idOf(&stat) == known.id {
			return above, nil
		}
		_ = above.Close() // was only read
	}
	// The current directory was moved. Go on from the top.
	v.levels = v.levels[:1]
	again, openErr := root.Open(".")
	if openErr != nil {
		v.levels = nil
	}
	return again, errors.Join(errors.New("a directory was moved while its tree was read"), err, openErr)
}

func openAt(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// enter passes the entries of one directory on and remembers its directories.
func (v *visit) enter(dir *os.File) {
	var stat unix.Stat_t
	err := unix.Fstat(int(dir.Fd()), &stat)
	here := level{id: idOf(&stat)}
	for err == nil && v.more() {
		var names []string
		names, err = dir.Readdirnames(256)
		for _, name := range names {
			var stat unix.Stat_t
			if err := unix.Fstatat(int(dir.Fd()), name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				v.failed(fmt.Errorf("%q: %w", name, err))
				stat.Mode = 0
			}
			err := v.each(Visited{int(dir.Fd()), here.id, name, &stat})
			if err == fs.SkipDir { //nolint:errorlint // from the caller's function
				continue
			}
			if err != nil {
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
