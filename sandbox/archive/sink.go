package archive

import (
	"archive/tar"
	"io"
	"io/fs"
	"path"
	"time"

	"github.com/evalbox/evalbox/sandbox/tree"
)

// Sink packs a copy that belongs to the program's user, which may change it.
func (p *Packer) Sink(name string, uid, gid int) tree.Sink {
	return &sink{packer: p, name: name, uid: uid, gid: gid}
}

type sink struct {
	packer   *Packer
	name     string
	uid, gid int
}

// Folder implements [tree.Sink].
func (s *sink) Dir(name string, mode fs.FileMode) error {
	return s.packer.Dir(path.Join(s.name, name), s.uid, s.gid, mode)
}

// File implements [tree.Sink].
func (s *sink) File(name string, mode fs.FileMode, size int64, modified time.Time, content io.Reader) error {
	err := s.packer.w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: path.Join(s.name, name), Size: size, Mode: int64(mode.Perm()),
		Uid: s.uid, Gid: s.gid, ModTime: modified, Format: tar.FormatPAX,
	})
	if err != nil {
		return err
	}
	_, err = io.Copy(s.packer.w, content)
	return err
}

// Link implements [tree.Sink].
func (s *sink) Link(name, target string, modified time.Time) (refused string, err error) {
	full := path.Join(s.name, name)
	if escapes(full, target) {
		return "a link that leads out of the folder, which cannot be copied to the engine", nil
	}
	return "", s.packer.w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeSymlink, Name: full, Linkname: target, Mode: 0o777,
		Uid: s.uid, Gid: s.gid, ModTime: modified, Format: tar.FormatPAX,
	})
}

// Close implements [tree.Sink]; the archive goes on.
func (s *sink) Close() error { return nil }
