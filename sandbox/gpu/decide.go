package gpu

import (
	"fmt"
	"slices"
	"strings"
)

// view is the queue as one request sees it.
type view struct {
	// holding are the live holders.
	holding []Ticket
	// ahead are the live requests that came before, except those that stepped aside.
	ahead []Ticket
	// left are dead holders whose programs may still run.
	left []Ticket
	// foreign are GPUs that processes without a ticket have locked, by index or UUID.
	foreign []string
}

// decision says whether a request gets its GPUs now.
type decision struct {
	// take are the GPUs to lend. If it is empty, the request waits; why is the reason.
	take []string
	why  string
	// aside says that the request does not wait for a lease, so that later requests need
	// not wait for it.
	aside bool
	// used says that memory in use is a reason.
	used bool
	// sharing says that the only reason is runs that share, unlike this one.
	sharing bool
	// arriving says that the request only waits for the first look of others.
	arriving bool
}

// decide chooses the GPUs of a request, or the reason to wait. The order of arrival is
// strict: a request waits for all that came before, also for those that want more GPUs.
// Otherwise a stream of small requests would starve a big one.
//
// busy are the reasons why GPUs of dead holders are not free, by run.
func decide(w Want, inv Inventory, v view, busy map[string]string) (decision, error) {
	ids, err := w.candidates(inv)
	if err != nil {
		return decision{}, err
	}
	need := w.Count
	if need == 0 {
		need = len(ids)
	}
	// able are the GPUs that are free or only held by a lease; free are the free ones.
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
		// Shared GPUs with the fewest holders come first.
		slices.SortStableFunc(free, func(a, b string) int {
			return len(holdersOf(inv.device(a), v.holding)) - len(holdersOf(inv.device(b), v.holding))
		})
		d.take = free[:need]
		slices.SortFunc(d.take, compareIDs)
	}
	return d, nil
}

// unfit returns why a GPU cannot be lent for another reason than a live holder; empty if it
// can. held says that it has a live holder.
func unfit(d Device, w Want, v view, busy map[string]string, held bool) string {
	if slices.Contains(v.foreign, d.ID) || d.UUID != "" && slices.Contains(v.foreign, d.UUID) || slices.Contains(v.foreign, everything) {
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

// holdersOf returns the tickets that hold a GPU, by its UUID or its index. Both count,
// because a holder may have known the index only. After indexes have changed, a free GPU may
// seem to be held, never the other way round.
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

// heldBy groups GPUs by their holders, for messages.
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

// maxNamed is the number of holders that a message names; `sandbox gpus` names all.
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
