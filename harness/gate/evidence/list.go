package evidence

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxFiles bounds how many files a gate directory has.
const maxFiles = 100_000

var errManyFiles = fmt.Errorf("the gate directory has more than %d files", maxFiles)

// entry is what lies in a gate directory and is no folder.
type entry struct {
	name string
	mode fs.FileMode
	// problem says why it cannot be evidence; empty for a regular file.
	problem string
}

// list returns what nodes 1 to 4 left, sorted: everything in [Dir] but the manifest
// itself, and the two files beside it that they write. Nothing is followed.
func list(ctx context.Context, root *os.Root) ([]entry, error) {
	var found []entry
	add := func(name string, mode fs.FileMode) error {
		e := entry{name: name, mode: mode}
		switch {
		case !utf8.ValidString(name) || strings.Contains(name, `\`):
			e.problem = "has a name that cannot be listed"
		case !mode.IsRegular():
			e.problem = kindProblem(mode)
		}
		if found = append(found, e); len(found) > maxFiles {
			return errManyFiles
		}
		return nil
	}
	for _, name := range []string{WishLockFile, RunManifestFile, Dir} {
		info, err := root.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, err
		case name != Dir || !info.IsDir():
			if err := add(name, info.Mode()); err != nil {
				return nil, err
			}
		default:
			if err := listFolder(ctx, root.FS(), add); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(found, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return found, nil
}

func listFolder(ctx context.Context, files fs.FS, add func(string, fs.FileMode) error) error {
	return fs.WalkDir(files, Dir, func(name string, at fs.DirEntry, err error) error {
		switch {
		case context.Cause(ctx) != nil:
			return context.Cause(ctx)
		case err != nil && !fs.ValidPath(name):
			return add(name, fs.ModeIrregular) // a folder with a name that no path can have
		case err != nil:
			return err
		case at.IsDir() || name == ManifestFile && at.Type().IsRegular():
			return nil
		}
		return add(name, at.Type())
	})
}
