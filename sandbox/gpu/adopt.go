package gpu

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
)

// Adopt takes the lease of a run over whose process died. Nobody else has got its GPUs: those
// of a dead holder are not lent before StillUsed says that its program has ended. Without
// such a lease it returns nil. Inv is the present inventory; it may be zero. The caller must
// release the lease.
func (m *Manager) Adopt(ctx context.Context, runID string, inv Inventory) (_ *Lease, err error) {
	if _, err := os.Stat(m.dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	f, err := openLeaseDir(ctx, m.dir)
	if err != nil {
		return nil, &dirError{m.dir, err}
	}
	defer func() { err = errors.Join(err, f.close()) }()
	_, dead, err := f.tickets(m.pools, false)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(dead, func(t Ticket) bool { return t.RunID == runID })
	if at < 0 {
		return nil, nil
	}
	t := dead[at]
	me := thisProcess()
	t.PID, t.User, t.Host = me.PID, me.User, me.Host
	q := &queued{Ticket: t}
	if q.lock, err = f.lockFile(f.ticketPath(t.Number)+".lock", false); err != nil {
		return nil, err
	}
	lease := &Lease{manager: m, ticket: q, ids: t.GPUs, inventory: inv}
	for _, l := range t.locks() {
		lock, err := f.lockGPU(l)
		if err != nil {
			return nil, errors.Join(err, lease.unlock(), q.lock.Close())
		}
		lease.locks = append(lease.locks, lock)
	}
	if err := f.write(q); err != nil {
		return nil, errors.Join(err, lease.Leave())
	}
	return lease, nil
}

// locks returns the locks of a holder: for each GPU its index in every pool, and its UUID.
func (t Ticket) locks() []gpuLock {
	var all []gpuLock
	whole := slices.Contains(t.GPUs, everything)
	for _, pool := range t.Pools {
		// Leases of known GPUs share the lock of all.
		all = append(all, gpuLock{everything, pool + "-" + everything, t.Share || !whole})
		for _, id := range t.GPUs {
			if id != everything {
				all = append(all, gpuLock{id, pool + "-" + id, t.Share})
			}
		}
	}
	for _, uuid := range t.UUIDs {
		all = append(all, gpuLock{uuid, uuid, t.Share})
	}
	return all
}
