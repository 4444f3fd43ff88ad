package sandbox

import (
	"context"
	"time"

	"github.com/evalbox/evalbox/sandbox/outcome"
)

const (
	diskPeriod = 250 * time.Millisecond
	// maxEntries bounds the names in ./final while the program runs; a
	// million empty files cost the host more than their size tells.
	maxEntries = 1_000_000
)

// watch looks after the disk until ctx ends.
func (a *attempt) watch(ctx context.Context) {
	if a.copies() {
		looking, stop := context.WithCancel(ctx)
		a.depot.stopLooking = stop
		// A look that is under way is not broken off: that would cost the watcher.
		a.depot.looking.Go(func() { a.watchDepot(context.WithoutCancel(ctx), looking) })
		return
	}
	go a.watchDisk(ctx)
	go a.watchFreeSpace(ctx)
}

// watchDisk ends a run that fills the host's disk through ./final and its trees: a
// bind mount has no quota of its own. What it cannot see is a file that was deleted and is
// still open; the free space of the disk is watched as well, for that.
func (a *attempt) watchDisk(ctx context.Context) {
	period := diskPeriod
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(period):
		}
		began := time.Now()
		bytes, entries := a.diskUse(ctx)
		if bytes > a.spec.Job.DiskBytes || entries > maxEntries {
			a.askStop(outcome.StopDiskLimit)
			return
		}
		// Looking shall not cost more than a tenth of the time, and a program
		// must not be able to make us look away.
		period = min(max(diskPeriod, 10*time.Since(began)), 5*time.Second)
	}
}

// watchFreeSpace ends a run when the disk of ./final, or that of its trees, is nearly
// full.
func (a *attempt) watchFreeSpace(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(diskPeriod):
		}
		for _, dir := range []string{a.work.paths[RoleFinal], a.work.record} {
			if free, known := freeBytes(dir); known && free < minFree/2 && (dir != a.work.record || len(a.work.trees) > 0) {
				a.askStop(outcome.StopDiskFull)
				return
			}
		}
	}
}
