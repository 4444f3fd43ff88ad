package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/collect"
)

const (
	// maxPath is the longest path that Linux takes, in bytes.
	maxPath = 4096
	// maxHeaders bounds the entries that are read, including those that are too deep to
	// be listed.
	maxHeaders = 1_000_000
	// readOn is the largest size of a left out file at which reading it is cheaper than
	// a new request for the entries after it.
	readOn = 1 << 20
)

// Reasons why an archive was not read to its end.
var (
	// ErrCut means that a large file comes next that is left out. The entries after it
	// must be fetched by further requests.
	ErrCut = errors.New("the rest is not worth reading")
	// ErrTooMany means that the limit of entries is exceeded.
	ErrTooMany = errors.New("too many entries")
)

// Unpacker unpacks archives of an untrusted directory: regular files and directories only,
// each a new one, with fixed modes. Other entries, and those that exceed a limit, are listed
// as left out, with the same reasons as if the directory itself had been read.
type Unpacker struct {
	root   *os.Root
	limits collect.Limits
	// room returns how many bytes may still be written here; nil means no bound.
	room func() int64
	// top is the first element of the names in an archive of the whole directory.
	top string

	// Known reports whether a file of this size is exempt from the limits of sizes; nil
	// means that no file is.
	Known func(name string, size int64) bool
	// Refused, if not nil, is called for each entry that is left out, instead of adding
	// it to Skipped. target is the target of a link.
	Refused func(name, kind string, size int64, reason, target string)
	// Resume says that a process may have died while it unpacked the same archive here: what it
	// made is taken, and the file that it did not finish gets its rest. A file of other content
	// stays as it is, and is left out.
	Resume bool
	// Skipped lists the entries that were left out.
	Skipped collect.SkipList
	// modes are the permission bits of the files in the archive, by rendered path.
	modes   map[string]uint32
	seen    map[string]kind
	headers int
	entries int
	total   int64
}

// kind says whether an entry was unpacked.
type kind int

const (
	kindDir     kind = iota + 1 // made here
	kindFile                    // written here
	kindSkipped                 // listed as left out
)

// NewUnpacker returns an Unpacker into root for the directory that the engine calls name.
func NewUnpacker(root *os.Root, name string, limits collect.Limits, room func() int64) *Unpacker {
	return &Unpacker{top: path.Base(name), root: root, limits: limits, room: room, seen: map[string]kind{".": kindDir}, modes: map[string]uint32{}}
}

// Full reports whether the limit of entries is exceeded.
func (u *Unpacker) Full() bool { return u.entries > u.limits.Files }

// Made returns the number of files and directories that were made.
func (u *Unpacker) Made() int {
	made := -1 // without the directory itself
	for _, kind := range u.seen {
		if kind != kindSkipped {
			made++
		}
	}
	return made
}

// Mode returns the permission bits that an unpacked file had in the archive. The path has
// the form of [collect.EncodePath].
func (u *Unpacker) Mode(path string) (uint32, bool) {
	mode, ok := u.modes[path]
	return mode, ok
}

// Unpack unpacks the archive of one entry of the directory, "." for the directory itself,
// as an engine makes it: names begin with the entry's own. An error other than [ErrCut] and
// [ErrTooMany] means that the archive broke off, is not an archive, or that ctx ended.
func (u *Unpacker) Unpack(ctx context.Context, archive io.Reader, at string) error {
	reader := tar.NewReader(archive)
	top := u.top
	if at != "." {
		top = path.Base(at)
	}
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the archive: %w", err)
		}
		if u.headers++; u.headers > maxHeaders {
			return ErrTooMany
		}
		name, ok := inside(header.Name, top, at)
		if !ok {
			u.leave(short(header.Name), "other", 0, "its name in the archive leads out of the directory")
			continue
		}
		if err := u.entry(ctx, reader, header, name, func(link string) (string, bool) { return inside(link, top, at) }); err != nil {
			return err
		}
	}
}

// inside turns a name in the archive of at into a path below the directory. It refuses any
// other name.
func inside(name, top, at string) (string, bool) {
	name = strings.TrimSuffix(name, "/")
	if len(name) > maxPath || strings.ContainsRune(name, 0) || name != path.Clean(name) || path.IsAbs(name) {
		return "", false
	}
	rest, ok := strings.CutPrefix(name+"/", top+"/")
	if !ok {
		return "", false
	}
	full := path.Join(at, rest)
	if full != "." && !filepath.IsLocal(filepath.FromSlash(full)) {
		return "", false
	}
	if os.PathSeparator != '/' && strings.ContainsRune(full, os.PathSeparator) {
		return "", false
	}
	return full, true
}

