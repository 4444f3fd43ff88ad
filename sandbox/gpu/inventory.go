package gpu

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalbox/evalbox/sandbox/spec"
)

// cdiKind begins the names of NVIDIA's CDI devices.
const cdiKind = "nvidia.com/gpu="

// Sources are the facts from which an inventory is made.
type Sources struct {
	// Driver is the engine's mechanism, such as [spec.DriverCDI].
	Driver string
	// Local says that nvidia-smi here and the engine see the same GPUs.
	Local bool
	// CDI are the devices that the engine lists, such as "nvidia.com/gpu=0"; nil if the
	// engine has no such list.
	CDI []string
	// Probed and ProbeErr are the result of [Probe].
	Probed   []Device
	ProbeErr error
	// At is the time of the probe.
	At time.Time
}

// Inventory lists the GPUs that an engine can provide.
type Inventory struct {
	// Devices are sorted by index.
	Devices []Device
	// Known says that Devices is complete. Otherwise it is empty, and requests must name
	// indexes, or want all.
	Known bool
	// Probed says that nvidia-smi was asked, so that health and memory are known.
	Probed bool
	// At is the time of the probe.
	At time.Time
	// driver is the engine's mechanism; it decides the names of unlisted devices.
	driver string
}

// device returns the GPU with an index, which need not be in the inventory.
func (inv Inventory) device(id string) Device {
	for _, d := range inv.Devices {
		if d.ID == id {
			return d
		}
	}
	return Device{ID: id, TotalBytes: Unknown, UsedBytes: Unknown}
}

// EngineName returns the engine's name of a GPU: its UUID if the engine takes that, because
// indexes may change before the engine uses the name.
func (inv Inventory) EngineName(id string) string {
	d := inv.device(id)
	switch {
	case d.engine != "":
		return d.engine
	case inv.driver == spec.DriverCDI:
		return cdiKind + id
	case d.UUID != "":
		return d.UUID
	}
	return id
}

// Inventory makes the inventory. An error says which fact is missing.
func (s Sources) Inventory() (Inventory, error) {
	inv := Inventory{At: s.At, driver: s.Driver}
	probed := s.Local && s.ProbeErr == nil
	if s.Local && s.ProbeErr != nil && !errors.Is(s.ProbeErr, ErrNoTool) {
		return inv, s.ProbeErr
	}
	listed := s.Driver == spec.DriverCDI && s.CDI != nil
	switch {
	case listed:
		inv.Devices, inv.Known, inv.Probed = fromCDI(s.CDI, s.Probed, probed), true, probed
	case probed:
		inv.Devices, inv.Known, inv.Probed = slices.Clone(s.Probed), true, true
	case s.Local:
		return inv, fmt.Errorf("%w, and nothing else here tells which GPUs there are", ErrNoTool)
	}
	if inv.Known && len(inv.Devices) == 0 {
		return inv, errors.New("there is no GPU: the engine lists none with an index")
	}
	slices.SortFunc(inv.Devices, func(a, b Device) int { return compareIDs(a.ID, b.ID) })
	return inv, nil
}

// fromCDI returns the devices that the engine lists, with the properties that nvidia-smi
// reports.
func fromCDI(names []string, probed []Device, isProbed bool) []Device {
	var devices []Device
	for _, d := range probed {
		for _, name := range []string{cdiKind + d.UUID, cdiKind + d.ID} {
			if isProbed && d.engine == "" && slices.Contains(names, name) {
				d.engine = name
			}
		}
		if d.engine != "" {
			devices = append(devices, d)
		}
	}
	for _, name := range names {
		id, nvidia := strings.CutPrefix(name, cdiKind)
		index, err := strconv.Atoi(id)
		if !nvidia || err != nil || strconv.Itoa(index) != id || index < 0 || index >= maxGPUs ||
			slices.ContainsFunc(devices, func(d Device) bool { return d.ID == id }) {
			continue // of another vendor, "all", a part of a GPU, or listed by its UUID as well
		}
		d := Device{ID: id, engine: name, TotalBytes: Unknown, UsedBytes: Unknown}
		if isProbed {
			d.Problem = "the engine lists it and nvidia-smi does not"
		}
		devices = append(devices, d)
	}
	return devices
}

// compareIDs orders indexes as numbers.
func compareIDs(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}
