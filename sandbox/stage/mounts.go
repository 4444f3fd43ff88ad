package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/collect"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/outcome"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/tree"
)

// diskPeriod is the time between two measurements of the disk.
const diskPeriod = 250 * time.Millisecond

// mounts is the carrier of an engine that mounts the host's directories.
type mounts struct{ *Stage }

// send copies the trees into the record, for the program's user.
func (m *mounts) send(ctx context.Context, _ map[string]string) (engine.Sources, error) {
	if len(m.trees) == 0 {
		return m.Sources, nil
	}
	uid, gid, err := numericUser(m.Plan.Class.UserOnHost())
	if err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		if uid != os.Geteuid() {
			return nil, &policy.FieldError{Field: "user", Value: m.Plan.Class.User, Rule: "cannot be given a tree; leave --user out, or run as root"}
		}
		uid, gid = -1, -1
	}
	err = m.copyTrees(ctx, func(_ int, t *workingCopy) (tree.Sink, error) { return tree.NewDirSink(t.inside, uid, gid), nil })
	return m.Sources, err
}

func (m *mounts) ready(context.Context) error { return nil }

func (m *mounts) close(context.Context, bool, bool) error { return nil }

func (m *mounts) watch(ctx context.Context) {
	go m.watchDisk(ctx)
	go m.watchFreeSpace(ctx)
}

// watchDisk ends a run that fills the host's disk through ./final and its working copies:
// a bind mount has no quota of its own. It cannot see a file that was deleted and is still
// open, so the free space of the disk is watched as well.
func (m *mounts) watchDisk(ctx context.Context) {
	period := diskPeriod
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(period):
		}
		began := time.Now()
		m.sampleBound()
		if m.overfull(ctx) {
			m.Stop(outcome.StopDiskLimit)
			return
		}
		period = nextPeriod(began)
	}
}

// watchFreeSpace ends a run when the disk of ./final, or that of its working copies, is
// nearly full.
func (m *mounts) watchFreeSpace(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(diskPeriod):
		}
		for _, dir := range []string{m.final.out, m.Dir} {
			if free, known := fsx.FreeBytes(dir); known && free < minFree/2 && (dir != m.Dir || len(m.trees) > 0 || m.bound.image != nil) {
				m.Stop(outcome.StopDiskFull)
				return
			}
		}
	}
}

// overfull reports whether the program holds more on this disk than it may.
func (m *mounts) overfull(ctx context.Context) bool {
	roots := []*os.Root{m.writtenFinal()}
	for _, t := range m.trees {
		roots = append(roots, t.inside)
	}
	var bytes int64
	var entries int
	for _, root := range roots {
		if root == nil { // ./final was removed behind its outputs
			continue
		}
		b, n := collect.Usage(ctx, root, m.Plan.Job.DiskBytes, maxEntries)
		bytes, entries = bytes+b, entries+n
	}
	m.noteUsed(bytes)
	return bytes > m.Plan.Job.DiskBytes || entries > maxEntries
}

func (m *mounts) outputs(ctx context.Context, limited bool) ([]result.Output, collect.SkipList) {
	if m.final.state == arriving {
		m.bringBack(ctx, "final", m.writtenFinal(), m.final.root)
	}
	// First of all: it takes back our access, which the program may have removed.
	handed := m.handBack()
	if !limited && m.overfull(ctx) {
		m.overLimit()
	}
	return m.listAndPublish(ctx, handed, nil)
}

func (m *mounts) tree(ctx context.Context, _ int, t *workingCopy) (treeState, error) {
	// A program may have removed our access to its own directory.
	_ = os.Chmod(t.live, 0o755) // an error shows when it is read
	m.bringBack(ctx, "tree "+t.job.Target, t.inside, t.root)
	return tree.List(ctx, t.root, t.base, outputLimits(m.Plan.Job))
}

// A NotSharedError says that the engine mounted something other than the host's files, or
// does not have them.
type NotSharedError struct {
	// Some says that the engine has some of the files: it may have all of the next run.
	Some bool
	Err  error
}

func (e *NotSharedError) Error() string {
	return "the engine does not see the files of this machine: " + e.Err.Error()
}

func (e *NotSharedError) Unwrap() error { return e.Err }

// CheckMounted compares what the container's init sees at its mounts with the host's files:
// the engine mounts by name, and may have another file system. A runtime with its own
// kernel has its own inode numbers, but shows the time of a file's last change. The error
// is a [*NotSharedError], or a [*spec.PathError] of a file that was replaced.
func (s *Stage) CheckMounted(ready wire.Ready) error {
	if s.Copied() {
		return nil
	}
	if err := s.Verified.Check(); err != nil {
		return err
	}
	sameKernel := ready.BootID == owner.BootID()
	if !sameKernel && !spec.OwnKernel(s.Plan.Class.Runtime) {
		return &NotSharedError{Err: errors.New("it is on another machine")}
	}
	some := false
	var differs error
	for _, bind := range s.Plan.Class.Binds {
		inside, known := ready.Stats[bind.Target]
		if !known || inside.Errno != 0 {
			continue
		}
		source := s.Sources[bind.Role]
		if info, err := os.Lstat(source); err == nil && sameFile(info, inside, sameKernel) {
			some = true
			continue
		}
		if err := s.Verified.CheckAt(source); err != nil {
			return err
		}
		differs = fmt.Errorf("%s is not %q of this machine", bind.Target, source)
	}
	if differs != nil {
		return &NotSharedError{Some: some, Err: differs}
	}
	return nil
}
