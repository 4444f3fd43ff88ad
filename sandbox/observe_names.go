package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
)

// What is shown of the names in hidden folders: so many in a run, and so deep. Each is a
// file of ours, and each folder a watch of the kernel.
const (
	maxShownNames = 1000
	maxShownDepth = 8
)

// innerFolder is a folder that lies in a watched one, and is watched as well.
type innerFolder struct {
	source string
	watch  Watch
}

// nameShower shows the names of what is hidden.
type nameShower struct {
	left  int
	inner []innerFolder
	// cut says that something has more names than are shown.
	cut bool
}

// errEnoughNames ends a walk.
var errEnoughNames = errors.New("no more names are shown")

// show makes decoys with the names of what the watched path hides: without them nothing
// would be there to open, and so nobody would see that somebody tried.
func (s *nameShower) show(ctx context.Context, source string, w Watch, places view) error {
	place, rel, ok := places.at(w.Target)
	if !w.Names || !ok {
		return nil
	}
	err := inFolder(place.source, func(shown *os.Root) error {
		root, err := shown.OpenRoot(filepath.FromSlash(rel))
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it is gone meanwhile
		}
		if err != nil {
			return err
		}
		err = fsx.Walk(ctx, root, func(name string, info fs.FileInfo) (bool, error) { return s.one(source, w, name, info) })
		return errors.Join(err, root.Close())
	})
	if err != nil && !errors.Is(err, errEnoughNames) {
		return &PathError{Field: "mask", Path: filepath.Join(place.source, rel), Rule: "its names cannot be read", Err: fsx.Cause(err)}
	}
	return nil
}

// one makes the decoy of one name, and says whether those below it follow.
func (s *nameShower) one(source string, w Watch, name string, info fs.FileInfo) (into bool, err error) {
	if s.left == 0 {
		s.cut = true
		return false, errEnoughNames
	}
	s.left--
	decoy := filepath.Join(source, filepath.FromSlash(name))
	if !info.IsDir() {
		return false, writeDecoy(decoy, decoyText)
	}
	s.inner = append(s.inner, innerFolder{decoy, Watch{Target: path.Join(w.Target, name), Folder: true, Inner: true}})
	deepest := strings.Count(name, "/")+1 >= maxShownDepth
	s.cut = s.cut || deepest
	return !deepest, mkdirReadable(decoy)
}

// warning tells of names that are not shown; empty if all are.
func (s *nameShower) warning() string {
	if !s.cut {
		return ""
	}
	return fmt.Sprintf("hidden folders may have more names than the %d, in folders at most %d deep, that are shown: whether somebody opens one of the rest is not seen", maxShownNames, maxShownDepth)
}
