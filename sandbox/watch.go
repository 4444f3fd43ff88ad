package sandbox

import (
	"context"
	"sync"
	"time"
)

const (
	firstSample = 5 * time.Millisecond
	lastSample  = time.Second
	diskPeriod  = 250 * time.Millisecond
	// maxEntries bounds the names in ./final while the program runs; a
	// million empty files cost the host more than their size tells.
	maxEntries = 1_000_000
)

// usageWatch keeps the last sample of a run's resources.
type usageWatch struct {
	ctx  context.Context //nolint:containedctx // ends with the run that owns the watch
	open func() UsageSampler

	mu      sync.Mutex
	sampler UsageSampler
	last    Usage
	any     bool
	// final says that last was read after the end.
	final bool
}

// newUsageWatch prepares the watch of a container that is not started yet: its
// counters are looked for at the first sample.
func (a *attempt) newUsageWatch(ctx context.Context) *usageWatch {
	return &usageWatch{ctx: ctx, open: func() UsageSampler { return a.runner.engine.Usage(ctx, a.info, a.container) }}
}

// watch samples often at first, since most runs are short, and then once a
// second.
func (a *attempt) watch(ctx context.Context) {
	go func() {
		period := firstSample
		for {
			a.usage.sample()
			select {
			case <-ctx.Done():
				return
			case <-time.After(period):
				period = min(2*period, lastSample)
			}
		}
	}()
	if a.copies() {
		looking, stop := context.WithCancel(ctx)
		a.depot.stopLooking = stop
		a.depot.looking.Go(func() { a.watchDepot(ctx, looking) })
		return
	}
	go a.watchDisk(ctx)
	go a.watchFreeSpace(ctx)
}

func (w *usageWatch) sample() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return
	}
	if w.final {
		return
	}
	if w.sampler == nil {
		w.sampler = w.open()
		go w.atEnd(w.sampler)
	}
	if usage, ok := w.sampler.Sample(w.ctx); ok {
		w.last, w.any = usage, true
	}
}

// atEnd replaces the samples by the counters as they were at the end, where
// those can be had.
func (w *usageWatch) atEnd(sampler UsageSampler) {
	usage, ok := sampler.AtEnd(w.ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if ok {
		w.last, w.any, w.final = usage, true, true
	}
}

// result is the last sample, and where it comes from.
func (w *usageWatch) result() (Usage, string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.any {
		return Usage{}, ""
	}
	return w.last, w.sampler.Source()
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
			a.askStop(stopDiskLimit)
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
				a.askStop(stopDiskFull)
				return
			}
		}
	}
}
