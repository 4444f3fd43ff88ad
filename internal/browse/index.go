package browse

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/record"
)

// row is a run in the index. It is not changed.
type row struct {
	// Record has of its spec and of its result what a list shows.
	record.Record
	// Ending is how it ended, or how far it is, for people.
	Ending string
	// Well says that it did what it was to do.
	Well bool
	// GPUs is their number.
	GPUs int
	// settled rows are not read again.
	settled bool
}

// outcomeDelay is how long after its run a contract may get its outcome.
const outcomeDelay = time.Minute

// newRow reads a run.
func newRow(store *record.Store, id string) (*row, error) {
	each, err := store.LoadBrief(id)
	if err != nil {
		return nil, err
	}
	c := contract.OfRecord(each)
	r := &row{Record: each, Ending: render.RecordStatus(each, c), Well: c.Succeeded(each)}
	r.Spec.Job.Command = c.Command(each)
	if res := each.Result; res != nil {
		ended, _ := time.Parse(time.RFC3339Nano, res.FinishedAt)
		r.settled = c == nil || c.Outcome != nil || time.Since(ended) > outcomeDelay
		r.GPUs = len(res.Enforced.GPUs)
		res.Enforced, res.Explanation = result.Enforced{}, "" // a list of many runs does without
	}
	return r, nil
}

// index is the list of runs in memory. A settled run is read once; only new and unfinished ones are
// looked at again.
type index struct {
	store *record.Store

	refreshing sync.Mutex
	at         time.Time // of the last refresh
	loaded     chan struct{}
	done, all  atomic.Int64 // of the first refresh

	mu      sync.Mutex
	rows    map[string]*row
	sorted  []*row // newest first; nil if it is to be sorted again
	version int64
	live    int // running programs
	broken  error
}

func newIndex(store *record.Store) *index {
	return &index{store: store, loaded: make(chan struct{}), rows: map[string]*row{}}
}

// maxIndexReaders bounds the records that are read at the same time.
const maxIndexReaders = 4

// refresh looks at the records, unless that was done within age.
func (x *index) refresh(age time.Duration) {
	x.refreshing.Lock()
	defer x.refreshing.Unlock()
	if !x.at.IsZero() && time.Since(x.at) < age {
		return
	}
	first := x.at.IsZero()
	ids, listErr := x.store.IDs()
	ids = x.unsettled(ids)
	slices.SortFunc(ids, func(a, b string) int { return strings.Compare(b, a) }) // IDs sort by time
	x.all.Store(int64(len(ids)))
	errs := make([]error, len(ids)+1)
	errs[len(ids)] = listErr
	var next atomic.Int64
	var readers sync.WaitGroup
	for range min(maxIndexReaders, len(ids)) {
		readers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(ids); i = int(next.Add(1)) - 1 {
				each, err := newRow(x.store, ids[i])
				if errors.Is(err, record.ErrNoRecord) {
					continue // it has just been removed
				}
				if errs[i] = err; err == nil {
					x.put(each)
				}
				x.done.Add(1)
			}
		})
	}
	readers.Wait()
	x.mu.Lock()
	if x.broken = errors.Join(errs...); first {
		x.changed() // what was said about the first look no longer holds
	}
	x.mu.Unlock()
	x.at = time.Now()
	if first {
		close(x.loaded)
	}
}

// unsettled are the IDs that have to be looked at. It forgets runs whose records are gone.
func (x *index) unsettled(ids []string) (open []string) {
	there := make(map[string]bool, len(ids))
	for _, id := range ids {
		there[id] = true
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, each := range x.rows {
		if !there[id] {
			x.live -= each.running()
			delete(x.rows, id)
			x.changed()
		}
	}
	for _, id := range ids {
		if each := x.rows[id]; each == nil || !each.settled {
			open = append(open, id)
		}
	}
	return open
}

// changed notes a change; the caller holds mu.
func (x *index) changed() { x.sorted, x.version = nil, x.version+1 }

func (x *index) put(r *row) {
	x.mu.Lock()
	defer x.mu.Unlock()
	old := x.rows[r.ID]
	if old != nil && !r.settled && old.State == r.State && old.Ending == r.Ending && old.Spec.Job.Name == r.Spec.Job.Name {
		return
	}
	x.live += r.running() - old.running()
	x.rows[r.ID] = r
	x.changed()
}

// running is 1 for a program that runs; nil is none.
func (r *row) running() int {
	if r == nil || r.State != record.Running {
		return 0
	}
	return 1
}

// list returns all runs, newest first, and why some cannot be read. The slice is shared.
func (x *index) list() ([]*row, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.sorted == nil {
		x.sorted = make([]*row, 0, len(x.rows))
		for _, each := range x.rows {
			x.sorted = append(x.sorted, each)
		}
		slices.SortFunc(x.sorted, func(a, b *row) int {
			return cmp.Or(b.Created.Compare(a.Created), strings.Compare(b.ID, a.ID))
		})
	}
	return x.sorted, x.broken
}

// state is a number that changes with the list, and whether something in it changes with the time.
func (x *index) state() (version int64, live bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.version, x.live > 0
}

// progress is how many records were read, of how many; loading is false once all were.
func (x *index) progress() (done, all int64, loading bool) {
	select {
	case <-x.loaded:
		return 0, 0, false
	default:
		return x.done.Load(), x.all.Load(), true
	}
}

// current refreshes the index, and waits for the first refresh no longer than patience.
func (x *index) current(patience time.Duration) {
	select {
	case <-x.loaded:
		x.refresh(refreshAge)
	case <-time.After(patience):
	}
}

const (
	// refreshAge is the least time between two looks at the records.
	refreshAge = 900 * time.Millisecond
	// patience is how long a page waits for the first look.
	patience = 200 * time.Millisecond
)
