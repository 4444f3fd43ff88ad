package gpu

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/require"
)

// order is a request for GPUs of a machine with four.
func order(run string, want Want) Order {
	return Order{Want: want, Holder: Holder{RunID: run}, Inventory: madeUpGPUs(4)}
}

func acquire(t *testing.T, m *Manager, o Order) *Lease {
	t.Helper()
	lease, err := m.Acquire(t.Context(), o)
	require.NoError(t, err)
	return lease
}

func release(t *testing.T, leases ...*Lease) {
	t.Helper()
	for _, lease := range leases {
		require.NoError(t, lease.Release(t.Context()))
	}
}

func requireBusy(t *testing.T, m *Manager, o Order, why string) {
	t.Helper()
	_, err := m.Acquire(t.Context(), o)
	var busy *BusyError
	require.ErrorAs(t, err, &busy)
	require.Contains(t, err.Error(), why)
}

func states(t *testing.T, m *Manager) []string {
	t.Helper()
	l, err := m.List(t.Context(), madeUpGPUs(4))
	require.NoError(t, err)
	var all []string
	for _, g := range l.GPUs {
		all = append(all, g.State)
	}
	return all
}

func TestLease(t *testing.T) {
	m := Open(filepath.Join(t.TempDir(), "gpus"))
	require.Equal(t, []string{"free", "free", "free", "free"}, states(t, m), "a directory that is not there yet")
	require.NoDirExists(t, m.dir)
	one := acquire(t, m, order("one", Want{Count: 1}))
	require.Equal(t, []string{"0"}, one.IDs())
	two := acquire(t, m, order("two", Want{Count: 2}))
	require.Equal(t, []string{"1", "2"}, two.IDs())
	requireBusy(t, m, order("three", Want{Count: 2}), "gpus: 2 GPUs: not free: GPU 0 is held by run one (process ")
	requireBusy(t, m, order("three", Want{IDs: []string{"3", "1"}}), "GPU 1 is held by run two")
	requireBusy(t, m, order("three", Want{All: true}), "GPU 0 is held by run one")
	require.Equal(t, []string{"held", "held", "held", "free"}, states(t, m))
	release(t, one)
	three := acquire(t, m, order("three", Want{IDs: []string{"0", "3"}}))
	require.Equal(t, []string{"held", "held", "held", "held"}, states(t, m))
	release(t, two, three)
	require.Equal(t, []string{"free", "free", "free", "free"}, states(t, m))
	left, err := filepath.Glob(filepath.Join(m.dir, "queue", "*"))
	require.NoError(t, err)
	require.Empty(t, left)
	locks, err := filepath.Glob(filepath.Join(m.dir, "gpu-*.lock"))
	require.NoError(t, err)
	require.Len(t, locks, 5, "the lock files of GPUs are never removed")
}

func TestSharedLease(t *testing.T) {
	m := Open(t.TempDir())
	first := acquire(t, m, order("first", Want{IDs: []string{"0"}, Share: true}))
	second := acquire(t, m, order("second", Want{IDs: []string{"0"}, Share: true}))
	require.Equal(t, "shared", states(t, m)[0])
	requireBusy(t, m, order("alone", Want{IDs: []string{"0"}}), "run first")
	release(t, first)
	requireBusy(t, m, order("alone", Want{IDs: []string{"0"}}), "run second")
	release(t, second)
	alone := acquire(t, m, order("alone", Want{IDs: []string{"0"}}))
	requireBusy(t, m, order("third", Want{IDs: []string{"0"}, Share: true}), "run alone")
	release(t, alone)
}

func TestLeaseOfAnUnknownNumber(t *testing.T) {
	m := Open(t.TempDir())
	unknown := func(run string, want Want) Order { return Order{Want: want, Holder: Holder{RunID: run}} }
	one := acquire(t, m, unknown("one", Want{IDs: []string{"3"}}))
	requireBusy(t, m, unknown("all", Want{All: true}), "run one")
	release(t, one)
	all := acquire(t, m, unknown("all", Want{All: true}))
	require.Nil(t, all.IDs())
	requireBusy(t, m, unknown("one", Want{IDs: []string{"3"}}), "run all")
	release(t, all)
}

// named is an inventory that tells the lasting names of its GPUs, by their indexes.
func named(uuids ...string) Inventory {
	inv := madeUpGPUs(len(uuids))
	for i, uuid := range uuids {
		inv.Devices[i].UUID = uuid
	}
	return inv
}

