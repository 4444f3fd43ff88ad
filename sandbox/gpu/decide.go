package gpu

import (
	"fmt"
	"slices"
	"strings"
)

// view is what the queue holds when a request is looked at.
type view struct {
	// holding are the live holders.
	holding []Ticket
	// ahead are the live requests that came before, those apart that stepped
	// aside.
	ahead []Ticket
	// left are dead holders whose programs nobody has ended for certain.
	left []Ticket
	// foreign are GPUs that were found locked by processes without a ticket.
	foreign []string
}

// decision is what becomes of a request now.
type decision struct {
	// take are the GPUs to hand out; empty to wait for the reason why.
	take []string
	why  string
	// aside says that it does not wait for a lease, so that those behind it
	// need not wait for it.
	aside bool
	// used says that memory in use stood in the way.
	used bool
	// sharing says that only runs that share, unlike this one, stand in the way.
	sharing bool
	// arriving says that it only waits for others to be looked at.
	arriving bool
}

// decide chooses the GPUs of a request, or says what it waits for. It is strict
// about the order: who comes later waits for all who came before, also for those
// who want more. Otherwise a stream of small requests would starve a big one.
//
// busy are the reasons why dead holders' GPUs are not free.
func decide(w Want, inv Inventory, v view, busy map[string]string) (decision, error) {
	ids, err := w.candidates(inv)
	if err != nil {
		return decision{}, err
	}
	need := w.Count
	if need == 0 {
		need = len(ids)
	}
	// able are those that only a lease could keep from us, free those that
	// nothing does.
	var able, free, reasons []string
	var held heldBy
	used, sharing := false, !w.Share && len(v.ahead) == 0
	for _, id := range ids {
		d := inv.device(id)
		holders := holdersOf(d, v.holding)
		if why := unfit(d, w, v, busy, len(holders) > 0); why != "" {
			reasons = append(reasons, fmt.Sprintf("GPU %s: %s", id, why))
			used = used || why == d.usedByOthers()
			continue
		}
		able = append(able, id)
		if len(holders) == 0 || w.Share && !slices.ContainsFunc(holders, func(t Ticket) bool { return !t.Share }) {
			free = append(free, id)
			continue
		}
		var names []string
		for _, t := range holders {
			sharing = sharing && t.Share
			names = append(names, t.describe())
		}
		if more := len(names) - maxNamed; more > 0 {
			names = append(names[:maxNamed], fmt.Sprintf("%d more", more))
		}
		held.add(id, strings.Join(names, " and "))
	}
	d := decision{aside: len(able) < need, used: used, sharing: sharing && len(held.names) > 0 && len(reasons) == 0, why: strings.Join(append(held.texts(), reasons...), "; ")}
	switch {
	case len(v.ahead) > 0 && !d.aside:
		d.why = aheadText(v.ahead, d.why)
		d.arriving = !slices.ContainsFunc(v.ahead, func(t Ticket) bool { return t.State != stateArriving })
	case len(free) >= need:
		// Of shared ones, those with the fewest holders.
		slices.SortStableFunc(free, func(a, b string) int {
			return len(holdersOf(inv.device(a), v.holding)) - len(holdersOf(inv.device(b), v.holding))
		})
		d.take = free[:need]
		slices.SortFunc(d.take, compareIDs)
	}
	return d, nil
}

// unfit says why a GPU may not be handed out although nobody alive holds it.
func unfit(d Device, w Want, v view, busy map[string]string, held bool) string {
	if slices.Contains(v.foreign, d.ID) || slices.Contains(v.foreign, everything) {
		return (&lockedError{d.ID}).Error()
	}
	for _, t := range holdersOf(d, v.left) {
		if why := busy[t.RunID]; why != "" {
			return why
		}
	}
	if w.Share || held {
		return ""
	}
	return d.usedByOthers()
}

// holdersOf are the tickets that hold a GPU, by its lasting name or its index. Both
// count: the way to the engine that a holder took may only have told the index.
// After indexes have changed this keeps too much, never too little.
func holdersOf(d Device, tickets []Ticket) []Ticket {
	var all []Ticket
	for _, t := range tickets {
		if slices.Contains(t.GPUs, d.ID) || d.UUID != "" && slices.Contains(t.UUIDs, d.UUID) ||
			slices.Contains(t.GPUs, everything) || d.ID == everything && len(t.GPUs) > 0 {
			all = append(all, t)
		}
	}
	return all
}

// heldBy groups GPUs by who holds them, for people.
type heldBy struct {
	names []string
	ids   map[string][]string
}

func (h *heldBy) add(id, name string) {
	if h.ids == nil {
		h.ids = map[string][]string{}
	}
	if h.ids[name] == nil {
		h.names = append(h.names, name)
	}
	h.ids[name] = append(h.ids[name], id)
}

// maxNamed is how many holders are named; `sandbox gpus` names all.
const maxNamed = 2

func (h *heldBy) texts() []string {
	var texts []string
	for i, name := range h.names {
		if i == maxNamed {
			return append(texts, fmt.Sprintf("%d others hold more", len(h.names)-maxNamed))
		}
		if ids := h.ids[name]; len(ids) == 1 {
			texts = append(texts, fmt.Sprintf("GPU %s is held by %s", ids[0], name))
		} else {
			texts = append(texts, fmt.Sprintf("GPUs %s are held by %s", ranges(ids), name))
		}
	}
	return texts
}

func aheadText(ahead []Ticket, why string) string {
	text := "1 request came before"
	if len(ahead) > 1 {
		text = fmt.Sprintf("%d requests came before", len(ahead))
	}
	text += fmt.Sprintf(" (first: %s wants %s)", ahead[0].describe(), ahead[0].Want)
	if why != "" {
		text += "; " + why
	}
	return text
}
