package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/evalbox/evalbox/sandbox/outcome"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/evalbox/evalbox/sandbox/stage/archive"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
)

const (
	// lookLimit bounds one look at the depot, and one list of what is in it.
	lookLimit = time.Minute
	// unwatchedLimit is how long a program may run without anybody looking at
	// its disk: a little longer than an engine may be away.
	unwatchedLimit = reconnectBudget + 15*time.Second
	// rewatchTries is how often a new watcher may fail while the engine is there.
	rewatchTries = 3
	// rewatchPause is the time between attempts to have the depot watched again.
	rewatchPause = time.Second
	// watcherNote bounds what is kept of the watcher's complaints.
	watcherNote = 1 << 10
)

// outFolders are the folders that are there when nothing is in them: all that a program
// may write to, and ./final.
const outFolders = 2

// errSilent is why a question was given up.
var errSilent = errors.New("it did not answer in time")

// errWatcherEnded means that the watcher is not there any more.
var errWatcherEnded = errors.New("the watcher of the outputs' disk has ended")

// watcher is a conversation with the container that looks at the depot: one
// question at a time.
type watcher struct {
	streams engine.Conversation
	answers *bufio.Reader
	pipe    *io.PipeReader
	once    sync.Once
	noteMu  sync.Mutex
	note    *result.HeadTail
}

// newWatcher begins to read what the watcher says.
func newWatcher(streams engine.Conversation) *watcher {
	reader, writer := io.Pipe()
	w := &watcher{streams: streams, pipe: reader, answers: bufio.NewReader(reader), note: result.NewHeadTail(watcherNote)}
	go func() {
		err := streams.Copy(writer, writerTo(w.complain))
		if err == nil {
			err = errWatcherEnded
		}
		_ = writer.CloseWithError(err) // never fails
	}()
	return w
}

type writerTo func(p []byte) (int, error)

func (f writerTo) Write(p []byte) (int, error) { return f(p) }

func (w *watcher) complain(p []byte) (int, error) {
	w.noteMu.Lock()
	defer w.noteMu.Unlock()
	return w.note.Write(p)
}

// complaint is what the watcher printed to its stderr.
func (w *watcher) complaint() string {
	w.noteMu.Lock()
	defer w.noteMu.Unlock()
	return w.note.Text()
}

// close ends the conversation; who waits for an answer gets the reason.
func (w *watcher) close(reason error) {
	w.once.Do(func() {
		_ = w.pipe.CloseWithError(orErr(reason, errWatcherEnded)) // never fails
		_ = w.streams.Close()                                     // ends the watcher, too
	})
}

func orErr(err, fallback error) error {
	if err != nil {
		return err
	}
	return fallback
}

// ask puts one question and reads its answer. An answer that does not come within
// the limit ends the watcher.
func (w *watcher) ask(ctx context.Context, question string, read func(*bufio.Reader) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, lookLimit, errSilent)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { w.close(context.Cause(ctx)) })
	defer stop()
	if _, err := io.WriteString(w.streams.Stdin(), question+"\n"); err != nil {
		return fmt.Errorf("%w: %w", errWatcherEnded, err)
	}
	return read(w.answers)
}

// look asks how much the depot holds.
func (w *watcher) look(ctx context.Context) (space archive.Space, err error) {
	err = w.ask(ctx, "space", func(from *bufio.Reader) error {
		space, err = archive.ReadSpace(lineOf(from))
		return err
	})
	return space, err
}

// free asks how much may still be written to the disk.
func (w *watcher) free(ctx context.Context) (free int64, err error) {
	err = w.ask(ctx, "free", func(from *bufio.Reader) error {
		free, err = archive.ReadFree(lineOf(from))
		return err
	})
	return free, err
}

// list asks what a folder of the depot holds.
func (w *watcher) list(ctx context.Context, dir string, limit, depth int) (list *archive.Inventory, err error) {
	err = w.ask(ctx, "list "+strings.TrimPrefix(dir, archive.OutDir+"/"), func(from *bufio.Reader) error {
		list, err = archive.ReadInventory(from, limit, depth)
		return err
	})
	return list, err
}

// lineOf reads bounded lines.
func lineOf(from *bufio.Reader) func() (string, error) {
	return func() (string, error) {
		line, err := from.ReadSlice('\n')
		return string(line), err
	}
}

