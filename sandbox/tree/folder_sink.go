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

// FolderSink copies into an empty folder of ours.
type DirSink struct {
	root *os.Root
	// uid and gid get every entry; -1 leaves them.
	uid, gid int
	folders  []Entry
}

// NewFolderSink copies into root, for a user; -1 is whoever copies.
func NewDirSink(root *os.Root, uid, gid int) *DirSink {
	return &DirSink{root: root, uid: uid, gid: gid}
}

// Folder implements [Sink]. The mode comes last: a folder may be closed to us.
func (s *DirSink) Dir(name string, mode fs.FileMode) error {
	s.folders = append(s.folders, Entry{Path: name, Mode: mode})
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
	for _, folder := range slices.Backward(s.folders) {
		if err := errors.Join(s.give(folder.Path), s.root.Chmod(folder.Path, folder.Mode.Perm())); err != nil {
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
