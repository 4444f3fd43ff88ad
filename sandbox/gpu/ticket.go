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

// ticketSchema names the form of a ticket's file.
const ticketSchema = "evalbox/gpu-ticket/v1"

// States of a ticket.
const (
	// stateArriving has not looked at its GPUs yet.
	stateArriving = "arriving"
	// stateWaiting waits for GPUs.
	stateWaiting = "waiting"
	// stateHolding has its GPUs.
	stateHolding = "holding"
)

// Ticket is one request for GPUs on disk, from its arrival to the end of its lease. A lock
// file of the same name is locked as long as its process lives.
type Ticket struct {
	Schema string `json:"schema"`
	// Number is the place in the order of arrival.
	Number int64 `json:"number"`
	// State is arriving, waiting or holding.
	State string `json:"state"`
	// Aside says that something other than a lease keeps the request waiting.
	Aside bool `json:"aside"`
	// Pools are the pools of its GPUs; see [Open].
	Pools []string `json:"pools"`
	// Want is the request as a text. GPUs are the indexes of the GPUs that it holds,
	// and UUIDs their UUIDs, as far as they are known.
	Want  string    `json:"want"`
	GPUs  []string  `json:"gpus"`
	UUIDs []string  `json:"uuids"`
	Share bool      `json:"share"`
	Since time.Time `json:"since"`
	Holder
}

// Holder identifies a run and its process.
type Holder struct {
	RunID string `json:"run_id"`
	// Name is the run's name for people; it may be empty.
	Name string `json:"name"`
	// Engine is the ID of the run's engine.
	Engine string `json:"engine"`
	// PID, User and Host identify the process.
	PID  int    `json:"pid"`
	User string `json:"user"`
	Host string `json:"host"`
	// LimitSeconds bounds the time of the run once it has its GPUs.
	LimitSeconds float64 `json:"limit_seconds"`
}

func (t Ticket) describe() string {
	return fmt.Sprintf("run %s (process %d of %s, since %s)", t.RunID, t.PID, t.User, t.Since.UTC().Format(time.RFC3339))
}

// thisProcess returns the Holder of this process, without a run.
var thisProcess = sync.OnceValue(func() Holder {
	h := Holder{PID: os.Getpid(), User: strconv.Itoa(os.Getuid())}
	if who, err := user.Current(); err == nil {
		h.User = who.Username
	}
	h.Host, _ = os.Hostname() // empty if the system does not know
	return h
})

// queued is a ticket of this process, with its lock.
type queued struct {
	Ticket
	lock *flock.Flock
}

func (f *leaseDir) queueDir() string { return filepath.Join(f.dir, "queue") }

// ticketPath returns the path of a ticket's files, without their extensions.
func (f *leaseDir) ticketPath(number int64) string {
	return filepath.Join(f.queueDir(), fmt.Sprintf("%012d", number))
}

// arrive adds a ticket at the end of the queue.
func (f *leaseDir) arrive(t Ticket) (*queued, error) {
	number, err := f.nextNumber()
	if err != nil {
		return nil, err
	}
	t.Schema, t.Number, t.State, t.Since = ticketSchema, number, stateArriving, time.Now().UTC()
	q := &queued{Ticket: t}
	q.lock, err = f.lockFile(f.ticketPath(number)+".lock", false)
	if err != nil {
		return nil, err
	}
	if err := f.write(q); err != nil {
		return nil, errors.Join(err, f.drop(q))
	}
	return q, nil
}

// write writes the ticket to disk, in one step.
func (f *leaseDir) write(q *queued) error {
	text, err := json.MarshalIndent(q.Ticket, "", "  ")
	if err != nil {
		return err
	}
	return f.writeFile(f.ticketPath(q.Number)+".json", append(text, '\n'))
}

// drop removes a ticket of this process.
func (f *leaseDir) drop(q *queued) error { return errors.Join(f.forget(q.Ticket), q.lock.Close()) }

// nextNumber counts arrivals.
func (f *leaseDir) nextNumber() (int64, error) {
	path := filepath.Join(f.dir, "counter")
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	last, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		last = 0 // new, or damaged: the numbers of the queue remain
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

// numbers returns the numbers of all tickets, in order.
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

// tickets reads the queue of the pools: the tickets of live processes, and those of dead
// ones that held GPUs. With clean set it removes other tickets of dead processes.
func (f *leaseDir) tickets(pools []string, clean bool) (live, dead []Ticket, err error) {
	numbers, err := f.numbers()
	if err != nil {
		return nil, nil, err
	}
	for _, n := range numbers {
		path := f.ticketPath(n)
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
			// Of other pools.
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

// forget removes the files of a ticket.
func (f *leaseDir) forget(t Ticket) error {
	path := f.ticketPath(t.Number)
	return errors.Join(removeFile(path+".json"), removeFile(path+".lock"))
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
