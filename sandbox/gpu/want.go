package gpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Want says which GPUs a lease is for: all, a number, or named ones.
type Want struct {
	All   bool
	Count int
	// IDs are indexes or UUIDs.
	IDs []string
	// Share lets other leases that share have the same GPUs.
	Share bool
}

// String returns the request in words.
func (w Want) String() string {
	text := fmt.Sprintf("%d GPUs", w.Count)
	switch {
	case w.All:
		text = "all GPUs"
	case len(w.IDs) == 1:
		text = "GPU " + w.IDs[0]
	case len(w.IDs) > 0:
		text = "GPUs " + strings.Join(w.IDs, ", ")
	case w.Count == 1:
		text = "1 GPU"
	}
	if w.Share {
		text += ", shared"
	}
	return text
}

// everything represents all GPUs of an inventory that is not known.
const everything = "all"

// A WantError means that a request cannot be fulfilled, even by waiting.
type WantError struct{ Want, Rule string }

func (e *WantError) Error() string { return fmt.Sprintf("gpus: %s: %s", e.Want, e.Rule) }

// Check checks that the inventory can fulfil the request once all of it is free. The error
// is a [*WantError].
func (w Want) Check(inv Inventory) error {
	_, err := w.candidates(inv)
	return err
}

// candidates returns the IDs of the GPUs that the request names, or may choose from.
func (w Want) candidates(inv Inventory) ([]string, error) {
	refuse := func(format string, args ...any) ([]string, error) {
		return nil, &WantError{w.String(), fmt.Sprintf(format, args...)}
	}
	var healthy, all, sick []string
	for _, d := range inv.Devices {
		all = append(all, d.ID)
		if d.Problem == "" {
			healthy = append(healthy, d.ID)
		} else {
			sick = append(sick, fmt.Sprintf("GPU %s: %s", d.ID, d.Problem))
		}
	}
	switch {
	case len(w.IDs) > 0:
		return w.named(inv, all)
	case !inv.Known && w.All:
		return []string{everything}, nil
	case !inv.Known:
		return refuse("the engine does not report which GPUs it has: name them by index, such as device=0, or take all")
	case w.All && len(sick) > 0:
		return refuse("not all of them are fit: %s", strings.Join(sick, "; "))
	case w.All:
		return all, nil
	case w.Count > len(all):
		return refuse("%d asked for, %d there", w.Count, len(all))
	case w.Count > len(healthy):
		return refuse("%d asked for, %d there, but %s", w.Count, len(all), strings.Join(sick, "; "))
	}
	return healthy, nil
}

// named returns the IDs of the GPUs that the request names.
func (w Want) named(inv Inventory, all []string) ([]string, error) {
	var ids []string
	for _, name := range w.IDs {
		i := slices.IndexFunc(inv.Devices, func(d Device) bool { return d.ID == name || d.UUID != "" && strings.EqualFold(d.UUID, name) })
		rule := ""
		switch _, err := strconv.ParseUint(name, 10, 16); {
		case i >= 0 && inv.Devices[i].Problem != "":
			rule = fmt.Sprintf("GPU %s: %s", name, inv.Devices[i].Problem)
		case i >= 0:
			name = inv.Devices[i].ID
		case strings.HasPrefix(strings.ToUpper(name), "MIG-") || strings.Contains(name, ":"):
			rule = "parts of a GPU (MIG) are not lent; name whole GPUs"
		case inv.Known:
			rule = fmt.Sprintf("GPU %s does not exist; there are %s", name, ranges(all))
		case err != nil:
			rule = fmt.Sprintf("which GPU %s is cannot be found out here; name its index", name)
		}
		if rule == "" && slices.Contains(ids, name) {
			rule = fmt.Sprintf("GPU %s is named twice", name)
		}
		if rule != "" {
			return nil, &WantError{w.String(), rule}
		}
		ids = append(ids, name)
	}
	return ids, nil
}

// ranges shortens sorted indexes: 0-3, 5.
func ranges(ids []string) string {
	var parts []string
	for i := 0; i < len(ids); {
		first, err := strconv.Atoi(ids[i])
		j := i + 1
		for err == nil && j < len(ids) && ids[j] == strconv.Itoa(first+j-i) {
			j++
		}
		if j-i > 1 {
			parts = append(parts, ids[i]+"-"+ids[j-1])
		} else {
			parts = append(parts, ids[i])
		}
		i = j
	}
	return strings.Join(parts, ", ")
}
