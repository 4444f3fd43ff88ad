// Package stage holds what one run has on the host: its record, the copy of its script,
// ./final, working copies, and the space that they may take. It makes these files
// available to the engine, by mounts or by copies, and collects what the program left.
package stage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/collect"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/hostpath"
	"github.com/evalbox/evalbox/sandbox/outcome"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

const (
	// minFree is the free space that the disk of the state directory must have: room for
	// the result and for the first output of the program, in bytes.
	minFree = 64 << 20
	// resultReserve is set aside before the start, so that the result can be written at once even if
	// others fill the disk. Without it such a run has its result only once somebody makes room and
	// adopts it, and its command fails. In bytes.
	resultReserve = 4 << 20
	// maxEntries bounds the names in ./final while the program runs: a million empty
	// files cost the host more than their size says.
	maxEntries = 1_000_000
)

// Options describe the run of a stage.
type Options struct {
	Store  *record.Store
	Engine engine.Engine
	Plan   spec.Spec
	// Verified are the host paths of the run.
	Verified hostpath.Verified
	// Waited says that the container of the run has waited for it: what it has mounted was made by
	// [OpenAhead] and [Stage.SendAhead], and is taken over.
	Waited bool
	// Empty says that Begin empties ./final.
	Empty bool
	// Warn adds a warning to the result. It may be called concurrently.
	Warn func(format string, args ...any)
	// Stop asks for the end of the program. It does not block, and may be called
	// concurrently.
	Stop func(outcome.StopReason)
	Log  *slog.Logger
}

// Stage is the files of one run. Its methods are called by one goroutine, in the order of
// the life of a run.
type Stage struct {
	Options
	// Dir is the directory of the record.
	Dir string
	// Sources are the host paths of the binds, by role.
	Sources engine.Sources

	final *final
	// stays says that the outputs cannot be published.
	stays   bool
	trees   []*workingCopy
	reserve string
	files   carrier
	closed  bool
	// used is 1 more than the last measured size; 0 before the first measurement.
	used atomic.Int64

	bound bound
	// inside is the path of ./final as the engine mounts it.
	inside string
}

// carrier makes the files of a run available to the engine, and brings them back.
type carrier interface {
	// send makes the files available before the container exists, and returns their
	// paths on the engine's machine.
	send(ctx context.Context, labels map[string]string) (engine.Sources, error)
	// ready waits until the disk of ./final can be monitored.
	ready(ctx context.Context) error
	// watch monitors that disk until ctx ends. It does not block.
	watch(ctx context.Context)
	// outputs lists ./final once no program can change it. limited says that the run was
	// stopped at its disk limit.
	outputs(ctx context.Context, limited bool) ([]result.Output, collect.SkipList)
	// tree lists a working copy.
	tree(ctx context.Context, i int, t *workingCopy) (treeState, error)
	// close removes the part of the run that is on the engine. With keep, everything that
	// the container has mounted stays; with left, all of it.
	close(ctx context.Context, keep, left bool) error
}

// Open makes the record of a run and the files that its container mounts. It changes nothing
// of the caller's, except that it creates a missing ./final. After an error nothing is left
// behind.
func Open(o Options) (*Stage, error) {
	create := o.Store.Create
	if o.Waited {
		create = o.Store.Take
	}
	dir, err := create(o.Plan.Job.RunID)
	if err != nil {
		return nil, err
	}
	s := newStage(o, dir)
	// From here on another process can see that this one is at work.
	err = record.WriteJSON(filepath.Join(dir, record.JournalFile),
		record.Journal{Schema: record.JournalSchema, ID: o.Plan.Job.RunID, Owner: owner.This().String(), Created: time.Now().UTC()})
	if err != nil {
		err = record.StateError(dir, "cannot be written", err)
	} else {
		err = s.fill()
	}
	if err != nil {
		return nil, errors.Join(err, s.Discard(context.Background()))
	}
	return s, nil
}

func newStage(o Options, dir string) *Stage {
	s := &Stage{Options: o, Dir: dir, Sources: engine.Sources{}, reserve: filepath.Join(dir, record.ReserveFile)}
	s.files = &mounts{s}
	if s.Copied() {
		s.files = &copies{Stage: s}
	}
	return s
}

// mountedAhead reports whether the container has files of this host mounted already.
func (o Options) mountedAhead() bool { return o.Waited && o.Plan.Class.Transfer != spec.TransferCopy }

// Copied reports whether the files are copied to the engine, instead of mounted.
func (s *Stage) Copied() bool { return s.Plan.Class.Transfer == spec.TransferCopy }

// fill makes the files that the container mounts.
func (s *Stage) fill() (err error) {
	if err := s.reserveSpace(); err != nil {
		return err
	}
	if script := s.Plan.Job.Script; script != "" {
		text, err := readScript(script)
		if err == nil {
			s.Sources[spec.RoleProgram], err = s.writeProgram(text)
		}
		if err != nil {
			return err
		}
	}
	if err := s.checkSources(); err != nil {
		return err
	}
	if !s.mountedAhead() {
		if err := s.openSources(); err != nil {
			return err
		}
	}
	s.final, err = openFinal(s.Options, s.Dir)
	if err != nil {
		return err
	}
	s.inside = s.final.out
	if s.Plan.Job.DiskBound == spec.DiskLoop {
		err = s.makeImage()
	}
	s.Sources[spec.RoleFinal] = s.inside
	return err
}

