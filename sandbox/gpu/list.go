package gpu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// States of a GPU in a listing.
const (
	// StateFree means that the GPU can be lent.
	StateFree = "free"
	// StateHeld means that it is lent to one run alone.
	StateHeld = "held"
	// StateShared means that it is lent to runs that share it.
	StateShared = "shared"
	// StateQuarantined means that it cannot be lent, for a reason.
	StateQuarantined = "quarantined"
)

// Listed is a GPU and its holders.
type Listed struct {
	Device
	State string `json:"state"`
	// Reason says why the GPU cannot be lent; empty if there is none.
	Reason string `json:"reason"`
	// Holders are the live holders, in the order of arrival.
	Holders []Ticket `json:"holders"`
}

// Listing is all GPUs and the queue.
type Listing struct {
	GPUs []Listed `json:"gpus"`
	// Queue holds the waiting requests, in the order of arrival.
	Queue []Ticket `json:"queue"`
}

// List returns the state of every GPU of the inventory, and of held GPUs that are not in
// it. It changes nothing.
func (m *Manager) List(ctx context.Context, inv Inventory) (Listing, error) {
	live, dead, err := m.read(ctx)
	if err != nil {
		return Listing{}, &dirError{m.dir, err}
	}
	return list(inv, live, dead), nil
}

// read reads the queue. A directory that does not exist has none.
func (m *Manager) read(ctx context.Context) (live, dead []Ticket, err error) {
	if _, err := os.Stat(m.dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	f, err := openLeaseDir(ctx, m.dir)
	if err != nil {
		return nil, nil, err
	}
	live, dead, err = f.tickets(m.pools, false)
	return live, dead, errors.Join(err, f.close())
}

// list combines the inventory with the queue.
func list(inv Inventory, live, dead []Ticket) Listing {
	l := Listing{GPUs: []Listed{}, Queue: []Ticket{}}
	devices := slices.Clone(inv.Devices)
	var holding []Ticket
	for _, t := range live {
		if t.State != stateHolding {
			l.Queue = append(l.Queue, t)
			continue
		}
		holding = append(holding, t)
		for _, id := range t.GPUs {
			if !slices.ContainsFunc(devices, func(d Device) bool { return d.ID == id }) {
				devices = append(devices, inv.device(id))
			}
		}
	}
	slices.SortStableFunc(devices, func(a, b Device) int { return compareIDs(a.ID, b.ID) })
	for _, d := range devices {
		g := Listed{Device: d, State: StateFree, Holders: append([]Ticket{}, holdersOf(d, holding)...)}
		switch {
		case len(g.Holders) > 0 && g.Holders[0].Share:
			g.State = StateShared
		case len(g.Holders) > 0:
			g.State = StateHeld
		default:
			g.Reason = d.usedByOthers()
			for _, t := range holdersOf(d, dead) {
				g.Reason = fmt.Sprintf("held by %s, which is gone: its program may still run, and is asked after before anybody gets the GPU", t.describe())
			}
		}
		if d.Problem != "" {
			g.Reason = strings.TrimSuffix(d.Problem+"; "+g.Reason, "; ")
		}
		if g.Reason != "" && len(g.Holders) == 0 {
			g.State = StateQuarantined
		}
		l.GPUs = append(l.GPUs, g)
	}
	return l
}
