// Package archive turns folders into archives and archives into folders, for an
// engine that does not share our file system. What comes back was written by an
// untrusted program: it is read entry by entry, and everything is bounded.
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
)

// Names of the folders of an archive for the engine.
const (
	ProgramDir = "program"
	InputDir   = "input"
	// OutDir holds all that the program may write.
	OutDir   = "out"
	FinalDir = "out/final"
	TreesDir = "out/trees"
	// MountsDir holds further files and folders, EmptyFile is what hides files.
	MountsDir = "mounts"
	EmptyFile = "empty"
)

// maxOmitted bounds the list of what an input leaves out.
const maxOmitted = 20

// Packer writes the archive that fills the engine's folder for one run. Program
// and input belong to root there and may be read by everybody: the program's user
// can read them, and nobody in the container can change them.
type Packer struct {
	w *tar.Writer
	// Omitted says what of the input was left out, and why.
	Omitted []string
	more    int
	// hidden are the paths below the root of a tree that are sent empty.
	hidden func(name string) bool
}

// NewPacker writes to w.
func NewPacker(w io.Writer) *Packer { return &Packer{w: tar.NewWriter(w)} }

// Close ends the archive.
func (p *Packer) Close() error {
	if p.more > 0 {
		p.Omitted = append(p.Omitted, fmt.Sprintf("%d further entries", p.more))
		p.more = 0
	}
	return p.w.Close()
}

// Folder adds an empty folder.
func (p *Packer) Dir(name string, uid, gid int, mode fs.FileMode) error {
	return p.w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeDir, Name: name + "/", Mode: int64(mode.Perm()), Uid: uid, Gid: gid, ModTime: time.Unix(0, 0),
		Format: tar.FormatPAX,
	})
}

// File adds one file of root; it is opened below root and must not change.
func (p *Packer) File(name string, root *os.Root, from string) error {
	info, err := root.Lstat(from)
	if err != nil {
		return err
	}
	return p.file(name, root, from, info)
}

// Empty adds an empty file of root.
func (p *Packer) Empty(name string) error {
	return p.w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o444, ModTime: time.Unix(0, 0), Format: tar.FormatPAX})
}

// Tree adds what lies below root: folders, regular files, and links as links. A
// file that cannot be read is an error; what is no file is omitted, and so is a
// link that leads out of the folder, which would lead nowhere in the container.
//
// What is hidden is there, and empty; nil hides nothing.
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
			p.omit(from, "a link that leads out of the folder")
			return false, nil
		}
		return false, p.w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777, ModTime: info.ModTime(), Format: tar.FormatPAX,
		})
	}
	p.omit(from, "not a file, a folder or a link")
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

// escapes reports whether an engine would refuse a link, and with it the whole
// archive: it wants relative targets, and joins absolute ones, to stay below the
// folder that the archive is unpacked in.
func escapes(name, target string) bool {
	full := path.Join("/", "root", path.Dir(name)) + "/" + target
	return !strings.HasPrefix(path.Clean(full)+"/", "/root/")
}

// file streams one regular file. Its size stands in the header before its
// bytes, so that a file that grows or shrinks meanwhile cannot be sent.
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
	// One byte more than there should be tells a file that has grown.
	n, err := io.Copy(p.w, io.LimitReader(file, info.Size()))
	if err != nil {
		return err
	}
	var one [1]byte
	if more, _ := file.Read(one[:]); n != info.Size() || more > 0 {
		return &fs.PathError{Op: "read", Path: from, Err: fsx.ErrChanged}
	}
	return nil
}