// checkSources refuses mounted files that the program could not read. It may read copies.
func (s *Stage) checkSources() error {
	if s.Copied() {
		return nil
	}
	user := s.Plan.Class.UserOnHost()
	if input := s.Plan.Job.Input; input != "" {
		if err := checkReadable("input", input, user); err != nil {
			return err
		}
	}
	for _, m := range s.Plan.Job.Mounts {
		if err := checkReadable("mount", m.Source, user); err != nil {
			return err
		}
	}
	return nil
}

// openSources makes what is mounted beside the program and ./final.
func (s *Stage) openSources() error {
	s.Sources[spec.RoleInput] = s.Plan.Job.Input
	if s.Plan.Job.Input == "" && !s.Copied() {
		s.Sources[spec.RoleInput] = filepath.Join(s.Dir, record.EmptyInput)
		if err := fsx.MkdirReadable(s.Sources[spec.RoleInput]); err != nil {
			return record.StateError(s.Dir, "cannot be written", err)
		}
	}
	return s.openMounts()
}

// openMounts makes the file that hides others, the files of accounts, and the mount points in an
// empty input.
func (s *Stage) openMounts() error {
	for i, m := range s.Plan.Job.Mounts {
		s.Sources[spec.NumberedRole(spec.RoleMount, i)] = m.Source
	}
	var err error
	if len(s.Plan.Class.Masks) > 0 {
		s.Sources[spec.RoleEmpty] = filepath.Join(s.Dir, record.EmptyFile)
		err = fsx.WriteReadable(s.Sources[spec.RoleEmpty], "")
	}
	if !s.Copied() {
		err = errors.Join(err, s.openAccounts())
	}
	if err == nil && s.Plan.Job.Input == "" && !s.Copied() {
		err = fsx.MakePoints(s.Sources[spec.RoleInput], pointsOf(s.Plan, spec.InputDir))
	}
	if err != nil {
		return record.StateError(s.Dir, "cannot be written", err)
	}
	return nil
}

// openAccounts makes the files that name the program's user.
func (s *Stage) openAccounts() error {
	dir := filepath.Join(s.Dir, record.AccountsDir)
	err := os.Mkdir(dir, 0o700)
	for _, f := range spec.AccountFiles(s.Plan.Class.User) {
		s.Sources[f.Role] = filepath.Join(dir, f.Role)
		err = errors.Join(err, fsx.WriteReadable(s.Sources[f.Role], f.Text))
	}
	return err
}

// reserveSpace checks that the disk of the record has room, and sets space aside.
func (s *Stage) reserveSpace() error {
	if free, ok := fsx.FreeBytes(s.Dir); ok && free < minFree {
		return fmt.Errorf("state directory %q: %w: %v free, a run needs %v", filepath.Dir(s.Dir), record.ErrNoSpace,
			policy.Size(free), policy.Size(minFree))
	}
	file, err := os.OpenFile(s.reserve, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		err = errors.Join(fsx.Reserve(file, resultReserve), file.Close())
	}
	if err != nil {
		return record.StateError(s.Dir, "cannot be written", err)
	}
	return nil
}

// Send makes the working copies, and all files available to the engine. The journal is
// written by then. The paths that it returns are those of the engine's machine.
func (s *Stage) Send(ctx context.Context, labels map[string]string) (engine.Sources, error) {
	if err := s.openTrees(ctx); err != nil {
		return nil, err
	}
	return s.files.send(ctx, labels)
}

// Ready waits until the disk of ./final can be monitored. It may run while the container
// is prepared.
func (s *Stage) Ready(ctx context.Context) error { return s.files.ready(ctx) }

// Used returns the size of ./final and of the working copies at the last measurement, in bytes; false
// before the first one.
func (s *Stage) Used() (bytes int64, known bool) {
	used := s.used.Load()
	return used - 1, used > 0
}

// noteUsed notes a measurement.
func (s *Stage) noteUsed(bytes int64) { s.used.Store(max(bytes, 0) + 1) }

// Watch monitors the disk of ./final and of the working copies until ctx ends.
func (s *Stage) Watch(ctx context.Context) { s.files.watch(ctx) }

// Begin notes, right before the program starts, that this run is the next one that fills its ./final,
// and empties it if the options say so.
func (s *Stage) Begin(ctx context.Context) error {
	if err := s.final.note(); err != nil || !s.Empty {
		return err
	}
	warning, err := s.final.empty(ctx)
	if warning != "" {
		s.Warn("%s", warning)
	}
	return err
}

// Rollback deletes the outputs of a run whose program never started. There is nothing in them.
func (s *Stage) Rollback() error { return errors.Join(s.closeImage(), s.final.drop()) }

