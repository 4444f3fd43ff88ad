package gpu

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// step is the result of one look at the queue.
type step struct {
	lease *Lease
	decision
	ahead int
	// ask are dead holders about which StillUsed must be asked first.
	ask []Ticket
	// refresh says that a new inventory is needed first.
	refresh bool
}

// look takes the GPUs, or returns the next step. It must be quick, because the directory is
// locked meanwhile.
func (w *wait) look(ctx context.Context) (s step, err error) {
	if ctx.Err() != nil {
		return step{}, context.Cause(ctx)
	}
	f, err := openLeaseDir(ctx, w.manager.dir)
	if err != nil {
		return step{}, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	if w.ticket == nil {
		holder := thisProcess()
		holder.RunID, holder.Name, holder.Engine, holder.LimitSeconds = w.order.RunID, w.order.Name, w.order.Engine, w.order.LimitSeconds
		w.ticket, err = f.arrive(Ticket{Pools: w.manager.pools, Want: w.order.Want.String(), Share: w.order.Share, Holder: holder})
		if err != nil {
			return step{}, err
		}
	}
	live, dead, err := f.tickets(w.manager.pools, true)
	if err != nil {
		return step{}, err
	}
	v := view{}
	v.left, err = w.settle(f, dead)
	if err != nil {
		return step{}, err
	}
	w.sort(live, &v)
	s.ahead, s.ask = len(v.ahead), w.unasked(v.left)
	for {
		if s.decision, err = decide(w.order.Want, w.order.Inventory, v, w.busy); err != nil {
			return step{}, err
		}
		age := time.Since(w.order.Inventory.At)
		s.refresh = w.order.Look != nil && (len(s.take) > 0 && age > freshFor || s.used && (age > staleAfter || !w.looked))
		if len(s.take) == 0 || s.ask != nil || s.refresh {
			return s, w.note(f, s)
		}
		var locked *lockedError
		if s.lease, err = w.take(f, s.take); !errors.As(err, &locked) {
			return s, err
		}
		v.foreign = append(v.foreign, locked.id)
	}
}

// sort adds the live tickets to a view: those that hold GPUs, and those that came before
// this request.
func (w *wait) sort(live []Ticket, v *view) {
	for _, t := range live {
		switch {
		case t.State == stateHolding:
			v.holding = append(v.holding, t)
		case t.Number < w.ticket.Number && !t.Aside:
			if time.Since(t.Since) > arrivalLimit {
				t.State = stateWaiting // its process is stopped, or stuck
			}
			v.ahead = append(v.ahead, t)
		}
	}
}

// note writes the state of this request for other processes.
func (w *wait) note(f *leaseDir, s step) error {
	state := w.ticket.State
	if s.ask == nil && !s.refresh && !s.arriving {
		state = stateWaiting
	}
	if w.ticket.State == state && w.ticket.Aside == s.aside {
		return nil
	}
	w.ticket.State, w.ticket.Aside = state, s.aside
	return f.write(w.ticket)
}

// settle forgets the dead holders whose programs have certainly ended, and returns the
// others.
func (w *wait) settle(f *leaseDir, dead []Ticket) (left []Ticket, err error) {
	for _, t := range dead {
		if _, known := w.asked[t.key()]; known && w.busy[t.RunID] == "" || w.order.StillUsed == nil {
			if err := f.forget(t); err != nil {
				return nil, err
			}
			continue
		}
		left = append(left, t)
	}
	return left, nil
}

// key identifies a ticket, even if its number is used again later.
func (t Ticket) key() string { return fmt.Sprintf("%d %s %v", t.Number, t.RunID, t.Since) }

// unasked returns the dead holders about which StillUsed was not asked lately.
func (w *wait) unasked(left []Ticket) []Ticket {
	var ask []Ticket
	for _, t := range left {
		if at, known := w.asked[t.key()]; !known || time.Since(at) > askAgain {
			ask = append(ask, t)
		}
	}
	return ask
}

// askAfter asks StillUsed about dead holders, which may take the time to end their programs.
func (w *wait) askAfter(ctx context.Context, dead []Ticket) {
	for _, t := range dead {
		why := w.order.StillUsed(ctx, t.Holder, t.Since)
		delete(w.busy, t.RunID)
		if why != "" {
			w.busy[t.RunID] = strings.TrimSpace(why)
		}
		w.asked[t.key()] = time.Now()
	}
}

// take locks the GPUs and writes the ticket.
func (w *wait) take(f *leaseDir, ids []string) (*Lease, error) {
	lease := &Lease{manager: w.manager, ticket: w.ticket, ids: ids, inventory: w.order.Inventory}
	var uuids []string
	for _, d := range lease.Devices() {
		if d.UUID != "" {
			uuids = append(uuids, d.UUID)
		}
	}
	for _, l := range (Ticket{Pools: w.manager.pools, GPUs: ids, UUIDs: uuids, Share: w.order.Share}).locks() {
		lock, err := f.lockGPU(l)
		if err != nil {
			return nil, errors.Join(err, lease.unlock())
		}
		lease.locks = append(lease.locks, lock)
	}
	w.ticket.State, w.ticket.Aside, w.ticket.GPUs, w.ticket.UUIDs, w.ticket.Since = stateHolding, false, ids, uuids, time.Now().UTC()
	if err := f.write(w.ticket); err != nil {
		w.ticket.GPUs, w.ticket.UUIDs = nil, nil
		return nil, errors.Join(err, lease.unlock())
	}
	if w.manager.taken != nil {
		w.manager.taken(w.ticket.Ticket)
	}
	return lease, nil
}

// giveUp takes the request out of the queue.
func (w *wait) giveUp(ctx context.Context) error {
	if w.ticket == nil {
		return nil
	}
	f, err := openLeaseDir(context.WithoutCancel(ctx), w.manager.dir)
	if err != nil {
		// Without its lock the ticket counts as dead, and the next look removes its
		// files.
		return errors.Join(err, w.ticket.lock.Close())
	}
	return errors.Join(f.drop(w.ticket), f.close())
}
