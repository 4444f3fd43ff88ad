// Package collect takes stock of a folder that an untrusted program wrote. It
// follows nothing out of the folder, opens regular files only, and everything it
// reads is bounded; what it leaves out is listed with the reason.
package collect

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/evalbox/evalbox/result"
)

// Limits bound a collection. A zero limit is zero, not "no limit".
type Limits struct {
	// Files bounds the entries of any kind that are listed, Depth the levels
	// of folders below the root.
	Files, Depth int
	// FileBytes and TotalBytes bound the size of one file and of all.
	FileBytes, TotalBytes int64
}

// Outputs lists the regular files below root, sorted by path, with their hashes,
// and what was left out. It must only be called once no process of the program
// is left. The error means that the folder itself could not be read or that ctx
// ended; the lists then hold what was found before.
func Outputs(ctx context.Context, root *os.Root, limits Limits) ([]result.Output, []result.SkippedOutput, error) {
	w := &walker{root: root, limits: limits}
	walkErr := w.walk(ctx)
	slices.SortFunc(w.files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	outputs, hashErr := w.hashAll(ctx)
	return outputs, w.skipped.Sorted(), errors.Join(walkErr, hashErr)
}

type file struct {
	path string
	info fs.FileInfo
}

type folder struct {
	path  string
	depth int
}

type walker struct {
	root    *os.Root
	limits  Limits
	entries int
	total   int64
	files   []file
	skipped SkipList
}

// walk visits folder after folder, never deeper than the limit, and reads each
// in chunks: a folder may hold millions of names.
func (w *walker) walk(ctx context.Context) error {
	queue := []folder{{path: "."}}
	for len(queue) > 0 && w.entries <= w.limits.Files {
		next := queue[0]
		queue = queue[1:]
		below, err := w.readFolder(ctx, next)
		if err != nil {
			if next.path == "." || ctx.Err() != nil {
				return fmt.Errorf("reading the output folder: %w", err)
			}
			w.skipped.Add(next.path, "directory", 0, "cannot be read: "+Cause(err))
		}
		queue = append(queue, below...)
	}
	for _, rest := range queue {
		w.skipped.Add(rest.path, "directory", 0, w.limits.TooMany())
	}
	return nil
}

func (w *walker) readFolder(ctx context.Context, at folder) ([]folder, error) {
	dir, err := w.root.OpenFile(at.path, os.O_RDONLY|OpenFlags, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var below []folder
	for {
		if err := ctx.Err(); err != nil {
			return below, err
		}
		entries, err := dir.ReadDir(256)
		for _, entry := range entries {
			if w.entries++; w.entries > w.limits.Files {
				w.skipped.Add(path.Join(at.path, entry.Name()), "other", 0, w.limits.TooMany())
				return below, nil
			}
			if sub, ok := w.visit(at, entry.Name()); ok {
				below = append(below, sub)
			}
		}
		if errors.Is(err, io.EOF) {
			return below, nil
		}
		if err != nil {
			return below, err
		}
	}
}

// visit sorts one entry: a folder to descend into, a file to hash, or something
// to leave out. Only Lstat is used, so nothing is followed or opened.
func (w *walker) visit(at folder, name string) (folder, bool) {
	full := path.Join(at.path, name)
	if strings.ContainsRune(name, '/') {
		w.skipped.Add(full, "other", 0, "the name holds a slash")
		return folder{}, false
	}
	info, err := w.root.Lstat(full)
	if err != nil {
		w.skipped.Add(full, "other", 0, "cannot be read: "+Cause(err))
		return folder{}, false
	}
	switch mode := info.Mode(); {
	case mode.IsDir() && at.depth >= w.limits.Depth:
		w.skipped.Add(full, "directory", 0, w.limits.TooDeep())
	case mode.IsDir():
		return folder{full, at.depth + 1}, true
	case !mode.IsRegular():
		w.skipped.Add(full, KindOf(mode), 0, NotRegular)
	default:
		if reason := w.limits.Refuse(info.Size(), w.total); reason != "" {
			w.skipped.Add(full, "file", info.Size(), reason)
			return folder{}, false
		}
		w.total += info.Size()
		w.files = append(w.files, file{full, info})
	}
	return folder{}, false
}

// KindOf names what an entry is.
func KindOf(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "directory"
	case mode.IsRegular():
		return "file"
	case mode&fs.ModeSymlink != 0:
		return "symlink"
	case mode&fs.ModeNamedPipe != 0:
		return "fifo"
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeDevice != 0:
		return "device"
	}
	return "other"
}

// hashAll hashes the files in parallel and moves those that fail to the skipped.
func (w *walker) hashAll(ctx context.Context) ([]result.Output, error) {
	sums := make([]string, len(w.files))
	failures := make([]error, len(w.files))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, f := range w.files {
		group.Go(func() error {
			sums[i], failures[i] = HashFile(ctx, w.root, f.path, f.info)
			return ctx.Err()
		})
	}
	err := group.Wait()
	outputs := make([]result.Output, 0, len(w.files))
	for i, f := range w.files {
		if failures[i] != nil {
			w.skipped.Add(f.path, "file", f.info.Size(), "cannot be read: "+Cause(failures[i]))
			continue
		}
		name, raw := EncodePath(f.path)
		outputs = append(outputs, result.Output{
			Path: name, PathBase64: raw, SizeBytes: f.info.Size(), SHA256: sums[i],
			Mode: fmt.Sprintf("%04o", unixMode(f.info.Mode())),
		})
	}
	return outputs, err
}

// unixMode is the permission bits with set-user-ID, set-group-ID and sticky.
func unixMode(mode fs.FileMode) uint32 {
	bits := uint32(mode.Perm())
	for flag, bit := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if mode&flag != 0 {
			bits |= bit
		}
	}
	return bits
}

