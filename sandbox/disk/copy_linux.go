package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/fsx"
)

// maxCopyDepth bounds the directories that are copied out of an image. Each one takes as many steps
// as it is deep.
const maxCopyDepth = 500

// copyOut copies what a program left, faithfully: with holes, links and second names.
type copyOut struct {
	ctx      context.Context //nolint:containedctx // lives as long as the copy
	from, to *os.Root
	dirs     []string
	modes    []fs.FileMode
	names    map[fsx.ID]string
}

// CopyOut copies what an untrusted program left in a directory to an empty one: directories, files
// with their holes and second names, links, pipes and sockets, with their permissions and times,
// but as this user's. Nothing is followed, and nothing may change meanwhile. After an error the
// copy is incomplete.
func CopyOut(ctx context.Context, from, to *os.Root) error {
	c := copyOut{ctx: ctx, from: from, to: to, names: map[fsx.ID]string{}}
	return c.all()
}

func (c *copyOut) all() error {
	var deep error
	err := fsx.Walk(c.ctx, c.from, func(name string, info fs.FileInfo) (into bool, err error) {
		if strings.Count(name, "/") >= maxCopyDepth {
			deep = fmt.Errorf("directories are nested deeper than %d", maxCopyDepth)
			return false, nil
		}
		return info.IsDir(), c.entry(name, info)
	})
	// The modes come last, the innermost first: a mode may close a directory.
	for i, dir := range slices.Backward(c.dirs) {
		err = errors.Join(err, c.to.Chmod(dir, c.modes[i]))
	}
	return errors.Join(err, deep)
}

func (c *copyOut) entry(name string, info fs.FileInfo) error {
	switch info.Mode().Type() {
	case fs.ModeDir:
		c.dirs, c.modes = append(c.dirs, name), append(c.modes, info.Mode().Perm())
		return c.to.Mkdir(name, 0o700)
	case fs.ModeSymlink:
		target, err := c.from.Readlink(name)
		if err != nil {
			return err
		}
		return c.to.Symlink(target, name)
	case 0:
		return c.file(name, info)
	case fs.ModeNamedPipe:
		return c.special(name, unix.S_IFIFO)
	case fs.ModeSocket:
		return c.special(name, unix.S_IFSOCK)
	default:
		return nil // a program without privileges makes no devices
	}
}

// special makes a pipe or a socket of that name, which nobody can use: it is listed like any other.
func (c *copyOut) special(name string, kind uint32) error {
	parent, err := c.to.OpenRoot(path.Dir(name))
	if err != nil {
		return err
	}
	defer parent.Close()
	dir, err := parent.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	return unix.Mknodat(int(dir.Fd()), path.Base(name), kind|0o600, 0)
}

func (c *copyOut) file(name string, listed fs.FileInfo) error {
	in, info, err := fsx.OpenListed(c.from, name, listed)
	if err != nil {
		return err
	}
	defer in.Close()
	id, several := fsx.IDOf(info)
	if first, copied := c.names[id]; several && copied {
		return c.to.Link(first, name)
	}
	out, err := c.to.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(copySparse(c.ctx, out, in, info.Size()), out.Close()); err != nil {
		return err
	}
	if several {
		c.names[id] = name
	}
	return errors.Join(c.to.Chmod(name, info.Mode().Perm()), c.to.Chtimes(name, info.ModTime(), info.ModTime()))
}

// copySparse copies the content of a file of this size to an empty one, and leaves out its holes: a
// file of a few blocks may have any size.
func copySparse(ctx context.Context, to, from *os.File, size int64) error {
	for at := int64(0); at < size; {
		data, err := from.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // there are only holes
			break
		}
		if err != nil {
			return err
		}
		hole, err := from.Seek(data, unix.SEEK_HOLE)
		if err == nil {
			_, err = from.Seek(data, io.SeekStart)
		}
		if err == nil {
			_, err = to.Seek(data, io.SeekStart)
		}
		if err == nil {
			_, err = io.Copy(to, fsx.WithContext(ctx, io.LimitReader(from, min(hole, size)-data)))
		}
		if err != nil {
			return err
		}
		at = hole
	}
	return to.Truncate(size)
}