// short bounds a name of a broken archive in a result.
func short(name string) string { return name[:min(len(name), 200)] }

// entry unpacks one entry, or notes why it is left out.
func (u *Unpacker) entry(ctx context.Context, reader io.Reader, h *tar.Header, name string, inside func(string) (string, bool)) error {
	if name == "." {
		return nil // the directory itself, which exists here
	}
	depth := strings.Count(name, "/") + 1
	if depth > u.limits.Depth+1 {
		return nil // in a directory that is listed as too deep
	}
	if _, twice := u.seen[name]; twice {
		u.leave(name, kindOf(h), 0, "is in the archive twice")
		return nil
	}
	if u.entries++; u.entries > u.limits.Files {
		u.leave(name, "other", 0, u.limits.TooMany())
		return ErrTooMany
	}
	if u.seen[path.Dir(name)] != kindDir {
		u.skip(name, kindOf(h), 0, "its directory is not in the archive")
		return nil
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if depth > u.limits.Depth {
			u.skip(name, "directory", 0, u.limits.TooDeep())
			return nil
		}
		if err := u.dir(name); err != nil {
			u.skip(name, "directory", 0, "cannot be made here: "+fsx.Cause(err).Error())
			return nil
		}
		u.seen[name] = kindDir
		return nil
	case tar.TypeReg:
		if sparse(h) {
			u.skip(name, "file", h.Size, "is a sparse file in the archive, which is refused")
			return nil
		}
		return u.file(ctx, reader, h, name)
	case tar.TypeLink:
		return u.link(ctx, h, name, inside)
	}
	if u.Refused != nil && h.Typeflag == tar.TypeSymlink {
		u.seen[name] = kindSkipped
		u.Refused(name, "symlink", 0, collect.NotRegular, h.Linkname)
		return nil
	}
	reason := collect.NotRegular
	if h.Typeflag == tar.TypeChar && h.Devmajor == 0 && h.Devminor == 0 {
		reason = collect.Whiteout
	}
	u.skip(name, kindOf(h), 0, reason)
	return nil
}

// sparse reports whether a file has bytes that the archive does not hold. Engines write
// complete files.
func sparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

func kindOf(h *tar.Header) string {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeLink, tar.TypeGNUSparse:
		return "file"
	case tar.TypeDir:
		return "directory"
	case tar.TypeSymlink:
		return "symlink"
	case tar.TypeFifo:
		return "fifo"
	case tar.TypeChar, tar.TypeBlock:
		return "device"
	}
	return "other"
}

func (u *Unpacker) skip(name, kind string, size int64, reason string) {
	u.seen[name] = kindSkipped
	u.leave(name, kind, size, reason)
}

// leave notes that an entry is left out.
func (u *Unpacker) leave(name, kind string, size int64, reason string) {
	if u.Refused != nil {
		u.Refused(name, kind, size, reason, "")
		return
	}
	u.Skipped.Add(name, kind, size, reason)
}

// admit returns why a file of this size is left out; empty if it is not.
func (u *Unpacker) admit(name string, size int64) string {
	if u.Known == nil || !u.Known(name, size) {
		if reason := u.limits.Refuse(size, u.total); reason != "" {
			return reason
		}
	}
	if u.room != nil && size > u.room() {
		return "the disk here has no room for it"
	}
	return ""
}

// dir makes one directory. Chmod makes its mode independent of the umask.
func (u *Unpacker) dir(name string) error {
	if err := u.root.Mkdir(name, 0o755); err != nil {
		if info, there := u.root.Lstat(name); u.Resume && there == nil && info.IsDir() {
			return nil
		}
		return err
	}
	return u.root.Chmod(name, 0o755)
}

