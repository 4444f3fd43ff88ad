package gpu

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Manager lends the GPUs of pools in one folder. Any number of managers, in any
// number of processes, may use one folder; its methods may be called concurrently.
type Manager struct {
	dir   string
	pools []string
	// taken hears of every ticket that gets its GPUs while the folder is
	// locked; for tests.
	taken func(Ticket)
}

// LocalPool is the pool of this machine's GPUs.
const LocalPool = "local"

// Open returns the manager of a folder, which need not exist yet, for GPUs that
// are counted in all of these pools; without any it is [LocalPool].
//
// A pool is GPUs that have one set of indexes. The same GPUs may be reached in
// several ways, and not each way tells all of the pools that they are in: those
// who have a pool in common stand in one queue and never get the same GPU. The
// name of a pool is a part of names of files.
func Open(dir string, pools ...string) *Manager {
	if len(pools) == 0 {
		pools = []string{LocalPool}
	}
	return &Manager{dir: dir, pools: pools}
}

// Dir is the folder.
func (m *Manager) Dir() string { return m.dir }

// Order is one request for a lease.
type Order struct {
	Want
	Holder
	// Inventory is which GPUs there are. Look takes a new one; nil when there
	// is nothing more to learn.
	Inventory Inventory
	Look      func(context.Context) (Inventory, error)
	// StillUsed says why the program of a dead holder may still use its GPUs;
	// empty when it does not. It may end the program. nil stands for "it does
	// not".
	StillUsed func(ctx context.Context, dead Holder, since time.Time) (why string)
	// Wait is how long to wait for GPUs; 0 is not at all.
	Wait time.Duration
	// Waiting hears what is waited for whenever that changes.
	Waiting func(why string)
}

// A BusyError means that the GPUs were not free, or did not become so in time.
type BusyError struct {
	Want string
	// Why says who holds what.
	Why string
	// Waited is how long was waited for.
	Waited time.Duration
	// Sharing says that only runs that share, unlike this one, hold them.
	Sharing bool
}

func (e *BusyError) Error() string {
	if e.Waited > 0 {
		return fmt.Sprintf("gpus: %s: not free within %v: %s", e.Want, e.Waited, e.Why)
	}
	return fmt.Sprintf("gpus: %s: not free: %s", e.Want, e.Why)
}

// Hint says what to try. Sharing helps only with those that share.
func (e *BusyError) Hint() string {
	text := "see who has them with: sandbox gpus; wait for them with --gpu-wait 1h"
	if e.Waited > 0 {
		text = "see who has them with: sandbox gpus; wait longer for them with --gpu-wait"
	}
	if e.Sharing {
		text += "; or share them with --gpu-share"
	}
	return text
}

// A dirError is a directory of leases that cannot be used.
type dirError struct {
	dir string
	err error
}

func (e *dirError) Error() string { return fmt.Sprintf("leases of GPUs in %q: %v", e.dir, e.err) }

func (e *dirError) Unwrap() error { return e.err }

// Hint says what to try.
func (e *dirError) Hint() string {
	return "make that folder one that you may write to, or name another with gpu_dir in the settings or SANDBOX_GPU_DIR"
}

const (
	// pollEvery is how often the first of the queue looks; those behind it look
	// less often, up to pollMost.
	pollEvery = 100 * time.Millisecond
	pollMost  = time.Second
	// freshFor is how old a look at the GPUs may be when they are handed out,
	// and staleAfter when memory in use is waited for.
	freshFor   = 2 * time.Second
	staleAfter = 5 * time.Second
	// askAgain is how often the program of a dead holder is asked after.
	askAgain = 10 * time.Second
	// arrivalLimit is how long a request may take to look at its GPUs for the
	// first time.
	arrivalLimit = 2 * time.Minute
)

// Acquire lends GPUs. All of them or none are taken, in the order of arrival.
//
// The error is a [WantError] when waiting cannot help, a [BusyError] when the
// GPUs were not free in time, the cause of ctx when that ended, or says what is
// wrong with the folder. The caller releases the lease.
func (m *Manager) Acquire(ctx context.Context, order Order) (*Lease, error) {
	if err := order.Check(order.Inventory); err != nil {
		return nil, err
	}
	w := &wait{manager: m, order: order, until: time.Now().Add(order.Wait), busy: map[string]string{}, asked: map[string]time.Time{}}
	lease, err := w.run(ctx)
	if err == nil {
		return lease, nil
	}
	var want *WantError
	var busy *BusyError
	if !errors.As(err, &want) && !errors.As(err, &busy) && ctx.Err() == nil {
		err = &dirError{m.dir, err}
	}
	return nil, errors.Join(err, w.giveUp(ctx))
}

// wait is one request on its way to its GPUs.
type wait struct {
	manager *Manager
	order   Order
	until   time.Time
	ticket  *queued
	looked  bool
	told    string
	// busy are the runs of dead holders that go on, asked when they were asked
	// after.
	busy  map[string]string
	asked map[string]time.Time
}

// run looks until the GPUs are there, or will not be.
func (w *wait) run(ctx context.Context) (*Lease, error) {
	for {
		step, err := w.look(ctx)
		if err != nil || step.lease != nil {
			return step.lease, err
		}
		switch {
		case step.ask != nil:
			w.askAfter(ctx, step.ask)
			continue
		case step.refresh:
			if w.order.Inventory, err = w.order.Look(ctx); err != nil {
				return nil, err
			}
			w.looked, w.order.Inventory.At = true, time.Now()
			continue
		}
		// A request that came together with others waits until those have
		// been looked at.
		if left := time.Until(w.until); left <= 0 && !step.arriving {
			return nil, &BusyError{w.order.String(), step.why, w.order.Wait, step.sharing}
		}
		if !step.arriving && w.order.Waiting != nil && step.why != w.told {
			w.order.Waiting(step.why)
			w.told = step.why
		}
		pause := pollEvery
		if !step.arriving {
			pause = min(pollEvery*time.Duration(1+step.ahead), pollMost, max(time.Until(w.until), 0))
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		}
	}
}
