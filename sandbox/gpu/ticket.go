package gpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/evalbox/evalbox/internal/fsx"
)

// TicketSchema names the form of a ticket's file.
const ticketSchema = "evalbox/gpu-ticket/v1"

// States of a ticket.
const (
	// StateArriving has not been looked at yet.
	stateArriving = "arriving"
	// StateWaiting waits for GPUs.
	stateWaiting = "waiting"
	// StateHolding has them.
	stateHolding = "holding"
)

// Ticket is one request for GPUs on disk, from its arrival to its end. As long as
// its process lives, a lock file of the same name is locked.
type Ticket struct {
	Schema string `json:"schema"`
	// Number is the place in the order of arrival.
	Number int64  `json:"number"`
	State  string `json:"state"`
	// Aside says that it waits for something else than a lease.
	Aside bool `json:"aside"`
	// Pools are those that it counts its GPUs in.
	Pools []string `json:"pools"`
	// Want is the request for people, GPUs the indexes of what it holds, and
	// UUIDs the lasting names, as far as they are known.
	Want  string    `json:"want"`
	GPUs  []string  `json:"gpus"`
	UUIDs []string  `json:"uuids"`
	Share bool      `json:"share"`
	Since time.Time `json:"since"`
	Holder
}

// Holder says for whom GPUs are held.
type Holder struct {
	RunID string `json:"run_id"`
	// Name is the run's, for people; it may be empty.
	Name string `json:"name"`
	// Engine is the ID of the engine that runs it.
	Engine string `json:"engine"`
	// PID, User and Host are those of the process.
	PID  int    `json:"pid"`
	User string `json:"user"`
	Host string `json:"host"`
	// LimitSeconds bounds how long the run may take once it has its GPUs.
	LimitSeconds float64 `json:"limit_seconds"`
}

func (t Ticket) describe() string {
	return fmt.Sprintf("run %s (process %d of %s, since %s)", t.RunID, t.PID, t.User, t.Since.UTC().Format(time.RFC3339))
}

// thisProcess fills in who we are.
var thisProcess = sync.OnceValue(func() Holder {
	h := Holder{PID: os.Getpid(), User: strconv.Itoa(os.Getuid())}
	if who, err := user.Current(); err == nil {
		h.User = who.Username
	}
	h.Host, _ = os.Hostname() // empty where the system does not tell
	return h
})

// queued is a ticket of ours, with its lock.
type queued struct {
	Ticket
	path string
	lock *flock.Flock
}

func (f *leaseDir) queueDir() string { return filepath.Join(f.dir, "queue") }

// arrive makes a ticket at the end of the queue. The folder is locked.
func (f *leaseDir) arrive(t Ticket) (*queued, error) {
	number, err := f.nextNumber()
	if err != nil {
		return nil, err
	}
	t.Schema, t.Number, t.State, t.Since = ticketSchema, number, stateArriving, time.Now().UTC()
	q := &queued{Ticket: t, path: filepath.Join(f.queueDir(), fmt.Sprintf("%012d", number))}
	q.lock, err = f.lockFile(q.path+".lock", false)
	if err != nil {
		return nil, err
	}
	if err := f.write(q); err != nil {
		return nil, errors.Join(err, f.drop(q))
	}
	return q, nil
}

// write puts the ticket on disk, whole or not at all.
func (f *leaseDir) write(q *queued) error {
	text, err := json.MarshalIndent(q.Ticket, "", "  ")
	if err != nil {
		return err
	}
	return f.writeFile(q.path+".json", append(text, '\n'))
}

// drop ends a ticket of ours. The folder is locked.
func (f *leaseDir) drop(q *queued) error {
	err := errors.Join(removeFile(q.path+".json"), removeFile(q.path+".lock"))
	return errors.Join(err, q.lock.Close())
}

// nextNumber counts arrivals. The folder is locked.
func (f *leaseDir) nextNumber() (int64, error) {
	path := filepath.Join(f.dir, "counter")
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	last, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		last = 0 // new, or damaged: the queue itself tells
	}
	numbers, err := f.numbers()
	if err != nil {
		return 0, err
	}
	for _, n := range numbers {
		last = max(last, n)
	}
	return last + 1, f.writeFile(path, []byte(strconv.FormatInt(last+1, 10)+"\n"))
}

// numbers are those of all tickets, in order.
func (f *leaseDir) numbers() ([]int64, error) {
	entries, err := os.ReadDir(f.queueDir())
	if err != nil {
		return nil, err
	}
	var numbers []int64
	for _, entry := range entries {
		if name, ok := strings.CutSuffix(entry.Name(), ".lock"); ok {
			if n, err := strconv.ParseInt(name, 10, 64); err == nil && n > 0 {
				numbers = append(numbers, n)
			}
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// maxTicket bounds the file of a ticket, which another user may have written.
const maxTicket = 64 << 10

// tickets reads the queue of the pools, the live ones and the dead that held GPUs.
// With clean set it removes the other dead. The folder is locked.
func (f *leaseDir) tickets(pools []string, clean bool) (live, dead []Ticket, err error) {
	numbers, err := f.numbers()
	if err != nil {
		return nil, nil, err
	}
	for _, n := range numbers {
		path := filepath.Join(f.queueDir(), fmt.Sprintf("%012d", n))
		lives, err := f.isLocked(path + ".lock")
		if err != nil {
			return nil, nil, err
		}
		var t Ticket
		text, err := fsx.Read(path+".json", maxTicket)
		if err == nil {
			err = json.Unmarshal(text, &t)
		}
		t.Number = n
		switch {
		case lives && err != nil:
			return nil, nil, fmt.Errorf("ticket %s: %w", path, err)
		case err == nil && (lives || len(t.GPUs) > 0) && !t.in(pools):
			// The business of others.
		case lives:
			live = append(live, t)
		case err == nil && len(t.GPUs) > 0:
			dead = append(dead, t)
		case clean:
			if err := f.forget(t); err != nil {
				return nil, nil, err
			}
		}
	}
	return live, dead, nil
}

// in reports whether the ticket has one of the pools.
func (t Ticket) in(pools []string) bool {
	return slices.ContainsFunc(t.Pools, func(pool string) bool { return slices.Contains(pools, pool) })
}

// forget removes a dead ticket. The folder is locked.
func (f *leaseDir) forget(t Ticket) error {
	path := filepath.Join(f.queueDir(), fmt.Sprintf("%012d", t.Number))
	return errors.Join(removeFile(path+".json"), removeFile(path+".lock"))
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