// file unpacks one regular file.
func (u *Unpacker) file(ctx context.Context, reader io.Reader, h *tar.Header, name string) error {
	if reason := u.admit(name, h.Size); reason != "" {
		u.skip(name, "file", h.Size, reason)
		if h.Size > readOn {
			return ErrCut
		}
		return nil
	}
	readErr, writeErr := u.write(ctx, reader, h.Size, h.Mode, name)
	switch {
	case readErr != nil:
		// The part that was written here was removed, so it does not count.
		u.entries--
		return fmt.Errorf("reading %q from the archive: %w", short(name), readErr)
	case writeErr != nil:
		u.skip(name, "file", h.Size, "cannot be written here: "+fsx.Cause(writeErr).Error())
	default:
		u.taken(name, h.Size, h.Mode)
	}
	return nil
}

func (u *Unpacker) taken(name string, size, mode int64) {
	u.seen[name] = kindFile
	text, _ := collect.EncodePath(name)
	u.modes[text] = uint32(mode & 0o7777)
	if u.Known == nil || !u.Known(name, size) {
		u.total += size
	}
}

// write makes one new file. After an error it removes the incomplete file.
func (u *Unpacker) write(ctx context.Context, from io.Reader, size, mode int64, name string) (readErr, writeErr error) {
	perm := fs.FileMode(0o644)
	if mode&0o111 != 0 {
		perm = 0o755
	}
	read := &countingReader{from: fsx.WithContext(ctx, io.LimitReader(from, size))}
	to, err := u.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|fsx.OpenFlags, perm)
	if u.Resume && errors.Is(err, fs.ErrExist) {
		to, err = u.reopen(name, read)
	}
	if err != nil {
		return read.err, err
	}
	_, err = io.Copy(to, read)
	if readErr = read.err; readErr == nil && err == nil && read.n != size {
		readErr = io.ErrUnexpectedEOF
	}
	writeErr = errors.Join(err, to.Chmod(perm), to.Close())
	if readErr != nil || writeErr != nil {
		writeErr = errors.Join(writeErr, u.root.Remove(name))
	}
	return readErr, writeErr
}

// reopen opens a file that begins as the one that comes, to write the rest of it. Any other file
// stays as it is.
func (u *Unpacker) reopen(name string, from io.Reader) (*os.File, error) {
	file, err := u.root.OpenFile(name, os.O_RDWR|fsx.OpenFlags, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !ours(info) {
		err = fs.ErrExist
	}
	var had, comes [32 << 10]byte
	for at := int64(0); err == nil && at < info.Size(); {
		n := min(info.Size()-at, int64(len(had)))
		if _, err = io.ReadFull(file, had[:n]); err == nil {
			_, err = io.ReadFull(from, comes[:n])
		}
		if err != nil || !bytes.Equal(had[:n], comes[:n]) {
			err = fs.ErrExist
		}
		at += n
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// ours reports whether an entry may be a file that this user made here, and that has no other name.
func ours(info fs.FileInfo) bool {
	_, several := fsx.IDOf(info)
	uid, _, known := fsx.OwnerOf(info)
	return info.Mode().IsRegular() && !several && (!known || uid == os.Geteuid())
}

// countingReader records errors of reading, to distinguish them from errors of writing.
type countingReader struct {
	from io.Reader
	n    int64
	err  error
}

func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	r.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// link unpacks a further name of a file that was unpacked before. The directory here gets a
// copy of the file.
func (u *Unpacker) link(ctx context.Context, h *tar.Header, name string, inside func(string) (string, bool)) error {
	target, ok := inside(h.Linkname)
	if !ok || u.seen[target] == 0 {
		u.skip(name, "file", 0, "is another name of a file that is not in the archive")
		return nil
	}
	if u.seen[target] != kindFile {
		text, _ := collect.EncodePath(target)
		u.skip(name, "file", 0, "is another name of "+text+", which was left out")
		return nil
	}
	from, err := u.root.OpenFile(target, os.O_RDONLY|fsx.OpenFlags, 0)
	if err != nil {
		u.skip(name, "file", 0, "cannot be read here: "+fsx.Cause(err).Error())
		return nil
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil || !info.Mode().IsRegular() {
		u.skip(name, "file", 0, collect.NotRegular)
		return nil
	}
	if reason := u.admit(name, info.Size()); reason != "" {
		u.skip(name, "file", info.Size(), reason)
		return nil
	}
	if err := errors.Join(u.write(ctx, from, info.Size(), h.Mode, name)); err != nil {
		u.skip(name, "file", info.Size(), "cannot be written here: "+fsx.Cause(err).Error())
		return nil
	}
	u.taken(name, info.Size(), h.Mode)
	return nil
}
