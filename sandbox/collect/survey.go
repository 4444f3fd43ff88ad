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

	"github.com/evalbox/evalbox/internal/fsx"
)

// A Visitor is given the entries of a directory by [Survey].
type Visitor interface {
	// Visit gets the result of Lstat for an entry, a directory before its entries.
	Visit(name string, info fs.FileInfo)
	// Leave gets an entry that is left out, with the reason.
	Leave(name, kind string, size int64, reason string)
	// Done is called for a directory below the root that was read, or could not be read.
	Done(name string, err error)
}

// Survey visits all that an untrusted program left below root, level by level, and never
// more or deeper than the limits. Nothing is followed, and nothing but directories is
// opened. The error means that root itself could not be read or that ctx ended.
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
		case err == fs.SkipDir: //nolint:errorlint // of the function above
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

// HashAll hashes files in parallel, as [HashFile] does, and reports them in their order:
// leave gets those that cannot be read. The error is of ctx.
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

// HashFile is the SHA-256 of a file that Lstat found. It opens no other one, and the file
// must not have changed since. It takes set-user-ID and set-group-ID away from the file.
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

// HashUntouched is HashFile for a file of the caller's, which it leaves as it is.
func HashUntouched(ctx context.Context, root *os.Root, name string, listed fs.FileInfo) (string, error) {
	file, _, err := fsx.OpenListed(root, name, listed)
	if err != nil {
		return "", err
	}
	defer file.Close()
	return fsx.Sum(ctx, sha256.New(), file, listed)
}
