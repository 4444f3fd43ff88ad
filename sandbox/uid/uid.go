// Package uid lends user IDs to runs. The kernel counts inotify instances, pipe buffers,
// pending signals, POSIX timers, message queues and keys for each user. So a run that shares
// its user ID with another one can use up what the other one needs.
//
// The leases of all controllers of a machine are in one directory, with one small file for
// each ID that was ever lent:
//
//	70003    locked (flock) while the controller of its run lives; its text is a [Holder]
//
// The lock shows that the controller lives. The text shows that the container may live. A
// file without a text and without a lock is free. The files are never removed, because two
// processes could then lock two files of one name. The lowest free ID is lent, so there are
// at most as many files as runs have run at the same time.
package uid

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/fsx"
)

// Range is the IDs from First to Last, both included. The zero Range has none.
type Range struct{ First, Last int }

// Default is the range of an engine without a user namespace. It is above the IDs that
// accounts, services and systemd have (0 to 65535), below those of /etc/subuid (100000 and
// more), and small enough for every archive format.
var Default = Range{70000, 99999}

// Remapped is the range of an engine with a user namespace, which usually has the IDs from
// 0 to 65535 only. None of them is an account of the machine.
var Remapped = Range{34000, 63999}

// Any reports whether the range has an ID.
func (r Range) Any() bool { return r.First > 0 && r.Last >= r.First }

// Contains reports whether an ID is in the range.
func (r Range) Contains(id int) bool { return r.Any() && r.First <= id && id <= r.Last }

// String is the range as [ParseRange] reads it.
func (r Range) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// maxID is the highest ID that is lent: some programs keep IDs in 31 bits.
const maxID = 1<<31 - 2

// ParseRange reads FIRST-LAST, or subuid:NAME for the subordinate IDs of an account: the
// first entry of /etc/subuid that /etc/subgid has as well. The IDs of a range are user IDs
// and group IDs, and never 0.
func ParseRange(text string) (Range, error) {
	if name, ok := strings.CutPrefix(text, "subuid:"); ok {
		return subordinate("/etc", name)
	}
	first, last, ok := strings.Cut(text, "-")
	a, err1 := strconv.Atoi(first)
	b, err2 := strconv.Atoi(last)
	if !ok || err1 != nil || err2 != nil || a < 1 || b < a || b > maxID {
		return Range{}, fmt.Errorf("must be a range of user IDs from 1, such as %v, or subuid:NAME", Default)
	}
	return Range{a, b}, nil
}

// subordinate finds the IDs of an account that dir/subuid and dir/subgid agree on.
func subordinate(dir, name string) (Range, error) {
	var lists [2][]string
	for i, file := range []string{"subuid", "subgid"} {
		text, err := fsx.Read(filepath.Join(dir, file), 1<<20)
		if err != nil {
			return Range{}, fmt.Errorf("subuid:%s: %w", name, err)
		}
		lists[i] = strings.Fields(string(text))
	}
	for _, line := range lists[0] {
		fields := strings.Split(line, ":")
		if len(fields) != 3 || fields[0] != name || !slices.Contains(lists[1], line) {
			continue
		}
		first, err1 := strconv.Atoi(fields[1])
		count, err2 := strconv.Atoi(fields[2])
		if r := (Range{first, first + count - 1}); err1 == nil && err2 == nil && r.Any() && r.Last <= maxID {
			return r, nil
		}
	}
	return Range{}, fmt.Errorf("%s/subuid and %s/subgid have no equal line for the account %q", dir, dir, name)
}

// ErrExhausted means that every ID of a range is lent, or is an account of this machine.
var ErrExhausted = errors.New("no user ID is free")

// ErrNotHeld means that the lease of a run does not exist any more.
var ErrNotHeld = errors.New("the user ID is not leased to this run")

