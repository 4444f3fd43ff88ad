package stage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/disk"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// bound is the file system of a run's own, which is as large as its disk limit. It is empty for a run
// whose files are only measured, beside the size limit of each file.
type bound struct {
	image *disk.Image
	// final is the ./final of the image.
	final *os.Root
	// reached says that a measurement found the limit reached.
	reached atomic.Bool
	// kept says that the image has something that was not copied, and must stay.
	kept bool
}

// writtenFinal is the ./final that the program writes to: the one of the image, or the real one.
func (s *Stage) writtenFinal() *os.Root {
	if s.bound.image != nil {
		return s.bound.final
	}
	return s.final.outputs()
}

// imageOf is the file system of a run's own, in its record.
func imageOf(recordDir string) disk.Image {
	return disk.Image{File: filepath.Join(recordDir, record.DiskImage), Dir: filepath.Join(recordDir, record.DiskDir)}
}

// makeImage makes a file system of the size of the disk limit, with a ./final for the program.
func (s *Stage) makeImage() error {
	image := imageOf(s.Dir)
	if err := image.Create(context.Background(), disk.Limit{Bytes: s.Plan.Job.DiskBytes, Entries: maxEntries}); err != nil {
		return err
	}
	s.bound.image = &image
	dir, root, err := s.inImage(record.OwnFinal)
	if err == nil {
		s.bound.final, s.inside = root, dir
	}
	return err
}

// inImage makes a directory in the image, for the program's user.
func (s *Stage) inImage(name string) (string, *os.Root, error) {
	uid, gid, err := numericUser(s.Plan.Class.UserOnHost())
	if err != nil {
		return "", nil, err
	}
	dir := filepath.Join(s.bound.image.Dir, name)
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Lchown(dir, uid, gid)); err != nil {
		return "", nil, record.StateError(dir, "cannot be made", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", nil, record.StateError(dir, "cannot be opened", err)
	}
	return dir, root, nil
}

// boundTree makes the place of a working copy that the program changes.
func (s *Stage) boundTree(i int, t *workingCopy) (err error) {
	t.inside, t.insideDir = t.root, t.live
	if s.bound.image != nil {
		t.insideDir, t.inside, err = s.inImage(strconv.Itoa(i))
	}
	return err
}

// sampleBound notes whether the limit is reached. It costs one call.
func (s *Stage) sampleBound() {
	if s.bound.image == nil {
		return
	}
	usage, err := s.bound.image.Usage()
	if err != nil {
		s.Log.Debug("the use of the disk is unknown", "error", err)
	}
	if usage.Full {
		s.bound.reached.Store(true)
	}
}

// bringBack copies a directory of the image to the host, once the program has ended. An image with
// more than that stays.
func (s *Stage) bringBack(ctx context.Context, what string, from, to *os.Root) {
	if s.bound.image == nil {
		return
	}
	if err := copyOut(ctx, from, to); err != nil {
		s.bound.kept = true
		s.Warn("%s is incomplete: %v; all of it is in the file system %s", what, fsx.Cause(err), s.bound.image.File)
	}
}

// copyOut copies a directory of an image to the host, where a controller that died may have copied a
// part of it.
func copyOut(ctx context.Context, from, to *os.Root) error {
	if err := fsx.Empty(to); err != nil {
		return err
	}
	return disk.CopyOut(ctx, from, to)
}

// closeImage unmounts the file system of the run's own, and deletes it unless something in it could
// not be copied. It may be called again.
func (s *Stage) closeImage() error {
	if s.bound.image == nil {
		return nil
	}
	if s.bound.kept {
		return s.bound.image.Unmount()
	}
	return s.bound.image.Remove()
}

// openImage mounts the file system of a run whose controller died, if it had one.
func openImage(ctx context.Context, recordDir string) (image *disk.Image, err error) {
	i := imageOf(recordDir)
	switch err := i.Open(ctx); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("the file system of the run: %w", err)
	}
	return &i, nil
}

// resumeBound opens what bounded the program of a dead controller, for one that goes on with its
// run. The working copies follow in resumeBoundTree.
func (s *Stage) resumeBound() (err error) {
	s.inside = s.final.out
	if s.bound.image, err = openImage(context.Background(), s.Dir); err == nil && s.bound.image != nil {
		s.inside = filepath.Join(s.bound.image.Dir, record.OwnFinal)
		s.bound.final, err = os.OpenRoot(s.inside)
	}
	s.Sources[spec.RoleFinal] = s.inside
	return err
}

// resumeBoundTree opens the place of a working copy of a dead controller's run.
func (s *Stage) resumeBoundTree(i int, t *workingCopy) (err error) {
	t.inside, t.insideDir = t.root, t.live
	if s.bound.image != nil {
		t.insideDir = filepath.Join(s.bound.image.Dir, strconv.Itoa(i))
		t.inside, err = os.OpenRoot(t.insideDir)
	}
	return err
}
