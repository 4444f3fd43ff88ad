package fsx

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
)

// ErrChanged means that a file or a tree changed while it was read.
var ErrChanged = errors.New("changed while it was read")

// WithContext reads from r until ctx ends; the error is then the cause of ctx.
func WithContext(ctx context.Context, r io.Reader) io.Reader { return &contextReader{ctx, r} }

type contextReader struct {
	ctx context.Context //nolint:containedctx // lives as long as the one read that it interrupts
	r   io.Reader
}

func (r *contextReader) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// buffers are used again: a tree may have many small files.
var buffers = sync.Pool{New: func() any { return new([256 << 10]byte) }}

// CopyContent copies the content of an open file to a writer. If the file is not as it was
// when info was taken, the error is [ErrChanged], and to has part of the content.
func CopyContent(ctx context.Context, to io.Writer, file *os.File, info fs.FileInfo) error {
	buffer, _ := buffers.Get().(*[256 << 10]byte) // nothing else is in the pool
	defer buffers.Put(buffer)
	n, err := io.CopyBuffer(to, WithContext(ctx, io.LimitReader(file, info.Size()+1)), buffer[:])
	if err != nil {
		return err
	}
	after, err := file.Stat()
	if err == nil && (n != info.Size() || after.Size() != n || !after.ModTime().Equal(info.ModTime())) {
		err = ErrChanged
	}
	return err
}

// Sum is the hash of the content of an open file in hexadecimal digits, with the errors of
// [CopyContent].
func Sum(ctx context.Context, h hash.Hash, file *os.File, info fs.FileInfo) (string, error) {
	if err := CopyContent(ctx, h, file, info); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// A LimitError is a tree that is larger than its copy may be.
type LimitError struct {
	// What is the counted thing in words, Most its maximum.
	What string
	Most int64
}

func (e *LimitError) Error() string { return fmt.Sprintf("holds more than %d %s", e.Most, e.What) }

// CopyOptions select what is copied. Limits must be set.
type CopyOptions struct {
	// Leave, if not nil, reports whether a path below the root, with forward slashes, is
	// left out with all that is in it.
	Leave func(name string, entry fs.DirEntry) bool
	// Entries bounds the files, directories and links of the copy, Depth how deep
	// directories are nested, Bytes the content of all files.
	Entries, Depth int
	Bytes          int64
}

// Copy copies the content of one directory to another one, which must be empty:
// directories, regular files with their times, and links as links. Nothing is followed.
// Permissions are kept, owners are not. Files of several names stay files of several
// names, so that a caller that hides one name can hide the others. Anything else, such as
// a pipe, is left out. A tree that changes meanwhile is [ErrChanged], a tree that is too
// large a [*LimitError]; the copy is then incomplete.
func Copy(ctx context.Context, from, to *os.Root, o CopyOptions) error {
	c := copier{ctx: ctx, from: from, to: to, o: o, names: map[ID]string{}}
	err := fs.WalkDir(from.FS(), ".", c.entry)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", ErrChanged, err)
	}
	if err != nil {
		return err
	}
	// The modes come last, the innermost first: a mode may close a directory to us.
	for _, dir := range slices.Backward(c.dirs) {
		if err := to.Chmod(dir.name, dir.mode); err != nil {
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
	dirs     []dirMode
	// names are the copies of files of several names.
	names map[ID]string
}

type dirMode struct {
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
		return &LimitError{"files and directories", int64(c.o.Entries)}
	}
	if strings.Count(name, "/") >= c.o.Depth {
		return fmt.Errorf("%.200q: %w", name, &LimitError{"directories in one another", int64(c.o.Depth)})
	}
	switch {
	case kind.IsDir():
		info, err := entry.Info()
		if err != nil {
			return err
		}
		c.dirs = append(c.dirs, dirMode{name, info.Mode().Perm()})
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
	id, several := IDOf(info)
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
	if err := errors.Join(CopyContent(c.ctx, out, in, info), out.Close()); err != nil {
		return err
	}
	if several {
		c.names[id] = name
	}
	return errors.Join(c.to.Chmod(name, info.Mode().Perm()), c.to.Chtimes(name, info.ModTime(), info.ModTime()))
}

// changedKind makes [ErrChanged] of a file that became something else since it was listed.
func changedKind(err error) error {
	var special *NotRegularError
	var other *NotDirectoryError
	if errors.As(err, &special) || errors.As(err, &other) {
		return fmt.Errorf("%w: %w", ErrChanged, err)
	}
	return err
}
