package tree

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
)

// DirSink copies into an empty directory.
type DirSink struct {
	root *os.Root
	// uid and gid become the owner of every entry; -1 changes none.
	uid, gid int
	dirs     []Entry
}

// NewDirSink returns a sink that writes below root. Every entry is given to the user and
// group; -1 leaves it to the user of this process.
func NewDirSink(root *os.Root, uid, gid int) *DirSink {
	return &DirSink{root: root, uid: uid, gid: gid}
}

// Dir implements [Sink]. [DirSink.Close] sets the mode, because it may forbid writing.
func (s *DirSink) Dir(name string, mode fs.FileMode) error {
	s.dirs = append(s.dirs, Entry{Path: name, Mode: mode})
	return s.root.Mkdir(name, 0o700)
}

// File implements [Sink].
func (s *DirSink) File(name string, mode fs.FileMode, _ int64, modified time.Time, content io.Reader) error {
	_, err := fsx.Create(s.root, name, content, 0o600)
	if err == nil {
		err = s.give(name)
	}
	if err == nil {
		err = s.root.Chmod(name, mode.Perm())
	}
	if err == nil {
		err = s.root.Chtimes(name, modified, modified)
	}
	return err
}

// Link implements [Sink].
func (s *DirSink) Link(name, target string, _ time.Time) (string, error) {
	if err := s.root.Symlink(target, name); err != nil {
		return "", err
	}
	return "", s.give(name)
}

// Close implements [Sink].
func (s *DirSink) Close() error {
	for _, dir := range slices.Backward(s.dirs) {
		if err := errors.Join(s.give(dir.Path), s.root.Chmod(dir.Path, dir.Mode.Perm())); err != nil {
			return err
		}
	}
	return s.give(".")
}

func (s *DirSink) give(name string) error {
	if s.uid < 0 {
		return nil
	}
	return s.root.Lchown(name, s.uid, s.gid)
}