// Holder is the run that has an ID.
type Holder struct {
	RunID string `json:"run_id"`
	// Engine is the ID of the run's engine.
	Engine string `json:"engine"`
	// Until is when the container has certainly ended; it decides for an engine that
	// cannot be asked.
	Until time.Time `json:"until"`
}

// Dir is a directory of leases.
type Dir struct{ path string }

// Open returns the directory of leases at a path, which need not exist yet.
func Open(path string) Dir { return Dir{path} }

// Lease is one ID of one run. Its methods are called by one goroutine.
type Lease struct {
	id int
	// file holds the lock.
	file *os.File
	path string
}

// ID is the user ID, and the group ID as well.
func (l *Lease) ID() int { return l.id }

// MayRun reports whether the container of a holder whose controller is gone may still have
// processes.
type MayRun func(Holder) bool

// Lease lends the lowest free ID of a range. It does not wait: runs that are prepared ahead
// hold an ID while they wait for others, so a wait could last for ever. If every ID is taken,
// it calls ask, at most once, about the holders whose controllers are gone. [ErrExhausted]
// means that no ID is free.
func (d Dir) Lease(ctx context.Context, r Range, to Holder, ask func(context.Context) (MayRun, error)) (*Lease, error) {
	if err := d.prepare(); err != nil {
		return nil, err
	}
	var dead []int
	for id := r.First; id <= r.Last; id++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if isAccount(id) {
			continue
		}
		lease, orphan, err := d.take(id, to, nil)
		if lease != nil || err != nil {
			return lease, err
		}
		if orphan {
			dead = append(dead, id)
		}
	}
	// The controllers of these were gone before the engine is asked, so none of them makes
	// a container that the answer lacks.
	if len(dead) > 0 {
		runs, err := ask(ctx)
		if err != nil {
			return nil, err
		}
		for _, id := range dead {
			if lease, _, err := d.take(id, to, runs); lease != nil || err != nil {
				return lease, err
			}
		}
	}
	return nil, fmt.Errorf("%w: all %d of %v are taken", ErrExhausted, r.Last-r.First+1, r)
}

// take leases an ID without a holder, or whose holder cannot run any more. Otherwise there is
// no lease, and orphan says that the controller of its holder is gone.
func (d Dir) take(id int, to Holder, runs MayRun) (_ *Lease, orphan bool, _ error) {
	lease, err := d.lock(id)
	if lease == nil {
		return nil, false, err
	}
	holder, held, err := lease.holder()
	if err == nil && (!held || runs != nil && !runs(holder)) {
		if err = lease.write(to); err == nil {
			return lease, false, nil
		}
	}
	return nil, err == nil, errors.Join(err, lease.unlock())
}

// Sweep frees the IDs of holders whose controllers are gone, and whose containers cannot run
// any more. A later lease does the same once all IDs are taken.
func (d Dir) Sweep(ctx context.Context, ask func(context.Context) (MayRun, error)) error {
	entries, err := os.ReadDir(d.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the directory of user IDs cannot be read: %w", err)
	}
	var orphans []*Lease
	var errs []error
	for _, entry := range entries {
		id, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		lease, err := d.lock(id)
		if lease != nil {
			orphans = append(orphans, lease)
		}
		errs = append(errs, err)
	}
	runs, err := ask(ctx)
	errs = append(errs, err)
	for _, lease := range orphans {
		giveBack := lease.Leave
		if holder, held, readErr := lease.holder(); err == nil && readErr == nil && held && !runs(holder) {
			giveBack = lease.Release
		}
		errs = append(errs, giveBack())
	}
	return errors.Join(errs...)
}