// TestPools reaches GPUs in several ways, which do not all tell the same of them.
func TestPools(t *testing.T) {
	dir := t.TempDir()
	socket, network := Open(dir, "engine-a", LocalPool), Open(dir, "engine-a")
	neighbor, other := Open(dir, "engine-b", LocalPool), Open(dir, "engine-c")
	first := Order{Want: Want{IDs: []string{"0"}}, Holder: Holder{RunID: "first"}, Inventory: named("GPU-a", "GPU-b")}
	held := acquire(t, socket, first)
	for name, m := range map[string]*Manager{"by its network": network, "by another engine": neighbor} {
		requireBusy(t, m, order(name, Want{IDs: []string{"0"}}), "GPU 0 is held by run first")
		require.Equal(t, []string{"held", "free", "free", "free"}, states(t, m), name)
		requireBusy(t, m, Order{Want: Want{All: true}, Holder: Holder{RunID: name}}, "held by run first")
		one := acquire(t, m, order(name, Want{Count: 1}))
		require.Equal(t, []string{"1"}, one.IDs(), name)
		requireBusy(t, socket, Order{Want: Want{IDs: []string{"GPU-b"}}, Inventory: first.Inventory}, "GPU 1 is held by run "+name)
		release(t, one)
	}
	// Another machine has GPUs and a queue of its own.
	waits, got := make(chan string, 100), make(chan error)
	waiter := order("waiter", Want{All: true})
	waiter.Wait, waiter.Waiting = time.Minute, func(why string) { waits <- why }
	go func() {
		lease, err := network.Acquire(context.Background(), waiter)
		if err == nil {
			err = lease.Release(context.Background())
		}
		got <- err
	}()
	<-waits
	require.Equal(t, []string{"free", "free", "free", "free"}, states(t, other))
	release(t, acquire(t, other, order("elsewhere", Want{All: true})))
	requireBusy(t, socket, order("late", Want{IDs: []string{"3"}}), "1 request came before (first: run waiter")
	// It has no part in the queue of that engine.
	release(t, acquire(t, neighbor, order("neighbor", Want{IDs: []string{"3"}})))
	release(t, held)
	require.NoError(t, <-got)

	// What the dead left is asked after by those who could get it.
	require.NoError(t, acquire(t, network, order("dead", Want{IDs: []string{"2"}})).Leave())
	asking := order("asking", Want{IDs: []string{"2"}})
	asking.StillUsed = func(_ context.Context, dead Holder, _ time.Time) string { return dead.RunID + " still runs" }
	release(t, acquire(t, other, asking))
	requireBusy(t, socket, asking, "GPU 2: dead still runs")
}

// TestRenumbered changes the indexes of GPUs under a lease and under a request.
func TestRenumbered(t *testing.T) {
	m := Open(t.TempDir())
	before, after := named("GPU-a", "GPU-b", "GPU-c"), named("GPU-b", "GPU-c", "GPU-a")
	held := acquire(t, m, Order{Want: Want{IDs: []string{"GPU-a"}}, Holder: Holder{RunID: "held"}, Inventory: before})
	require.Equal(t, []string{"0"}, held.IDs())
	for _, name := range []string{"2", "GPU-a"} {
		requireBusy(t, m, Order{Want: Want{IDs: []string{name}}, Inventory: after}, "GPU 2 is held by run held")
	}
	listing, err := m.List(t.Context(), after)
	require.NoError(t, err)
	require.Equal(t, StateHeld, listing.GPUs[2].State)
	require.Equal(t, []string{"GPU-a"}, listing.GPUs[2].Holders[0].UUIDs)

	// The lease goes by the last look, which is not the one of the request.
	o := Order{Want: Want{IDs: []string{"GPU-c"}}, Inventory: before, Look: func(context.Context) (Inventory, error) { return after, nil }}
	lease := acquire(t, m, o)
	require.Equal(t, []string{"1"}, lease.IDs())
	require.Equal(t, "GPU-c", lease.Devices()[0].UUID)
	require.Equal(t, "GPU-c", lease.Inventory().EngineName("1"))
	release(t, held, lease)

	// The lock of the lasting name holds also without a ticket.
	other := flock.New(filepath.Join(m.dir, "gpu-GPU-a.lock"))
	got, err := other.TryLock()
	require.NoError(t, err)
	require.True(t, got)
	requireBusy(t, m, Order{Want: Want{IDs: []string{"2"}}, Inventory: after}, "locked by a process without a ticket")
	require.NoError(t, other.Close())
}

