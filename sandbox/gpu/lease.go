package gpu

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gofrs/flock"
)

// Lease is GPUs that are held. It ends with [Lease.Release] or [Lease.Leave], or
// with the process.
type Lease struct {
	manager *Manager
	ticket  *queued
	ids     []string
	// inventory is the look at the GPUs on which the lease was decided.
	inventory Inventory
	locks     []*flock.Flock
}

// Inventory is the look at the GPUs that the lease goes by: while it was waited
// for, indexes may have changed.
func (l *Lease) Inventory() Inventory { return l.inventory }

// Devices are the GPUs as they were then, in the order of [Lease.IDs]; nil when all
// of an unknown number are held.
func (l *Lease) Devices() []Device {
	var devices []Device
	for _, id := range l.IDs() {
		devices = append(devices, l.inventory.device(id))
	}
	return devices
}

// IDs are the indexes of the GPUs, sorted; nil when all of an unknown number are
// held.
func (l *Lease) IDs() []string {
	if slices.Contains(l.ids, everything) {
		return nil
	}
	return slices.Clone(l.ids)
}

// Since is when the GPUs were taken.
func (l *Lease) Since() time.Time { return l.ticket.Since }

// Release gives the GPUs back. Nothing may use them any more. It must be called
// once.
func (l *Lease) Release(ctx context.Context) error {
	f, err := openLeaseDir(ctx, l.manager.dir)
	if err != nil {
		// What is left of the ticket says that somebody should ask after the
		// run before the GPUs are used again.
		return errors.Join(err, l.Leave())
	}
	// The GPUs first: nobody finds them without a holder and still locked.
	return errors.Join(l.unlock(), f.drop(l.ticket), f.close())
}

// Leave ends the lease of a program that may still run: before its GPUs are
// handed out again, it is asked after, as if this process had died.
func (l *Lease) Leave() error { return errors.Join(l.unlock(), l.ticket.lock.Close()) }

func (l *Lease) unlock() error {
	var errs []error
	for _, lock := range l.locks {
		errs = append(errs, lock.Close())
	}
	l.locks = nil
	return errors.Join(errs...)
}
