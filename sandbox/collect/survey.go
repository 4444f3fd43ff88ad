package collect

import (
	"context"
	"crypto/sha256"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/fsx"
)

// A Visitor is given the entries of a directory by [Survey].
type Visitor interface {
	// Visit is called with the result of Lstat for an entry, a directory before its
	// entries.
	Visit(name string, info fs.FileInfo)
	// Leave is called for an entry that is left out.
	Leave(name, kind string, size int64, reason string)
	// Done is called for a directory after its names were read, or with the error; "." is
	// the root.
	Done(name string, err error)
}

// Survey visits the entries that an untrusted program left below root, level by level,
// within the limits of number and depth. It follows no links, and opens directories only.
// The error means that root itself could not be read, or that ctx ended.
func Survey(ctx context.Context, root *os.Root, limits Limits, v Visitor) error {
	entries, queue := 0, []string{"."}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		if entries > limits.Files {
			v.Leave(at, "directory", 0, limits.TooMany())
			continue
		}
		err := fsx.ReadDir(ctx, root, at, func(name string) error {
			full := path.Join(at, name)
			if entries++; entries > limits.Files {
				v.Leave(full, "other", 0, limits.TooMany())
				return fs.SkipDir
			}
			if strings.ContainsRune(name, '/') {
				v.Leave(full, "other", 0, "the name holds a slash")
				return nil
			}
			info, err := root.Lstat(full)
			switch {
			case err != nil:
				v.Leave(full, "other", 0, unreadable(err))
			case info.IsDir() && strings.Count(full, "/") >= limits.Depth:
				v.Leave(full, "directory", 0, limits.TooDeep())
			case info.IsDir():
				queue = append(queue, full)
				v.Visit(full, info)
			default:
				v.Visit(full, info)
			}
			return nil
		})
		switch {
		case err == fs.SkipDir: //nolint:errorlint // from the function above
		case err != nil && (at == "." || ctx.Err() != nil):
			return err
		default:
			v.Done(at, err)
		}
	}
	return nil
}

func unreadable(err error) string { return "cannot be read: " + fsx.Cause(err).Error() }

// A File is a regular file as it was listed.
type File struct {
	Name string
	Info fs.FileInfo
}

// HashAll hashes files in parallel, and reports them in their order: to hashed, or to leave
// if a file cannot be read. It takes set-user-ID and set-group-ID away from the files. The
// error is that of ctx.
func HashAll(ctx context.Context, root *os.Root, files []File, leave func(name, kind string, size int64, reason string), hashed func(f File, sum string)) error {
	sums, failures := make([]string, len(files)), make([]error, len(files))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, f := range files {
		group.Go(func() error {
			sums[i], failures[i] = hashFile(ctx, root, f.Name, f.Info)
			return ctx.Err()
		})
	}
	err := group.Wait()
	for i, f := range files {
		if failures[i] != nil {
			leave(f.Name, "file", f.Info.Size(), unreadable(failures[i]))
		} else {
			hashed(f, sums[i])
		}
	}
	return err
}

// hashFile returns the SHA-256 of a file that Lstat found, in hexadecimal. The file must
// not have been replaced or changed since. hashFile takes set-user-ID and set-group-ID
// away from it.
func hashFile(ctx context.Context, root *os.Root, name string, listed fs.FileInfo) (string, error) {
	file, info, err := fsx.OpenListed(root, name, listed)
	if err != nil {
		return "", err
	}
	defer file.Close()
	if special := info.Mode() & (fs.ModeSetuid | fs.ModeSetgid); special != 0 {
		// An untrusted program must not run with the caller's rights later.
		if err := file.Chmod(info.Mode() &^ special); err != nil {
			return "", err
		}
	}
	return fsx.Sum(ctx, sha256.New(), file, listed)
}

// HashUntouched returns the SHA-256 of a file that Lstat found, in hexadecimal. It does not
// change the file, which must not have been replaced or changed since.
func HashUntouched(ctx context.Context, root *os.Root, name string, listed fs.FileInfo) (string, error) {
	file, _, err := fsx.OpenListed(root, name, listed)
	if err != nil {
		return "", err
	}
	defer file.Close()
	return fsx.Sum(ctx, sha256.New(), file, listed)
}

// maxCounted bounds the entries that are looked at to count files.
const maxCounted = 1_000_000

// countFiles counts the entries below root that are not directories, up to maxCounted entries. cut says
// that it has not seen all.
func countFiles(ctx context.Context, root *os.Root) (files int, cut bool) {
	entries := 0
	more := func() bool { return ctx.Err() == nil && entries < maxCounted }
	err := fsx.Visit(root, more, func(v fsx.Visited) error {
		if entries++; v.Stat.Mode&unix.S_IFMT != unix.S_IFDIR {
			files++
		}
		return nil
	})
	return files, err != nil || !more() // what cannot be read cannot be counted
}

// Usage adds up the disk space below root. The program may still be writing; an entry that
// vanishes meanwhile is not an error. Usage stops once either number exceeds its bound. Its
// time grows with the number of entries and not with their depth, because a program must
// not be able to keep it busy.
func Usage(ctx context.Context, root *os.Root, maxBytes int64, maxEntries int) (bytes int64, entries int) {
	more := func() bool { return ctx.Err() == nil && bytes <= maxBytes && entries <= maxEntries }
	// An entry that cannot be read has vanished, or the program has made it unreadable.
	_ = fsx.Visit(root, more, func(v fsx.Visited) error {
		entries++
		stat := v.Stat
		if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
			// The size of a sparse file is not the space that it uses. A file of several
			// names uses its space once. All its names are below root, since hard links
			// cannot leave a mount.
			bytes += int64(stat.Blocks) * 512 / max(1, int64(stat.Nlink)) //nolint:unconvert // int32 on some platforms
		}
		return nil
	})
	return bytes, entries
}
