package recover

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/outcome"
	"github.com/evalbox/evalbox/sandbox/record"
)

// Recovered is one run that another process had started, and what became of it.
type Recovered struct {
	RunID string
	// Result is nil if the run was not finished; Err then says why.
	Result *result.Result
	Err    error
}

// Settled reports whether the run never gets a result, and nothing of it is left but its record: its
// process died before the run had a container, or its journal is gone, or its record is damaged. Err
// says so.
func (a Recovered) Settled() bool { return a.Result == nil && errors.Is(a.Err, outcome.ErrOwnerDied) }

// Filter selects runs. Most bounds how many are finished at the same time; 0 means that a program that
// runs holds up no other.
type Filter struct {
	// Deep looks at every record, also if it is not noted as open.
	Deep bool
	Most int
}

// All finishes the runs whose controllers are gone, as [Recovery.Run] does. Each is called once for
// each of them, one at a time. When ctx ends, no other run is begun.
func (r *Recovery) All(ctx context.Context, filter Filter, resume Resume, each func(Recovered)) error {
	ids, err := r.lost(filter)
	if filter.Most == 0 {
		filter.Most = len(ids)
	}
	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		room = make(chan struct{}, filter.Most)
	)
	for _, id := range ids {
		room <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		all.Go(func() {
			defer func() { <-room }()
			is := Recovered{RunID: id}
			found, err := r.Store.Load(id)
			if err == nil {
				is.Result, err = r.Run(ctx, found, resume)
			}
			is.Err = err
			mu.Lock()
			defer mu.Unlock()
			each(is)
		})
	}
	all.Wait()
	return err
}

// lost lists the runs whose controllers are gone and for which something has to be done.
func (r *Recovery) lost(filter Filter) ([]string, error) {
	ids, err := r.Store.Orphans()
	if filter.Deep {
		all, listErr := r.Store.IDs()
		err = errors.Join(err, listErr)
		for _, id := range all {
			note, state, lookErr := r.Store.Look(id)
			ended := note.Schema == "" && !r.Store.IsHalfTaken(id) // without a result: its record stays
			if lookErr == nil && state == record.Lost && !ended && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids, err
}

// ErrClosed means that a runner is closed.
var ErrClosed = errors.New("the runner is closed")

// Behind is work behind the runs of a living controller. A run that needs the work waits for it, and may
// give the wait up: the work continues. Its methods may be called concurrently.
type Behind struct {
	mu     sync.Mutex
	ctx    context.Context //nolint:containedctx // it is of all work
	cancel context.CancelFunc
	work   map[string]*Work
}

// NewBehind returns a Behind without work.
func NewBehind() *Behind {
	ctx, cancel := context.WithCancel(context.Background())
	return &Behind{ctx: ctx, cancel: cancel, work: map[string]*Work{}}
}

// Work is one piece of work that was begun.
type Work struct {
	// Ended is closed when the program of the run has ended and uses no GPU any more; Done when the
	// work is done. Result and Err are set then.
	Ended, Done chan struct{}
	Result      *result.Result
	Err         error
}

// Do begins the work of a name, usually the ID of a run, unless it is in progress. The context of do ends
// with [Behind.Close]. After that the work is done, with [ErrClosed], and does not begin.
func (b *Behind) Do(name string, do func(context.Context, *Work)) *Work {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.work[name]; w != nil {
		return w
	}
	w := &Work{Ended: make(chan struct{}), Done: make(chan struct{})}
	if b.ctx.Err() != nil {
		w.Err = ErrClosed
		close(w.Done)
		return w
	}
	b.work[name] = w
	go func() {
		do(b.ctx, w)
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.work, name)
		close(w.Done)
	}()
	return w
}

// Close ends the work, and waits until it has ended: a run that is being finished is left to the next process.
func (b *Behind) Close() {
	b.mu.Lock()
	b.cancel() // not while work begins
	b.mu.Unlock()
	b.Wait(context.Background())
}

// Wait waits for the work that is in progress, at most until ctx ends. It reports whether there was any.
func (b *Behind) Wait(ctx context.Context) bool {
	b.mu.Lock()
	all := slices.Collect(maps.Values(b.work))
	b.mu.Unlock()
	for _, w := range all {
		select {
		case <-w.Done:
		case <-ctx.Done():
		}
	}
	return len(all) > 0
}
