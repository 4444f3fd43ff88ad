package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/archive"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/outcome"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

const (
	// PartSlack is how long after the time limit the helper containers and the staging
	// volume of a run may still exist before a garbage collection that cannot see their
	// owner considers it dead. They exist before the run's container, from the first
	// copied file, and after it.
	PartSlack = 24 * time.Hour
	// cleanupBudget bounds the removal of a staging volume.
	cleanupBudget = time.Minute
	// fillBudget bounds the copying of files to the engine.
	fillBudget = PartSlack / 2
	// monitorPatience is how long a monitor that is being created keeps a canceled run from its end.
	monitorPatience = 5 * time.Second
	// helperTries is how often a helper container is recreated for one transfer.
	helperTries = 3
)

// copies is the carrier of an engine that does not share this host's file system. The run
// has a staging volume on the engine's machine, whose paths the container mounts. A helper
// container, never started, fills and reads it, and a disk monitor measures it.
type copies struct {
	*Stage
	labels map[string]string
	// opened says that there may be a volume of this run, taken that the volume's name
	// belongs to another run.
	// resumed says that a controller that died may have fetched a part of it.
	opened, taken, resumed bool
	monitor                *monitor
	// connected receives the result of the first connection of the monitor, once it is not
	// asked any more about the transfer.
	connected chan error
	// stopConnecting ends that connection.
	stopConnecting context.CancelFunc
	// sent counts the bytes of the archive that were sent.
	sent atomic.Int64
	// empty is the disk usage of an empty ./final, in bytes.
	empty int64
	// watching is the monitoring of a running program; stopWatching ends it.
	watching     sync.WaitGroup
	stopWatching context.CancelFunc
}

// copier returns the engine as a [engine.Copier]. Any other engine has no staging volumes.
func copier(e engine.Engine) (engine.Copier, error) {
	if c, ok := e.(engine.Copier); ok {
		return c, nil
	}
	return nil, fmt.Errorf("%w: files cannot be copied to this engine", engine.ErrUnenforceable)
}

// Volumes lists the staging volumes on an engine.
func Volumes(ctx context.Context, e engine.Engine) ([]engine.Volume, error) {
	if c, err := copier(e); err == nil {
		return c.Volumes(ctx)
	}
	return nil, nil
}

// RemoveVolume removes the staging volume of a run, with its helper containers. It is
// idempotent.
func RemoveVolume(ctx context.Context, e engine.Engine, runID string) error {
	if c, err := copier(e); err == nil {
		return c.RemoveVolume(ctx, runID)
	}
	return nil
}

// send makes the staging volume and fills it, before the run's container exists. One that has waited
// has the volume.
func (c *copies) send(ctx context.Context, labels map[string]string) (engine.Sources, error) {
	to, err := copier(c.Engine)
	if err != nil {
		return nil, err
	}
	c.labels, c.opened = labels, true
	c.monitor = &monitor{engine: to, plan: c.Plan, labels: labels, log: c.Log}
	var root string
	if !c.Waited {
		if root, err = to.CreateVolume(context.WithoutCancel(ctx), c.Plan, labels); err != nil {
			c.taken = errors.Is(err, engine.ErrNameTaken)
			return nil, err
		}
	}
	// Connect concurrently: the monitor takes as long to start as a few files take to be
	// sent.
	sending, abort := context.WithCancelCause(ctx)
	sent := make(chan struct{})
	c.connected = make(chan error, 1)
	var connecting context.Context
	connecting, c.stopConnecting = context.WithCancel(context.WithoutCancel(ctx))
	go func() { c.connected <- c.watchFill(connecting, sent, abort) }()
	err = c.fill(sending, to)
	close(sent)
	if err != nil {
		if ctx.Err() != nil {
			// The monitor of an engine that has no machine for it yet may wait for hours. One that is
			// just being created is left alone, because the engine would make it after its removal.
			defer time.AfterFunc(monitorPatience, c.stopConnecting).Stop()
		}
		watchErr := <-c.connected
		switch {
		case ctx.Err() != nil:
			return nil, outcome.Canceled(ctx)
		case sending.Err() != nil:
			return nil, c.monitorError(watchErr)
		}
		return nil, errors.Join(err, watchErr)
	}
	abort(nil)
	c.Log.Debug("files copied to the engine")
	if c.Waited {
		return nil, nil
	}
	return archive.Sources(root, c.Plan), nil
}

