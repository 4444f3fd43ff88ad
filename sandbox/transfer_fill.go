package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/evalbox/evalbox/policy"
)

// watchFill starts the watcher and looks at the engine's disk until the files are
// there, or there is no room for the rest of them, or nobody can look: then it aborts
// the sending.
func (a *attempt) watchFill(ctx context.Context, sent <-chan struct{}, abort context.CancelCauseFunc) error {
	err := a.connectWatcher(ctx)
	total := a.bytesToSend(sent)
	for err == nil {
		select {
		case <-sent:
			return nil
		default:
		}
		rest := max(total-a.depot.sent.Load(), 0)
		var free int64
		if free, err = a.depot.watcher.free(ctx); err == nil {
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
	return fmt.Errorf("the engine's disk: %w: %v free, a run needs %v", record.ErrNoSpace, policy.Size(free), policy.Size(need))
}

var errEnough = errors.New("enough")

// bytesToSend is how much the files hold that are to be sent.
func (a *attempt) bytesToSend(sent <-chan struct{}) (total int64) {
	total = bytesIn(a.spec.Job.Input, sent)
	for _, m := range a.spec.Job.Mounts {
		total += bytesIn(m.Source, sent)
	}
	for _, t := range a.spec.Job.Trees {
		total += bytesIn(t.Source, sent)
	}
	return total
}

// bytesIn is how much the files of a folder hold that are to be sent. It stops when
// they are.
func bytesIn(dir string, sent <-chan struct{}) (total int64) {
	if dir == "" {
		return 0
	}
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		select {
		case <-sent:
			return errEnough
		default:
		}
		if err != nil || !entry.Type().IsRegular() {
			return nil //nolint:nilerr // told when it is sent
		}
		if info, err := entry.Info(); err == nil {
			total += info.Size()
		}
		return nil
	})
	return total
}

// counted counts what is read.
func counted(from io.Reader, count *atomic.Int64) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		n, err := from.Read(p)
		count.Add(int64(n))
		return n, err
	})
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
