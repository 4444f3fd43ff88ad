package fsx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// ErrChanged means that a tree changed while it was copied.
var ErrChanged = errors.New("changed while it was copied")

// A LimitError is a tree that is larger than its copy may be.
type LimitError struct {
	// What is too many, and Most how many there may be.
	What string
	Most int64
}

func (e *LimitError) Error() string { return fmt.Sprintf("holds more than %d %s", e.Most, e.What) }

// CopyOptions say what is copied. Limits must be set.
type CopyOptions struct {
	// Leave, if not nil, says of a path below the root, with forward slashes, that it is
	// not copied, nor what is in it.
	Leave func(name string, entry fs.DirEntry) bool
	// Entries bounds the files, folders and links of the copy, Depth how deep folders are
	// nested, Bytes the content of all files.
	Entries, Depth int
	Bytes          int64
}

// Copy copies what is below one folder to another one, which must be empty: folders,
// regular files with their times, and links as links. Nothing is followed. Permissions
// are kept, and files of several names stay files of several names, so that whoever hides
// one of them can hide the others. Anything else, such as a pipe, is left out, and so are
// owners. What changes meanwhile is [ErrChanged], what is too large a [*LimitError]; the
// copy is then not whole.
func Copy(ctx context.Context, from, to *os.Root, o CopyOptions) error {
	c := copier{ctx: ctx, from: from, to: to, o: o, names: map[fileID]string{}}
	err := fs.WalkDir(from.FS(), ".", c.entry)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", ErrChanged, err)
	}
	if err != nil {
		return err
	}
	// Last, and the innermost first: a folder may be closed to us.
	for _, folder := range slices.Backward(c.folders) {
		if err := to.Chmod(folder.name, folder.mode); err != nil {
			return err
		}
	}
	return nil
}

type copier struct {
	ctx      context.Context //nolint:containedctx // lives as long as the copy
	from, to *os.Root
	o        CopyOptions
	entries  int
	bytes    int64
	folders  []folderMode
	// names are the copies of files of several names.
	names map[fileID]string
}

type folderMode struct {
	name string
	mode fs.FileMode
}

// entry copies one entry.
func (c *copier) entry(name string, entry fs.DirEntry, err error) error {
	if err = errors.Join(err, context.Cause(c.ctx)); err != nil || name == "." {
		return err
	}
	kind := entry.Type()
	if c.o.Leave != nil && c.o.Leave(name, entry) {
		if kind.IsDir() {
			return fs.SkipDir
		}
		return nil
	}
	if !kind.IsDir() && !kind.IsRegular() && kind != fs.ModeSymlink {
		return nil
	}
	if c.entries++; c.entries > c.o.Entries {
		return &LimitError{"files and folders", int64(c.o.Entries)}
	}
	if strings.Count(name, "/") >= c.o.Depth {
		return fmt.Errorf("%.200q: %w", name, &LimitError{"folders in one another", int64(c.o.Depth)})
	}
	switch {
	case kind.IsDir():
		info, err := entry.Info()
		if err != nil {
			return err
		}
		c.folders = append(c.folders, folderMode{name, info.Mode().Perm()})
		return c.to.Mkdir(name, 0o700)
	case kind.IsRegular():
		if err := c.file(name); err != nil {
			return fmt.Errorf("%.200q: %w", name, err)
		}
		return nil
	}
	target, err := c.from.Readlink(name)
	if err != nil {
		return err
	}
	return c.to.Symlink(target, name)
}

// file copies one regular file.
func (c *copier) file(name string) error {
	in, info, err := OpenBelow(c.from, name)
	if err != nil {
		return changedKind(err)
	}
	defer in.Close()
	id, several := idOf(info)
	if first, copied := c.names[id]; several && copied {
		return c.to.Link(first, name)
	}
	if c.bytes += info.Size(); c.bytes > c.o.Bytes {
		return &LimitError{"bytes", c.o.Bytes}
	}
	out, err := c.to.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(out, WithContext(c.ctx, io.LimitReader(in, info.Size()+1)))
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	after, err := in.Stat()
	if err != nil {
		return err
	}
	if n != info.Size() || after.Size() != n || !after.ModTime().Equal(info.ModTime()) {
		return ErrChanged
	}
	if several {
		c.names[id] = name
	}
	return errors.Join(c.to.Chmod(name, info.Mode().Perm()), c.to.Chtimes(name, info.ModTime(), info.ModTime()))
}

// changedKind tells a file that took another kind since it was listed.
func changedKind(err error) error {
	var special *NotRegularError
	var folder *NotFolderError
	if errors.As(err, &special) || errors.As(err, &folder) {
		return fmt.Errorf("%w: %w", ErrChanged, err)
	}
	return err
}
