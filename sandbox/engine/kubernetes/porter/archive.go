package porter

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Unpack unpacks an archive into a directory: directories, files and symbolic links. They belong to
// this process. A directory that its owner may not write to gets its mode last.
func Unpack(dir string, from io.Reader) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	type late struct {
		name string
		mode fs.FileMode
		time time.Time
	}
	var dirs []late
	archive := tar.NewReader(from)
	for {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		name := path.Clean(head.Name)
		mode := head.FileInfo().Mode().Perm()
		switch head.Typeflag {
		case tar.TypeDir:
			err := root.Mkdir(name, 0o700)
			if errors.Is(err, fs.ErrExist) {
				err = root.Chmod(name, 0o700) // a container that has waited has it mounted
			}
			if err != nil {
				return err
			}
			dirs = append(dirs, late{name, mode, head.ModTime})
		case tar.TypeReg:
			if err := unpackFile(root, name, mode, archive); err != nil {
				return err
			}
			if err := root.Chtimes(name, head.ModTime, head.ModTime); err != nil {
				return err
			}
		case tar.TypeSymlink:
			if err := root.Symlink(head.Linkname, name); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%s: an entry of type %q cannot be unpacked", name, head.Typeflag)
		}
	}
	for _, d := range slices.Backward(dirs) {
		if err := root.Chmod(d.name, d.mode); err != nil {
			return err
		}
		if err := root.Chtimes(d.name, d.time, d.time); err != nil {
			return err
		}
	}
	_, err = io.Copy(io.Discard, from)
	return err
}

// unpackFile writes a file in place: a container may have mounted it already.
func unpackFile(root *os.Root, name string, mode fs.FileMode, content io.Reader) error {
	_ = root.Chmod(name, 0o600) // it may exist, and be read-only
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Chmod(mode), file.Close())
}

// Pack writes the archive of a path below a directory. Names begin with the last element of the
// path, which must not contain a symbolic link. The same files give the same bytes. A file that its
// owner, this process, may not read is readable meanwhile.
// Sockets are left out.
func Pack(dir, name string, to io.Writer) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	at := ""
	for part := range strings.SplitSeq(path.Clean(name), "/") {
		at = path.Join(at, part)
		info, err := root.Lstat(at)
		if err != nil {
			return err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%s is a symbolic link", at)
		}
	}
	p := &packer{root: root, to: tar.NewWriter(to), base: path.Dir(path.Clean(name)), links: map[[2]uint64]string{}}
	return errors.Join(p.entry(path.Clean(name)), p.to.Close())
}

type packer struct {
	root *os.Root
	to   *tar.Writer
	base string
	// links has the first name of each file with several, by device and inode.
	links map[[2]uint64]string
}

func (p *packer) entry(name string) error {
	info, err := p.root.Lstat(name)
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSocket != 0 {
		return nil
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = p.root.Readlink(name); err != nil {
			return err
		}
	}
	head, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	head.Name = strings.TrimPrefix(name, p.base+"/")
	if info.IsDir() {
		head.Name += "/"
	}
	head.AccessTime, head.ChangeTime, head.Uname, head.Gname, head.Format = time.Time{}, time.Time{}, "", "", tar.FormatPAX
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() && stat.Nlink > 1 {
		key := [2]uint64{uint64(stat.Dev), stat.Ino} //nolint:unconvert // int32 on some platforms
		if first, again := p.links[key]; again {
			head.Typeflag, head.Linkname, head.Size = tar.TypeLink, first, 0
			return p.to.WriteHeader(head)
		}
		p.links[key] = head.Name
	}
	switch {
	case info.Mode().IsRegular():
		return p.file(name, head, info.Mode())
	case info.IsDir():
		return p.dir(name, head, info.Mode())
	}
	return p.to.WriteHeader(head)
}

func (p *packer) file(name string, head *tar.Header, mode fs.FileMode) error {
	if mode.Perm()&0o400 == 0 {
		if err := p.root.Chmod(name, mode|0o400); err != nil {
			return err
		}
		defer func() { _ = p.root.Chmod(name, mode) }() // so that the archive is the same next time
	}
	file, err := p.root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := p.to.WriteHeader(head); err != nil {
		return err
	}
	_, err = io.CopyN(p.to, file, head.Size)
	return err
}

func (p *packer) dir(name string, head *tar.Header, mode fs.FileMode) error {
	if err := p.to.WriteHeader(head); err != nil {
		return err
	}
	if mode.Perm()&0o500 != 0o500 {
		if err := p.root.Chmod(name, mode|0o500); err != nil {
			return err
		}
		defer func() { _ = p.root.Chmod(name, mode) }()
	}
	dir, err := p.root.Open(name)
	if err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	if err := errors.Join(err, dir.Close()); err != nil {
		return err
	}
	slices.Sort(names)
	for _, each := range names {
		if err := p.entry(path.Join(name, each)); err != nil {
			return err
		}
	}
	return nil
}
