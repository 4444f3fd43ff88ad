package repo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/go-git/go-billy/v5"
)

// guardFS is what go-git sees of a folder: regular files to read, nothing to write, and
// no way out.
type guardFS struct {
	root *os.Root
	// opened are the folders to close with it.
	opened *[]*os.Root
}

func newGuardFS(dir string) (*guardFS, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &guardFS{root: root, opened: &[]*os.Root{root}}, nil
}

// Close closes the folder, and those that were opened through it.
func (g *guardFS) Close() error {
	var errs []error
	for _, root := range *g.opened {
		errs = append(errs, root.Close())
	}
	return errors.Join(errs...)
}

func (g *guardFS) rel(name string) string {
	return filepath.FromSlash(strings.TrimPrefix(path.Clean("/"+filepath.ToSlash(name)), "/"))
}

func (g *guardFS) at(name string) string {
	if rel := g.rel(name); rel != "" {
		return rel
	}
	return "."
}

// guardFile is a file that go-git may read.
type guardFile struct {
	*os.File
	name string
}

func (f guardFile) Name() string { return f.name }
func (guardFile) Lock() error    { return billy.ErrReadOnly }
func (guardFile) Unlock() error  { return billy.ErrReadOnly }

// Open opens a regular file that is no link and not too large.
func (g *guardFS) Open(name string) (billy.File, error) {
	file, info, err := fsx.OpenIn(g.root, g.at(name))
	if err != nil {
		return nil, err
	}
	if info.Size() > maxGitFile && path.Ext(name) != ".pack" {
		return nil, errors.Join(fmt.Errorf("%s: has more than %d bytes", name, maxGitFile), file.Close())
	}
	return guardFile{file, name}, nil
}

// OpenFile opens for reading only.
func (g *guardFS) OpenFile(name string, flag int, _ os.FileMode) (billy.File, error) {
	if flag&(os.O_WRONLY|os.O_RDWR|os.O_CREATE|os.O_TRUNC|os.O_APPEND) != 0 {
		return nil, billy.ErrReadOnly
	}
	return g.Open(name)
}

// Stat and Lstat tell of what is there; links out of the folder are errors.
func (g *guardFS) Stat(name string) (os.FileInfo, error)  { return g.root.Stat(g.at(name)) }
func (g *guardFS) Lstat(name string) (os.FileInfo, error) { return g.root.Lstat(g.at(name)) }
func (g *guardFS) Readlink(name string) (string, error)   { return g.root.Readlink(g.at(name)) }

// ReadDir lists a folder.
func (g *guardFS) ReadDir(name string) ([]os.FileInfo, error) {
	entries, err := fs.ReadDir(g.root.FS(), filepath.ToSlash(g.at(name)))
	if err != nil {
		return nil, err
	}
	if len(entries) > maxFiles {
		return nil, fmt.Errorf("%s: has more than %d entries", name, maxFiles)
	}
	infos := make([]os.FileInfo, 0, len(entries))
	for _, entry := range entries {
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // git removes objects when it packs them
		}
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// Chroot is a folder below.
func (g *guardFS) Chroot(name string) (billy.Filesystem, error) {
	root, err := g.root.OpenRoot(g.at(name))
	if err != nil {
		return nil, err
	}
	*g.opened = append(*g.opened, root)
	return &guardFS{root: root, opened: g.opened}, nil
}

func (g *guardFS) Root() string                 { return g.root.Name() }
func (g *guardFS) Join(elem ...string) string   { return filepath.Join(elem...) }
func (*guardFS) Capabilities() billy.Capability { return billy.ReadCapability | billy.SeekCapability }

// Everything that would write.

func (*guardFS) Create(string) (billy.File, error)           { return nil, billy.ErrReadOnly }
func (*guardFS) Rename(string, string) error                 { return billy.ErrReadOnly }
func (*guardFS) Remove(string) error                         { return billy.ErrReadOnly }
func (*guardFS) TempFile(string, string) (billy.File, error) { return nil, billy.ErrReadOnly }
func (*guardFS) MkdirAll(string, os.FileMode) error          { return billy.ErrReadOnly }
func (*guardFS) Symlink(string, string) error                { return billy.ErrReadOnly }