// TestWaitingInOrder lets the second of two waiters want what is free: it waits
// all the same.
func TestWaitingInOrder(t *testing.T) {
	m := Open(t.TempDir())
	held := acquire(t, m, order("held", Want{IDs: []string{"0"}}))
	got := make(chan *Lease, 2)
	queue := func(run string, want Want) {
		waits := make(chan string, 100)
		o := order(run, want)
		o.Wait, o.Waiting = time.Minute, func(why string) { waits <- why }
		go func() {
			lease, err := m.Acquire(context.Background(), o)
			if err != nil {
				lease = nil
			}
			got <- lease
		}()
		<-waits
	}
	queue("big", Want{All: true})
	queue("small", Want{IDs: []string{"3"}})
	listing, err := m.List(t.Context(), madeUpGPUs(4))
	require.NoError(t, err)
	require.Len(t, listing.Queue, 2)
	require.Equal(t, "big", listing.Queue[0].RunID)
	require.Equal(t, "all GPUs", listing.Queue[0].Want)
	require.Equal(t, "small", listing.Queue[1].RunID)
	require.Equal(t, StateFree, listing.GPUs[3].State)
	requireBusy(t, m, order("late", Want{IDs: []string{"3"}}), "2 requests came before (first: run big")
	release(t, held)
	big := <-got
	require.NotNil(t, big)
	require.Len(t, big.IDs(), 4)
	release(t, big)
	small := <-got
	require.NotNil(t, small)
	require.Equal(t, []string{"3"}, small.IDs())
	release(t, small)
}

func TestWaitingEnds(t *testing.T) {
	m := Open(t.TempDir())
	held := acquire(t, m, order("held", Want{IDs: []string{"0"}}))
	o := order("impatient", Want{IDs: []string{"0"}})
	o.Wait = 150 * time.Millisecond
	requireBusy(t, m, o, "not free within 150ms: GPU 0 is held by run held")

	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	o.Wait, o.Waiting = time.Hour, func(string) { cancel(stopped) }
	_, err := m.Acquire(ctx, o)
	require.ErrorIs(t, err, stopped)
	listing, err := m.List(t.Context(), madeUpGPUs(4))
	require.NoError(t, err)
	require.Empty(t, listing.Queue, "who gives up leaves the queue")
	release(t, held)
}

// TestLeftByTheDead is a holder that ended without a word: its program is asked
// after before the GPU is handed out.
func TestLeftByTheDead(t *testing.T) {
	m := Open(t.TempDir())
	dead := acquire(t, m, order("dead", Want{IDs: []string{"1"}}))
	require.NoError(t, dead.Leave())
	listing, err := m.List(t.Context(), madeUpGPUs(4))
	require.NoError(t, err)
	require.Equal(t, StateQuarantined, listing.GPUs[1].State)
	require.Contains(t, listing.GPUs[1].Reason, "held by run dead")

	asked := []string{}
	o := order("next", Want{IDs: []string{"1"}})
	o.StillUsed = func(_ context.Context, dead Holder, _ time.Time) string {
		asked = append(asked, dead.RunID)
		return "container x still runs"
	}
	requireBusy(t, m, o, "GPU 1: container x still runs")
	require.Equal(t, []string{"dead"}, asked)
	o.Want = Want{Count: 3}
	around := acquire(t, m, o)
	require.Equal(t, []string{"0", "2", "3"}, around.IDs())
	release(t, around)
	o.Want = Want{Count: 1}
	o.StillUsed = func(context.Context, Holder, time.Time) string { return "" }
	release(t, acquire(t, m, o))
	require.Equal(t, []string{"free", "free", "free", "free"}, states(t, m))
}

func TestAStrangersLock(t *testing.T) {
	m := Open(t.TempDir())
	release(t, acquire(t, m, order("first", Want{All: true})))
	other := flock.New(filepath.Join(m.dir, "gpu-local-0.lock"))
	got, err := other.TryLock()
	require.NoError(t, err)
	require.True(t, got)
	around := acquire(t, m, order("around", Want{Count: 1}))
	require.Equal(t, []string{"1"}, around.IDs())
	requireBusy(t, m, order("named", Want{IDs: []string{"0"}}), "locked by a process without a ticket")
	release(t, around)
	require.NoError(t, other.Close())
	release(t, acquire(t, m, order("named", Want{IDs: []string{"0"}})))
}

// TestFreshLook takes a look that finds the memory free again, and one that finds
// a GPU broken.
func TestFreshLook(t *testing.T) {
	full := madeUpGPUs(2)
	for i := range full.Devices {
		full.Devices[i].TotalBytes, full.Devices[i].UsedBytes = 80<<30, 40<<30
	}
	m := Open(t.TempDir())
	looks := 0
	fresh := func(inv Inventory) func(context.Context) (Inventory, error) {
		return func(context.Context) (Inventory, error) {
			looks++
			inv.At = time.Now()
			return inv, nil
		}
	}
	stale := Order{Want: Want{Count: 2}, Inventory: full, Look: fresh(madeUpGPUs(2))}
	release(t, acquire(t, m, stale))
	require.Equal(t, 1, looks)
	// The holder of then may have gone since: one look more before a refusal.
	stale.Inventory.At = time.Now()
	release(t, acquire(t, m, stale))
	require.Equal(t, 2, looks)

	stale.Look = fresh(full)
	requireBusy(t, m, stale, "40960 MiB of its 81920 MiB are used by somebody else")

	broken := madeUpGPUs(2)
	broken.Devices[1].Problem = "is lost"
	stale.Inventory, stale.Look = madeUpGPUs(2), fresh(broken)
	_, err := m.Acquire(t.Context(), stale)
	var want *WantError
	require.ErrorAs(t, err, &want, "waiting does not mend it")
	failed := errors.New("nvidia-smi hangs")
	stale.Look = func(context.Context) (Inventory, error) { return Inventory{}, failed }
	_, err = m.Acquire(t.Context(), stale)
	require.ErrorIs(t, err, failed)
	listing, err := m.List(t.Context(), madeUpGPUs(2))
	require.NoError(t, err)
	require.Empty(t, listing.Queue)
}

