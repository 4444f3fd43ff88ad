// Package archive packs the files of a run for an engine that does not share the file
// system of this process, and unpacks the files that come back. An untrusted program wrote
// those: they are read entry by entry, and everything is bounded. The package also holds
// the script of the disk monitor, and reads its answers.
package archive

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/collect"
	"github.com/evalbox/evalbox/sandbox/tree"
)

// Names in the staging volume of a run.
const (
	ProgramDir = "program"
	InputDir   = "input"
	// OutDir holds the directories that the program may write.
	OutDir   = "out"
	FinalDir = "out/final"
	TreesDir = "out/trees"
	// MountsDir holds further files and directories. EmptyFile hides files.
	// Files of accounts have their role as their name.
	MountsDir = "mounts"
	EmptyFile = "empty"
)

// maxOmitted bounds the list of entries that an input leaves out.
const maxOmitted = 20

// Packer writes the archive that fills the staging volume of one run. Program and input
// belong to root there and may be read by everybody: the program's user can read them, and
// no user of the container can change them.
type Packer struct {
	w *tar.Writer
	// Omitted lists the entries of the input that were left out, with the reasons.
	Omitted []string
	more    int
	// hidden reports whether a path below the root of an input is packed empty.
	hidden func(name string) bool
}

// NewPacker returns a Packer that writes to w.
func NewPacker(w io.Writer) *Packer { return &Packer{w: tar.NewWriter(w)} }

// Close ends the archive.
func (p *Packer) Close() error {
	if p.more > 0 {
		p.Omitted = append(p.Omitted, fmt.Sprintf("%d further entries", p.more))
		p.more = 0
	}
	return p.w.Close()
}

// Dir adds an empty directory.
func (p *Packer) Dir(name string, uid, gid int, mode fs.FileMode) error {
	return p.w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeDir, Name: name + "/", Mode: int64(mode.Perm()), Uid: uid, Gid: gid, ModTime: time.Unix(0, 0),
		Format: tar.FormatPAX,
	})
}

// File adds a regular file of root, which must not change meanwhile.
func (p *Packer) File(name string, root *os.Root, from string) error {
	info, err := root.Lstat(from)
	if err != nil {
		return err
	}
	return p.file(name, root, from, info)
}

// Empty adds an empty file that belongs to the user root.
func (p *Packer) Empty(name string) error { return p.Text(name, "") }

// Text adds a file with this text that belongs to the user root.
func (p *Packer) Text(name, text string) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o444, Size: int64(len(text)), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
	if err := p.w.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.WriteString(p.w, text)
	return err
}

// Tree adds the entries below root: directories, regular files, and links as links. A file
// that cannot be read is an error. Entries of other kinds are omitted, and so are links
// that lead out of the directory, which would lead nowhere in the container. Hidden files
// and directories are packed empty; a nil function hides none.
func (p *Packer) Tree(ctx context.Context, name string, root *os.Root, hidden func(name string) bool) error {
	p.hidden = hidden
	if err := p.Dir(name, 0, 0, 0o555); err != nil {
		return err
	}
	return fsx.Walk(ctx, root, func(full string, info fs.FileInfo) (bool, error) {
		return p.entry(path.Join(name, full), root, full, info)
	})
}

// entry adds one entry, and reports whether to enter it.
func (p *Packer) entry(name string, root *os.Root, from string, info fs.FileInfo) (into bool, err error) {
	switch mode := info.Mode(); {
	case p.hidden != nil && p.hidden(from) && (mode.IsDir() || mode.IsRegular()):
		if mode.IsDir() {
			return false, p.Dir(name, 0, 0, 0o555)
		}
		return false, p.Empty(name)
	case mode.IsDir():
		return true, p.Dir(name, 0, 0, 0o555)
	case mode.IsRegular():
		return false, p.file(name, root, from, info)
	case mode&fs.ModeSymlink != 0:
		target, err := root.Readlink(from)
		if err != nil {
			return false, err
		}
		if escapes(name, target) {
			p.omit(from, "a link that leads out of the directory")
			return false, nil
		}
		return false, p.w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777, ModTime: info.ModTime(), Format: tar.FormatPAX,
		})
	}
	p.omit(from, "not a file, a directory or a link")
	return false, nil
}

func (p *Packer) omit(from, reason string) {
	if len(p.Omitted) >= maxOmitted {
		p.more++
		return
	}
	text, _ := collect.EncodePath(from)
	p.Omitted = append(p.Omitted, text+": "+reason)
}

// escapes reports whether an engine would refuse a link, and the whole archive with it.
// Engines require that targets stay below the directory in which the archive is unpacked;
// they take absolute targets for relative ones.
func escapes(name, target string) bool {
	full := path.Join("/", "root", path.Dir(name)) + "/" + target
	return !strings.HasPrefix(path.Clean(full)+"/", "/root/")
}

// file adds one regular file. Its header states the size before the content, so a file that
// grows or shrinks meanwhile cannot be packed.
func (p *Packer) file(name string, root *os.Root, from string, listed fs.FileInfo) error {
	file, info, err := fsx.OpenListed(root, from, listed)
	if err != nil {
		return err
	}
	defer file.Close()
	mode := int64(0o444)
	if info.Mode().Perm()&0o111 != 0 {
		mode = 0o555
	}
	err = p.w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Size: info.Size(), Mode: mode, ModTime: info.ModTime(), Format: tar.FormatPAX,
	})
	if err != nil {
		return err
	}
	n, err := io.Copy(p.w, io.LimitReader(file, info.Size()))
	if err != nil {
		return err
	}
	var one [1]byte // a further byte shows that the file has grown
	if more, _ := file.Read(one[:]); n != info.Size() || more > 0 {
		return &fs.PathError{Op: "read", Path: from, Err: fsx.ErrChanged}
	}
	return nil
}

// Sink returns a sink for a copy that belongs to the program's user.
func (p *Packer) Sink(name string, uid, gid int) tree.Sink {
	return &sink{packer: p, name: name, uid: uid, gid: gid}
}

type sink struct {
	packer   *Packer
	name     string
	uid, gid int
}

// Dir implements [tree.Sink].
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
		return "a link that leads out of the directory, which cannot be copied to the engine", nil
	}
	return "", s.packer.w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeSymlink, Name: full, Linkname: target, Mode: 0o777,
		Uid: s.uid, Gid: s.gid, ModTime: modified, Format: tar.FormatPAX,
	})
}

// Close implements [tree.Sink]. It does not end the archive.
func (s *sink) Close() error { return nil }