// errFillBudget means that the copying took too long in total, although it never stalled.
var errFillBudget = fmt.Errorf("sending the files to the engine took longer than %v", fillBudget)

// fill sends program, input, mounts, trees and an empty ./final to the engine.
func (c *copies) fill(ctx context.Context, to engine.Copier) error {
	ctx, cancel := context.WithTimeoutCause(ctx, fillBudget, errFillBudget)
	defer cancel()
	var omitted []string
	err := c.withHelper(ctx, to, func() (err error) {
		omitted, err = c.sendArchive(ctx, to)
		return err
	})
	for _, each := range omitted {
		c.Warn("%s", each)
	}
	if err != nil && errors.Is(context.Cause(ctx), errFillBudget) {
		return errFillBudget
	}
	return err
}

// withHelper repeats do after the helper container was removed: it never runs, so others
// remove it first when they tidy up the engine.
func (c *copies) withHelper(ctx context.Context, to engine.Copier, do func() error) error {
	err := do()
	for range helperTries {
		if !errors.Is(err, engine.ErrNoContainer) || ctx.Err() != nil {
			return err
		}
		c.Log.Debug("the helper container is gone", "error", err)
		if againErr := to.RecreateHelper(context.WithoutCancel(ctx), c.Plan, c.labels); againErr != nil {
			return errors.Join(err, againErr)
		}
		err = do()
	}
	return err
}

// sendArchive sends the files as they are read. It returns warnings about files that are
// left out.
func (c *copies) sendArchive(ctx context.Context, to engine.Copier) (omitted []string, err error) {
	reader, writer := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		var err error
		omitted, err = c.pack(ctx, writer)
		packed <- err
		_ = writer.CloseWithError(err) // never fails
	}()
	c.sent.Store(0)
	count := writerFunc(func(p []byte) (int, error) {
		c.sent.Add(int64(len(p)))
		return len(p), nil
	})
	sendErr := to.FillVolume(ctx, c.Plan.Job.RunID, io.TeeReader(reader, count))
	_ = reader.CloseWithError(errors.Join(sendErr, io.ErrClosedPipe)) // never fails
	packErr := <-packed
	var cannot *spec.PathError
	switch {
	case errors.As(packErr, &cannot):
		return omitted, cannot
	case sendErr != nil:
		return omitted, sendErr
	}
	return omitted, packErr
}

// watchFill starts the monitor and measures the engine's disk until the files are sent. If
// there is no room for the rest of them, or the disk cannot be measured, it aborts.
func (c *copies) watchFill(ctx context.Context, sent <-chan struct{}, abort context.CancelCauseFunc) error {
	err := c.monitor.connect(ctx)
	total := c.bytesToSend(sent)
	for err == nil {
		select {
		case <-sent:
			return nil
		default:
		}
		rest := max(total-c.sent.Load(), 0)
		var free int64
		if free, err = c.monitor.free(ctx); err == nil {
			err = engineSpace(free, rest+minFree)
		}
		if err != nil {
			break
		}
		select {
		case <-sent:
		case <-time.After(diskPeriod):
		}
	}
	abort(err)
	return err
}

// engineSpace refuses an engine's disk that has too little room.
func engineSpace(free, need int64) error {
	if free >= need {
		return nil
	}
	return &engineSpaceError{free: policy.Size(free), need: policy.Size(need)}
}

// An engineSpaceError is a [record.ErrNoSpace] of the engine's disk.
type engineSpaceError struct{ free, need policy.Size }

func (e *engineSpaceError) Error() string {
	return fmt.Sprintf("the engine's disk: %v: %v free, a run needs %v", record.ErrNoSpace, e.free, e.need)
}

func (e *engineSpaceError) Unwrap() error { return record.ErrNoSpace }

// Hint names a way out.
func (e *engineSpaceError) Hint() string {
	return "see what takes the space of the engine with: docker system df"
}

