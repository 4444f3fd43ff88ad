package stage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/disk"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// bound is what the kernel enforces of the disk limit of a run, beside the size of each file: a
// project quota for each file system that the program writes to, or one file system of its own. It
// has none of both for a run that is only measured.
type bound struct {
	projects []*project
	image    *disk.Image
	// final is ./final as the program has it: the directory in the image, or the real one.
	final *os.Root
	// measuring is held while the use is measured, and while the bound is given back: the last
	// measurement of the monitor may still be on its way. over says that it was given back.
	measuring sync.Mutex
	over      bool
	// reached says that a measurement found the limit reached.
	reached atomic.Bool
	// kept says that the image has something that was not copied, and must stay.
	kept bool
}

// project is a project quota of a run, and the directories that it bounds.
type project struct {
	disk.Project
	device uint64
	dirs   []string
}

// diskBound says how the disk limit of the run is enforced.
func (s *Stage) diskBound() string {
	switch {
	case s.bound.image != nil:
		return spec.DiskLoop
	case len(s.bound.projects) > 0:
		return spec.DiskQuota
	}
	return spec.DiskFileSize
}

// DiskBound says how the disk limit of the run is enforced, for the result.
func (s *Stage) DiskBound() result.DiskBound { return s.enforced }

// Projects are the project quotas that the run has, for the journal.
func (s *Stage) Projects() []record.Project {
	var list []record.Project
	for _, p := range s.bound.projects {
		list = append(list, record.Project{Path: p.Dir, ID: p.ID, Dirs: p.dirs})
	}
	return list
}

// DiskBounds says what can bound the disk space of a run on this machine, with this ./final, empty
// for one in the record, and with trees or without. It changes nothing.
func DiskBounds(final, stateDir string, trees bool) spec.DiskBounds {
	quota := error(nil)
	if final == "" || trees {
		quota = disk.CanQuota(existing(stateDir))
	}
	if final != "" && quota == nil {
		quota = disk.CanQuota(existing(final))
	}
	loop := disk.CanLoop()
	b := spec.DiskBounds{Quota: quota == nil, Loop: loop == nil}
	if quota != nil {
		b.NoQuota = quota.Error()
	}
	if loop != nil {
		b.NoLoop = loop.Error()
	}
	return b
}

// existing is the nearest directory above a path, or the path itself, that exists.
func existing(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// openBound makes the bound that the plan names. Nothing is in it yet.
func (s *Stage) openBound() (err error) {
	s.bound.final = s.final.root
	switch s.Plan.Job.DiskBound {
	case spec.DiskQuota:
		err = s.claimProjects()
	case spec.DiskLoop:
		err = s.makeImage()
	}
	if err != nil && !s.Plan.Job.DiskHard && s.Plan.Job.DiskBound == spec.DiskQuota {
		s.Warn("the disk limit is not a quota in this run: %v", err)
		err = s.releaseProjects()
	}
	s.enforced = result.DiskBound(s.diskBound())
	return err
}

// claimProjects takes a project of each file system that the program writes to.
func (s *Stage) claimProjects() error {
	dirs := []string{s.final.path}
	for i := range s.Plan.Job.Trees {
		dirs = append(dirs, record.LiveTree(s.Dir, i))
	}
	for _, dir := range dirs {
		at := existing(dir)
		var stat unix.Stat_t
		if err := unix.Stat(at, &stat); err != nil {
			return record.StateError(at, "cannot be read", err)
		}
		device := uint64(stat.Dev) //nolint:unconvert // int32 on some platforms
		same := slices.IndexFunc(s.bound.projects, func(p *project) bool { return p.device == device })
		if same < 0 {
			claimed, err := disk.Claim(at, disk.Limit{Bytes: s.Plan.Job.DiskBytes, Entries: maxEntries})
			if claimed.ID != 0 {
				same = len(s.bound.projects)
				s.bound.projects = append(s.bound.projects, &project{Project: claimed, device: device})
			}
			if err != nil {
				return err
			}
		}
		s.bound.projects[same].dirs = append(s.bound.projects[same].dirs, dir)
	}
	return nil
}

// boundDir puts an empty directory under the quota of its file system, if it has one.
func (s *Stage) boundDir(dir string, root *os.Root) error {
	for _, p := range s.bound.projects {
		if slices.Contains(p.dirs, dir) {
			return p.Add(root)
		}
	}
	return nil
}

// releaseProjects takes the directories of the run out of its projects, and gives the projects
// back. Those of which that fails stay, so it may be called again.
func (s *Stage) releaseProjects() error {
	s.bound.measuring.Lock()
	defer s.bound.measuring.Unlock()
	s.bound.over = s.bound.over || len(s.bound.projects) > 0
	var errs []error
	s.bound.projects = slices.DeleteFunc(s.bound.projects, func(p *project) bool {
		err := releaseProject(p.Project, p.dirs)
		errs = append(errs, err)
		return err == nil
	})
	return errors.Join(errs...)
}

func releaseProject(p disk.Project, dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		err := fsx.InRoot(dir, p.Remove)
		if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fsx.Cause(err))
		}
	}
	if err := errors.Join(append(errs, p.Release())...); err != nil {
		return fmt.Errorf("project %d of %s cannot be given back: %w", p.ID, p.Dir, err)
	}
	return nil
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
		return err
	}
	return s.boundDir(t.live, t.root)
}