// TestTogether: requests that come at the same moment do not refuse each other for
// being looked at, as long as there are GPUs for all.
func TestTogether(t *testing.T) {
	m := Open(t.TempDir())
	leases, errs := make([]*Lease, 4), make([]error, 4)
	var all sync.WaitGroup
	for i := range leases {
		o := order(strconv.Itoa(i), Want{Count: 1})
		o.Look = func(ctx context.Context) (Inventory, error) {
			// Until the others are there, too.
			for {
				live, _, err := m.read(ctx)
				if err != nil || len(live) == len(leases) {
					return madeUpGPUs(4), err
				}
			}
		}
		all.Go(func() { leases[i], errs[i] = m.Acquire(t.Context(), o) })
	}
	all.Wait()
	for i, err := range errs {
		require.NoError(t, err)
		release(t, leases[i])
	}
}

// TestAsideLetsOthersPass: who waits for something else than a lease keeps nobody
// waiting.
func TestAsideLetsOthersPass(t *testing.T) {
	m := Open(t.TempDir())
	require.NoError(t, acquire(t, m, order("dead", Want{IDs: []string{"0"}})).Leave())
	waits := make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	o := order("aside", Want{IDs: []string{"0"}})
	o.Wait, o.Waiting = time.Hour, func(why string) { waits <- why }
	o.StillUsed = func(context.Context, Holder, time.Time) string { return "container x still runs" }
	done := make(chan error)
	go func() {
		_, err := m.Acquire(ctx, o)
		done <- err
	}()
	require.Contains(t, <-waits, "container x still runs")
	passes := order("passes", Want{IDs: []string{"1"}})
	passes.StillUsed = o.StillUsed
	release(t, acquire(t, m, passes))
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

func TestFolderTrouble(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := Open(filepath.Join(file, "gpus")).Acquire(t.Context(), order("x", Want{Count: 1}))
	require.ErrorContains(t, err, "leases of GPUs in")
	var hinted interface{ Hint() string }
	require.ErrorAs(t, err, &hinted)
	require.Contains(t, hinted.Hint(), "SANDBOX_GPU_DIR")

	m := Open(filepath.Join(dir, "gpus"))
	release(t, acquire(t, m, order("x", Want{Count: 1})))
	// Damage of what a dead process left is put right.
	require.NoError(t, os.WriteFile(filepath.Join(m.dir, "counter"), []byte("nonsense"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(m.dir, "queue", "000000000007.lock"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(m.dir, "queue", "000000000007.json"), []byte("{"), 0o600))
	lease := acquire(t, m, order("x", Want{Count: 1}))
	require.Greater(t, lease.ticket.Number, int64(7))
	release(t, lease)
	left, err := filepath.Glob(filepath.Join(m.dir, "queue", "*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestCommonFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gpus")
	require.NoError(t, os.Mkdir(dir, 0o770))
	require.NoError(t, os.Chmod(dir, 0o770|os.ModeSetgid))
	m := Open(dir)
	lease := acquire(t, m, order("x", Want{IDs: []string{"0"}}))
	for name, mode := range map[string]os.FileMode{"folder.lock": 0o660, "gpu-local-0.lock": 0o660, "queue": 0o770 | os.ModeSetgid | os.ModeDir, "queue/000000000001.json": 0o660} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode(), name)
	}
	release(t, lease)
}

// TestLockedDirectory checks that a wait for the lock of the lease directory ends with its context, and
// that its abandoned wait keeps nobody out later.
func TestLockedDirectory(t *testing.T) {
	dir := t.TempDir()
	first, err := openLeaseDir(t.Context(), dir)
	require.NoError(t, err)
	gone := errors.New("the caller is gone")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, gone)
	defer cancel()
	_, err = Open(dir).List(ctx, madeUpGPUs(1))
	require.ErrorIs(t, err, gone)
	require.NoError(t, first.close())
	for range 2 { // the abandoned wait may get the lock in between
		next, err := openLeaseDir(t.Context(), dir)
		require.NoError(t, err)
		require.NoError(t, next.close())
	}
}