// Adopt takes over the lease of a run whose controller is gone. [ErrNotHeld] means that the
// run does not have the ID, or that its controller lives.
func (d Dir) Adopt(id int, runID string) (*Lease, error) {
	if err := d.prepare(); err != nil {
		return nil, err
	}
	lease, err := d.lock(id)
	if err != nil {
		return nil, err
	}
	if lease == nil {
		return nil, fmt.Errorf("user ID %d: %w", id, ErrNotHeld)
	}
	holder, held, err := lease.holder()
	if err == nil && (!held || holder.RunID != runID) {
		err = fmt.Errorf("user ID %d: %w", id, ErrNotHeld)
	}
	if err != nil {
		return nil, errors.Join(err, lease.unlock())
	}
	return lease, nil
}

// Release gives the ID back. No process of the run may be alive.
func (l *Lease) Release() error {
	return errors.Join(os.Truncate(l.path, 0), l.unlock())
}

// Leave ends the lease of a container that may still run. The ID is not lent again before
// its end is certain.
func (l *Lease) Leave() error { return l.unlock() }

// lock locks the file of an ID; nil means that a live controller has it.
func (d Dir) lock(id int) (*Lease, error) {
	path := filepath.Join(d.path, strconv.Itoa(id))
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|fsx.OpenFlags, 0o600)
	if err == nil {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, file.Close()
		}
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("leasing user ID %d: locking %s: %w", id, path, fsx.Cause(err))
	}
	return &Lease{id, file, path}, nil
}

// File returns the file that holds the lock, for another process that gets a copy of it and
// [Dir.Receive]s the lease. The lease then has two holders, of which one is to [Lease.Forget] it.
func (l *Lease) File() *os.File { return l.file }

// Forget ends the part of this process in a lease that another process has received.
func (l *Lease) Forget() error { return l.file.Close() }

// Receive takes over the lease of another process, which sent its file.
func (d Dir) Receive(id int, file *os.File) *Lease {
	return &Lease{id, file, filepath.Join(d.path, strconv.Itoa(id))}
}

// unlock frees the lock, also while this process is starting another one, which shares its open files
// until it executes its program.
func (l *Lease) unlock() error {
	return errors.Join(unix.Flock(int(l.file.Fd()), unix.LOCK_UN), l.file.Close())
}

// maxHolder bounds the text of a holder, in bytes.
const maxHolder = 4096

// holder reads the note of the run that has the ID. A text that is cut off was being written
// when its controller died: no container existed then.
func (l *Lease) holder() (h Holder, held bool, err error) {
	text, err := fsx.Read(l.path, maxHolder)
	if err != nil {
		return Holder{}, false, fmt.Errorf("leasing user ID %d: %w", l.id, err)
	}
	return h, json.Unmarshal(text, &h) == nil, nil
}

// write writes the note. The caller creates the container afterwards.
func (l *Lease) write(h Holder) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(l.path, os.O_WRONLY|os.O_TRUNC, 0)
	if err == nil {
		_, err = io.WriteString(file, string(text)+"\n")
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return fmt.Errorf("leasing user ID %d: %w", l.id, err)
	}
	return nil
}

// prepare makes the directory, and refuses one that another user may change.
func (d Dir) prepare() error {
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return fmt.Errorf("the directory of user IDs cannot be made: %w", err)
	}
	info, err := os.Lstat(d.path)
	if err != nil {
		return fmt.Errorf("the directory of user IDs cannot be read: %w", err)
	}
	uid, _, known := fsx.OwnerOf(info)
	if !info.IsDir() || info.Mode().Perm()&0o022 != 0 || known && uid != os.Geteuid() {
		return &fs.PathError{Op: "use", Path: d.path,
			Err: errors.New("is not a directory that only this user may change, so its leases of user IDs cannot be trusted")}
	}
	return nil
}

var accounts sync.Map // of bool, by ID

// isAccount reports whether a user or group of this machine has the ID.
func isAccount(id int) bool {
	if known, ok := accounts.Load(id); ok {
		return known == true
	}
	text := strconv.Itoa(id)
	_, noUser := user.LookupId(text)
	_, noGroup := user.LookupGroupId(text)
	is := noUser == nil || noGroup == nil
	accounts.Store(id, is)
	return is
}
