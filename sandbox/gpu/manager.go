// Package gpu finds the GPUs of a machine and lends them to runs.
//
// [DetectGPUInfo] and [Probe] ask nvidia-smi. A [Manager] lends GPUs by file locks in a
// directory, so that processes on one host never share a GPU unless both ask for that. The
// package knows nothing of containers: [Order.StillUsed] says whether a dead holder left a
// program running.
//
// The output of nvidia-smi is bounded and checked. nvidia-smi also prints errors of the
// driver to stdout; such a text is never taken for a GPU.
package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gofrs/flock"
)

// Manager lends the GPUs of pools by locks in one directory. Any number of managers, in any
// number of processes, may use one directory. The methods may be called concurrently.
type Manager struct {
	dir   string
	pools []string
	// taken, for tests, is called for each ticket that gets its GPUs, while the
	// directory is locked.
	taken func(Ticket)
}

// LocalPool is the pool of the GPUs of this machine.
const LocalPool = "local"

// Open returns the manager of a directory, which need not exist yet, for GPUs that are in
// all of these pools. The default is [LocalPool].
//
// A pool is a set of GPUs with one set of indexes. The same GPUs may be reached in several
// ways, and a way may not show all pools that they are in. Managers with a common pool have
// one queue, and never lend the same GPU. The name of a pool is a part of file names.
func Open(dir string, pools ...string) *Manager {
	if len(pools) == 0 {
		pools = []string{LocalPool}
	}
	return &Manager{dir: dir, pools: pools}
}

// Order is one request for a lease.
type Order struct {
	Want
	Holder
	// Inventory lists the GPUs. Look returns a new one; nil if that would show nothing
	// new.
	Inventory Inventory
	Look      func(context.Context) (Inventory, error)
	// StillUsed returns why the program of a dead holder may still use its GPUs; empty
	// if it does not. It may end the program. nil means that no program still does.
	StillUsed func(ctx context.Context, dead Holder, since time.Time) (why string)
	// Wait is how long to wait for GPUs; 0 means not at all.
	Wait time.Duration
	// Waiting, if not nil, is called with the reason for waiting whenever it changes.
	Waiting func(why string)
}

// A BusyError means that the GPUs were not free, or did not become free in time.
type BusyError struct {
	Want string
	// Why names the holders of the GPUs.
	Why string
	// Waited is how long the request has waited.
	Waited time.Duration
	// Sharing says that all holders share their GPUs, and the request does not.
	Sharing bool
}

func (e *BusyError) Error() string {
	if e.Waited > 0 {
		return fmt.Sprintf("gpus: %s: not free within %v: %s", e.Want, e.Waited, e.Why)
	}
	return fmt.Sprintf("gpus: %s: not free: %s", e.Want, e.Why)
}

// Hint says what to try. It proposes sharing only if that would help.
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
	return "make that directory one that you may write to, or name another with gpu_dir in the settings or SANDBOX_GPU_DIR"
}

const (
	// pollEvery is how often the first request of the queue looks. Later ones look less
	// often, at least every pollMost.
	pollEvery = 100 * time.Millisecond
	pollMost  = time.Second
	// freshFor is how old an inventory may be when GPUs are lent, and staleAfter while
	// a request waits for memory in use.
	freshFor   = 2 * time.Second
	staleAfter = 5 * time.Second
	// askAgain is how often StillUsed is asked about a dead holder.
	askAgain = 10 * time.Second
	// arrivalLimit is how long a request may take for its first look.
	arrivalLimit = 2 * time.Minute
)

// Acquire lends GPUs, in the order of arrival: all that the order wants, or none.
//
// The error is a [*WantError] if waiting cannot help, a [*BusyError] if the GPUs were not
// free in time, the cause of ctx if that ended, or a problem of the directory. The caller
// must release the lease.
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
	// reported is the last reason that Waiting got.
	reported string
	// busy are the answers of StillUsed by run, asked the times of the questions by
	// ticket.
	busy  map[string]string
	asked map[string]time.Time
}

// run looks at the queue until the request has its GPUs, or cannot get them.
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
		// A request that came together with others waits until those have looked.
		if left := time.Until(w.until); left <= 0 && !step.arriving {
			return nil, &BusyError{w.order.String(), step.why, w.order.Wait, step.sharing}
		}
		if !step.arriving && w.order.Waiting != nil && step.why != w.reported {
			w.order.Waiting(step.why)
			w.reported = step.why
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

// Lease is a set of GPUs that this process holds. It ends with [Lease.Release] or
// [Lease.Leave], or with the process.
type Lease struct {
	manager *Manager
	ticket  *queued
	ids     []string
	// inventory is the inventory on which the decision was based.
	inventory Inventory
	locks     []*flock.Flock
	over      bool
}

// Inventory returns the inventory that the lease is based on. Indexes may have changed
// during the wait.
func (l *Lease) Inventory() Inventory { return l.inventory }

// Devices returns the GPUs of that inventory, in the order of [Lease.IDs]; nil if the lease
// is for all of an unknown number.
func (l *Lease) Devices() []Device {
	var devices []Device
	for _, id := range l.IDs() {
		devices = append(devices, l.inventory.device(id))
	}
	return devices
}

// IDs returns the indexes of the GPUs, sorted; nil if the lease is for all of an unknown
// number.
func (l *Lease) IDs() []string {
	if slices.Contains(l.ids, everything) {
		return nil
	}
	return slices.Clone(l.ids)
}

// Release gives the GPUs back. No program may use them any more. Of several calls of Release and
// [Lease.Leave] the first one counts.
func (l *Lease) Release(ctx context.Context) error {
	if l.over {
		return nil
	}
	f, err := openLeaseDir(ctx, l.manager.dir)
	if err != nil {
		// The ticket stays, so that StillUsed is asked about the run before the GPUs
		// are lent again.
		return errors.Join(err, l.Leave())
	}
	// The GPUs come first: a GPU without a holder must not be locked.
	l.over = true
	return errors.Join(l.unlock(), f.drop(l.ticket), f.close())
}

// Leave ends the lease of a program that may still run. StillUsed is asked about it before
// its GPUs are lent again, as if this process had died.
func (l *Lease) Leave() error {
	if l.over {
		return nil
	}
	l.over = true
	return errors.Join(l.unlock(), l.ticket.lock.Close())
}

func (l *Lease) unlock() error {
	var errs []error
	for _, lock := range l.locks {
		errs = append(errs, lock.Close())
	}
	l.locks = nil
	return errors.Join(errs...)
}