var errChanged = errors.New("changed while it was read")

// HashFile opens without following a link or waiting for a FIFO's other end,
// checks that the open file is the one that was listed, and reads no more than
// its size. Set-user-ID and set-group-ID are taken away from it.
func HashFile(ctx context.Context, root *os.Root, name string, listed fs.FileInfo) (string, error) {
	return hashFile(ctx, root, name, listed, func(opened *os.File, mode fs.FileMode) error {
		if special := mode & (fs.ModeSetuid | fs.ModeSetgid); special != 0 {
			// A stranger's program must not run with the caller's rights later.
			return opened.Chmod(mode &^ special)
		}
		return nil
	})
}

// HashUntouched is HashFile for a file of the caller's, which it leaves as it is.
func HashUntouched(ctx context.Context, root *os.Root, name string, listed fs.FileInfo) (string, error) {
	return hashFile(ctx, root, name, listed, func(*os.File, fs.FileMode) error { return nil })
}

func hashFile(ctx context.Context, root *os.Root, name string, listed fs.FileInfo, prepare func(*os.File, fs.FileMode) error) (string, error) {
	opened, err := root.OpenFile(name, os.O_RDONLY|OpenFlags, 0)
	if err != nil {
		return "", err
	}
	defer opened.Close()
	before, err := opened.Stat()
	if err != nil {
		return "", err
	}
	if !before.Mode().IsRegular() || !os.SameFile(before, listed) || before.Size() != listed.Size() {
		return "", errChanged
	}
	if err := prepare(opened, before.Mode()); err != nil {
		return "", err
	}
	sum := sha256.New()
	n, err := io.Copy(sum, &contextReader{ctx, io.LimitReader(opened, before.Size()+1)})
	if err != nil {
		return "", err
	}
	after, err := opened.Stat()
	if err != nil {
		return "", err
	}
	if n != before.Size() || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		return "", errChanged
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// CopyHash copies at most size bytes and one more, and returns the hash of what it
// copied.
func CopyHash(to io.Writer, from io.Reader, size int64) (string, error) {
	sum := sha256.New()
	_, err := io.Copy(io.MultiWriter(to, sum), io.LimitReader(from, size+1))
	return hex.EncodeToString(sum.Sum(nil)), err
}

// ShortHash stands for a path in a file name.
func ShortHash(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:8])
}

// contextReader ends a long read when its context ends.
type contextReader struct {
	ctx    context.Context //nolint:containedctx // lives as long as the one read that it interrupts
	reader io.Reader
}

func (r *contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.reader.Read(p)
}

// Cause is the reason of a path error without the path: the path is untrusted
// and stands beside it already.
func Cause(err error) string {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err.Error()
	}
	return err.Error()
}