// startWatcher has the depot watched, once it is filled. An image that cannot do that is refused:
// without a watcher nothing would keep the program from filling the disk.
func (a *attempt) startWatcher(ctx context.Context) error {
	var space archive.Space
	err := <-a.depot.connected
	if err == nil {
		space, err = a.depot.watcher.look(ctx)
	}
	if err == nil {
		err = engineSpace(space.Free, minFree)
	}
	if err != nil {
		return a.watchError(err)
	}
	a.depot.empty = max(space.Used-a.work.treeBytes(), 0)
	return nil
}

// watchError is why nobody can watch the depot, or why it is not to be filled.
func (a *attempt) watchError(err error) error {
	noShell := errors.Is(err, engine.ErrNotStarted)
	if errors.Is(err, engine.ErrUnavailable) || errors.Is(err, record.ErrNoSpace) || a.depot.watcher == nil && !noShell {
		return err
	}
	rule := "its image cannot watch the disk: that takes sh, df, du, find, head, tail and wc"
	if a.depot.watcher != nil {
		if note := a.depot.watcher.complaint(); note != "" {
			rule += fmt.Sprintf(" (it said %.200q)", note)
		}
	}
	return fmt.Errorf("%w: %w", &policy.FieldError{Field: "transfer", Value: TransferCopy, Rule: rule}, err)
}

// connectWatcher starts a watcher.
func (a *attempt) connectWatcher(ctx context.Context) error {
	if a.depot.watcher != nil {
		a.depot.watcher.close(nil)
		a.depot.watcher = nil
	}
	streams, err := a.runner.copier().WatchDepot(ctx, a.spec, a.depot.labels)
	if err != nil {
		return err
	}
	a.depot.watcher = newWatcher(streams)
	return nil
}

// watchAnew starts a watcher and looks once.
func (a *attempt) watchAnew(ctx context.Context) (archive.Space, error) {
	if err := a.connectWatcher(ctx); err != nil {
		return archive.Space{}, err
	}
	return a.depot.watcher.look(ctx)
}

// watchDepot, until looking ends, ends a run that fills the engine's disk through ./final, as watchDisk
// and watchFreeSpace do for a disk of ours.
//
// A look that has begun is not broken off: that would cost the watcher, which is
// still needed.
func (a *attempt) watchDepot(ctx, looking context.Context) {
	period, lastLook := diskPeriod, time.Now()
	for {
		select {
		case <-looking.Done():
			return
		case <-time.After(period):
		}
		began := time.Now()
		space, err := a.lookAgain(ctx, looking, lastLook)
		switch {
		case looking.Err() != nil:
			return
		case err != nil:
			a.log.Debug("nobody watches the depot any more", logError, err)
			a.askStop(outcome.StopUnwatched)
			return
		}
		lastLook = time.Now()
		switch {
		case space.Free < minFree/2:
			a.askStop(outcome.StopDiskFull)
			return
		case space.TooDeep:
			a.askStop(outcome.StopTooDeep)
			return
		case a.tooMuch(space):
			a.askStop(outcome.StopDiskLimit)
			return
		}
		period = min(max(diskPeriod, 10*time.Since(began)), 5*time.Second)
	}
}

// lookAgain looks once, with a new watcher where the old one has ended. It gives up
// when new ones fail although the engine is there, or when nobody has looked for
// too long.
func (a *attempt) lookAgain(ctx, looking context.Context, lastLook time.Time) (archive.Space, error) {
	space, err := archive.Space{}, errWatcherEnded
	if a.depot.watcher != nil {
		space, err = a.depot.watcher.look(ctx)
	}
	for failed := 0; err != nil && looking.Err() == nil; {
		a.log.Debug("the watcher failed", logError, err)
		if failed >= rewatchTries || time.Since(lastLook) > unwatchedLimit {
			return space, err
		}
		if space, err = a.watchAnew(ctx); err == nil {
			break
		}
		if !errors.Is(err, engine.ErrUnavailable) {
			failed++
		}
		select {
		case <-looking.Done():
		case <-time.After(rewatchPause):
		}
	}
	return space, err
}

// tooMuch compares one look with the disk limit.
func (a *attempt) tooMuch(space archive.Space) bool {
	return space.Used-a.depot.empty > a.spec.Job.DiskBytes || space.Entries > maxEntries+outFolders
}