// bytesToSend is the size of the files that are to be sent, as far as it is known before
// they are sent.
func (c *copies) bytesToSend(sent <-chan struct{}) (total int64) {
	sources := []string{c.Plan.Job.Input}
	for _, m := range c.Plan.Job.Mounts {
		sources = append(sources, m.Source)
	}
	for _, t := range c.Plan.Job.Trees {
		sources = append(sources, t.Source)
	}
	for _, source := range sources {
		if source == "" {
			continue
		}
		_ = filepath.WalkDir(source, func(_ string, entry fs.DirEntry, err error) error {
			select {
			case <-sent:
				return fs.SkipAll
			default:
			}
			if err != nil || !entry.Type().IsRegular() {
				return nil //nolint:nilerr // reported when it is sent
			}
			if info, err := entry.Info(); err == nil {
				total += info.Size()
			}
			return nil
		})
	}
	return total
}

// ready waits until the volume is filled and its disk monitored. An image in which that is
// impossible is refused: otherwise nothing would keep the program from filling the disk.
func (c *copies) ready(ctx context.Context) error {
	var space archive.Space
	err := <-c.connected
	if err == nil {
		space, err = c.monitor.measure(ctx)
	}
	if err == nil {
		err = engineSpace(space.Free, minFree)
	}
	if err != nil {
		return c.monitorError(err)
	}
	for _, t := range c.trees {
		_, bytes := t.base.Sum()
		space.Used -= bytes
	}
	c.empty = max(space.Used, 0)
	return nil
}

// monitorError says why the volume cannot be monitored, or must not be filled.
func (c *copies) monitorError(err error) error {
	noShell := errors.Is(err, engine.ErrNotStarted) && !errors.Is(err, engine.ErrNotPlaced)
	if errors.Is(err, engine.ErrUnavailable) || errors.Is(err, record.ErrNoSpace) || c.monitor.talk == nil && !noShell {
		return err
	}
	rule := "its image cannot watch the disk: that takes sh, df, du, find, head, tail and wc"
	if note := c.monitor.complaint(); note != "" {
		rule += fmt.Sprintf(" (it said %.200q)", note)
	}
	return fmt.Errorf("%w: %w", &policy.FieldError{Field: "transfer", Value: spec.TransferCopy, Rule: rule,
		Hint: "choose an image with a shell, such as debian, or an engine that sees the directories of this machine"}, err)
}

// watch ends a run that fills the engine's disk. A measurement that has begun is not
// interrupted: that would cost the monitor, which is still needed.
func (c *copies) watch(ctx context.Context) {
	watching, stop := context.WithCancel(ctx)
	c.stopWatching = stop
	c.watching.Go(func() {
		if reason := c.monitor.watch(context.WithoutCancel(ctx), watching, c.judge); reason != outcome.StopNone {
			c.Stop(reason)
		}
	})
}

// judge says why a measurement ends the run.
func (c *copies) judge(space archive.Space) outcome.StopReason {
	c.noteUsed(space.Used - c.empty)
	switch {
	case space.Free < minFree/2:
		return outcome.StopDiskFull
	case space.TooDeep:
		return outcome.StopTooDeep
	case c.tooMuch(space):
		return outcome.StopDiskLimit
	}
	return outcome.StopNone
}

// outDirs is the number of directories in an empty volume that count as entries.
const outDirs = 2

// tooMuch compares a measurement with the disk limit.
func (c *copies) tooMuch(space archive.Space) bool {
	return space.Used-c.empty > c.Plan.Job.DiskBytes || space.Entries > maxEntries+outDirs
}

// endWatch ends the monitoring of a running program. The monitor can still be asked.
func (c *copies) endWatch() {
	if c.stopWatching != nil {
		c.stopWatching()
		c.watching.Wait()
	}
}

func (c *copies) close(ctx context.Context, keep, left bool) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupBudget)
	defer cancel()
	c.endWatch()
	if !c.opened {
		return nil
	}
	c.monitor.close(nil)
	if c.taken || left {
		return nil
	}
	id := c.Plan.Job.RunID
	if keep {
		c.Warn("volume %s and container %s stay with the container that was kept on request", spec.VolumeName(id), spec.HelperName(id))
		return c.Engine.Remove(ctx, spec.MonitorName(id))
	}
	return RemoveVolume(ctx, c.Engine, id)
}
