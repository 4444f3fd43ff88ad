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

// Sources is what an inventory is made of.
type Sources struct {
	// Driver is how the engine will be asked.
	Driver string
	// Local says that nvidia-smi here and the engine see the same GPUs.
	Local bool
	// CDI are the devices that the engine lists, such as "nvidia.com/gpu=0";
	// nil when it does not tell.
	CDI []string
	// Probed and ProbeErr are what [Probe] told.
	Probed   []Device
	ProbeErr error
	// At is when.
	At time.Time
}

// Inventory is which GPUs an engine can hand out.
type Inventory struct {
	// Devices are sorted by index.
	Devices []Device
	// Known says that Devices is all there is. Otherwise it is empty, and GPUs
	// can only be asked for by index, or all.
	Known bool
	// Probed says that nvidia-smi was asked, so that health and memory are known.
	Probed bool
	// At is when the GPUs were looked at.
	At time.Time
	// driver names devices that are not listed.
	driver string
}

// device is the GPU of an index, which need not be known.
func (inv Inventory) device(id string) Device {
	for _, d := range inv.Devices {
		if d.ID == id {
			return d
		}
	}
	return Device{ID: id, TotalBytes: Unknown, UsedBytes: Unknown}
}

// EngineName is what the engine calls a GPU of this inventory: by its lasting name
// if it takes that, since the indexes may change until it is asked.
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

// Inventory decides which GPUs there are. An error says what is missing.
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

// fromCDI are the devices that the engine lists, with what nvidia-smi knows of
// them.
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
		id, ours := strings.CutPrefix(name, cdiKind)
		index, err := strconv.Atoi(id)
		if !ours || err != nil || strconv.Itoa(index) != id || index < 0 || index >= maxGPUs ||
			slices.ContainsFunc(devices, func(d Device) bool { return d.ID == id }) {
			continue // another maker's, "all", a part of a GPU, or listed by its UUID as well
		}
		d := Device{ID: id, engine: name, TotalBytes: Unknown, UsedBytes: Unknown}
		if isProbed {
			d.Problem = "the engine lists it and nvidia-smi does not"
		}
		devices = append(devices, d)
	}
	return devices
}

// compareIDs sorts indexes as numbers.
func compareIDs(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}