// sampleBound notes whether the limit is reached. It costs a call or two.
func (s *Stage) sampleBound() {
	s.bound.measuring.Lock()
	defer s.bound.measuring.Unlock()
	if s.bound.over {
		return
	}
	var usages []func() (disk.Usage, error)
	for _, p := range s.bound.projects {
		usages = append(usages, p.Usage)
	}
	if s.bound.image != nil {
		usages = append(usages, s.bound.image.Usage)
	}
	for _, usage := range usages {
		if is, err := usage(); err != nil {
			s.Log.Debug("the use of the disk is unknown", "error", err)
		} else if is.Full {
			s.bound.reached.Store(true)
		}
	}
}

// bringBack copies a directory of the image to the host, once the program has ended. An image with
// more than that stays.
func (s *Stage) bringBack(ctx context.Context, what string, from, to *os.Root) {
	if s.bound.image == nil {
		return
	}
	if err := copyOnce(ctx, from, to); err != nil {
		s.bound.kept = true
		s.Warn("%s is incomplete: %v; all of it is in the file system %s", what, fsx.Cause(err), s.bound.image.File)
	}
}

// copyOnce copies a directory of an image to the host, unless that was done: a controller may have
// died behind it. Nothing is copied over what is there.
func copyOnce(ctx context.Context, from, to *os.Root) error {
	if isCopied(from) {
		return nil
	}
	err := disk.CopyOut(ctx, from, to)
	if err == nil {
		_ = os.WriteFile(copiedMark(from), nil, 0o600) // without it, the next one refuses to copy
	}
	return err
}

// copiedMark is the file beside a directory of an image, where no program can write, that says that
// the directory was copied.
func copiedMark(dir *os.Root) string { return dir.Name() + ".copied" }

func isCopied(dir *os.Root) bool {
	_, err := os.Lstat(copiedMark(dir))
	return err == nil
}

// closeImage unmounts the file system of the run's own, and deletes it unless something in it could
// not be copied. It may be called again.
func (s *Stage) closeImage() error {
	if s.bound.image == nil {
		return nil
	}
	s.bound.measuring.Lock()
	defer s.bound.measuring.Unlock()
	s.bound.over = true
	if s.bound.kept {
		return s.bound.image.Unmount()
	}
	return s.bound.image.Remove()
}

// reclaimBudget bounds the copy out of the file system of a lost run.
const reclaimBudget = 30 * time.Minute

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
func (s *Stage) resumeBound(was record.Journal) (err error) {
	s.inside, s.bound.final = s.final.path, s.final.root
	for _, p := range was.Projects {
		s.bound.projects = append(s.bound.projects, &project{Project: disk.Project{Dir: p.Path, ID: p.ID}, dirs: p.Dirs})
	}
	if s.bound.image, err = openImage(context.Background(), s.Dir); err == nil && s.bound.image != nil {
		s.inside = filepath.Join(s.bound.image.Dir, record.OwnFinal)
		s.bound.final, err = os.OpenRoot(s.inside)
	}
	s.Sources[spec.RoleFinal] = s.inside
	s.enforced = result.DiskBound(s.diskBound())
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

// reclaimImage copies what the program of a lost run left in a file system of its own: ./final, and
// the working copies to the record.
func reclaimImage(recordDir string, final *os.Root) error {
	ctx, cancel := context.WithTimeout(context.Background(), reclaimBudget)
	defer cancel()
	image, err := openImage(ctx, recordDir)
	if err != nil || image == nil {
		return err
	}
	err = fsx.InRoot(filepath.Join(image.Dir, record.OwnFinal), func(from *os.Root) error {
		if names, err := entries(final); !isCopied(from) && (err != nil || len(names) > 0) {
			return errors.Join(err, fmt.Errorf("final %q is not empty; the outputs are in the file system %s", final.Name(), image.File))
		}
		return copyOnce(ctx, from, final)
	})
	for i := 0; err == nil; i++ {
		inside, live := filepath.Join(image.Dir, strconv.Itoa(i)), record.LiveTree(recordDir, i)
		if _, gone := os.Lstat(inside); errors.Is(gone, fs.ErrNotExist) {
			return image.Remove()
		}
		if _, gone := os.Lstat(live); errors.Is(gone, fs.ErrNotExist) {
			continue // its changes are kept already
		}
		err = fsx.InRoot(inside, func(from *os.Root) error {
			return fsx.InRoot(live, func(to *os.Root) error { return copyOnce(ctx, from, to) })
		})
	}
	return errors.Join(err, image.Unmount())
}