// handBack takes the outputs from the program, whose processes are dead.
func (s *Stage) handBack() fsx.HandedBack {
	handed, err := s.final.handBack()
	if err != nil {
		s.Warn("%v", s.unpublished(fmt.Errorf("not all outputs can be taken back from the program: %w", err)))
		s.stays = true
	}
	if handed.Unlisted > 0 {
		s.Warn("final holds %d entries with more extended attributes than can be listed: they keep them", handed.Unlisted)
	}
	for _, name := range s.final.renamed {
		s.Warn("%s in final has a name that evalbox uses: it is called _%s now", name, name)
	}
	return handed
}

// listAndPublish lists the outputs, and moves them to the ./final of the caller, also if ctx has ended:
// then some of them may be missing. Those of which a process that died has moved some are moved first.
// It moves nothing for a run that is left to another process. A warning has named the error fetched.
func (s *Stage) listAndPublish(ctx context.Context, handed fsx.HandedBack, fetched error) ([]result.Output, collect.SkipList) {
	begun := s.final.state == moving
	if begun {
		s.publish(ctx, handed.Identity)
	}
	root := s.final.outputs()
	if root == nil {
		s.Warn("the outputs are gone from %s", s.final.path)
		return nil, collect.SkipList{}
	}
	outputs, skipped, err := collect.Outputs(ctx, root, outputLimits(s.Plan.Job), handed.Modes)
	if err != nil && fetched == nil {
		s.Warn("outputs are incomplete: %v", fsx.Cause(err))
	}
	if !begun {
		s.publish(ctx, handed.Identity)
	}
	return outputs, skipped
}

// publish moves the outputs to the ./final of the caller.
func (s *Stage) publish(ctx context.Context, was *fsx.Identity) {
	if s.stays || errors.Is(context.Cause(ctx), ErrLeft) {
		return
	}
	warning, err := s.final.publish(context.WithoutCancel(ctx), was)
	if warning != "" {
		s.Warn("%s", warning)
	}
	var late *supersededError
	if errors.As(err, &late) {
		s.Warn("%v", err)
	} else if err != nil {
		s.Warn("%v", s.unpublished(err))
	}
}

// unpublished says where the outputs are that could not be published.
func (s *Stage) unpublished(err error) error {
	return &UnpublishedError{RunID: s.Plan.Job.RunID, Out: s.final.out, Err: err}
}

// Published reports whether nothing is left to be moved to the ./final of the caller.
func (s *Stage) Published() bool {
	return s.final.path == "" || s.final.state >= published
}

// Withdraw removes the copied files from the engine. No container may have them mounted,
// unless the run keeps its container. left says that the container could not be removed: the files
// stay with it, for a process that finishes the run once more.
func (s *Stage) Withdraw(ctx context.Context, left bool) {
	if err := s.files.close(ctx, s.Plan.Job.Keep, left); err != nil {
		s.Warn("volume %s is left behind: %v", spec.VolumeName(s.Plan.Job.RunID), err)
	}
}

// WriteResult writes the result atomically, which makes the run finished, and closes the
// stage. It may be called again, to replace the result.
func (s *Stage) WriteResult(res *result.Result) error {
	text, err := res.Encode()
	if err != nil {
		return errors.Join(fmt.Errorf("encoding the result of run %s: %w", res.ID, err), s.Close())
	}
	// The reserved space is for this file.
	if err := os.Remove(s.reserve); err != nil && !s.closed {
		s.Log.Debug("the reserve could not be removed", "error", err)
	}
	if err = fsx.WriteFile(filepath.Join(s.Dir, record.ResultFile), text, 0o600, true); err != nil {
		err = record.StateError(s.Dir, "cannot be written", err)
	}
	if err == nil {
		s.forget()
	}
	return errors.Join(err, s.Close())
}

// forget removes what only a process that collects again would need.
func (s *Stage) forget() {
	for i := range s.trees {
		for _, file := range []string{record.ChangesFile(s.Dir, i), record.LeftFile(s.Dir, i)} {
			if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				s.Log.Debug("a file of the collection is left behind", "error", err)
			}
		}
	}
}

// Close frees locks and descriptors. The record stays. It may be called again.
func (s *Stage) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	if s.reserve != "" {
		if err := os.Remove(s.reserve); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	errs = append(errs, os.RemoveAll(filepath.Join(s.Dir, record.AccountsDir)), s.final.close())
	for _, t := range s.trees {
		errs = append(errs, t.root.Close())
		if t.inside != nil && t.inside != t.root {
			errs = append(errs, t.inside.Close())
		}
	}
	if s.bound.final != nil {
		errs = append(errs, s.bound.final.Close())
	}
	return errors.Join(errs...)
}

// Discard removes everything that the stage has made, for a run whose program never
// started. The program's user never saw ./final.
func (s *Stage) Discard(ctx context.Context) error {
	return errors.Join(s.files.close(ctx, false, false), s.closeImage(), s.final.discard(), s.Close(), s.Store.Discard(s.Plan.Job.RunID))
}
