package spec

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/evalbox/evalbox/policy"
)

// Mechanisms by which an engine provides GPUs.
const (
	// DriverNVIDIA is the runtime of the NVIDIA container toolkit.
	DriverNVIDIA = "nvidia"
	// DriverCDI is the Container Device Interface.
	DriverCDI = "cdi"
	// DriverLimits and DriverClaim are those of a cluster, which chooses the GPUs itself: the limits of
	// a pod, and a resource claim.
	DriverLimits = "limits"
	DriverClaim  = "claim"
)

// GPURequest says which GPUs a run gets: none, all, a number, or named ones. In a plan it
// holds the request; once GPUs are leased, IDs holds the leased ones.
type GPURequest struct {
	// Driver selects the mechanism of the engine, such as [DriverCDI]; empty without GPUs.
	Driver string `json:"driver"`
	// Kind, unless empty, says that the engine chooses the GPUs itself, and names what it has a number
	// of: see [HostGPUs]. Nobody leases them.
	Kind  string `json:"kind,omitempty"`
	All   bool   `json:"all"`
	Count int    `json:"count"`
	// IDs are indexes or UUIDs in a plan, and the engine's device names once the GPUs are
	// leased.
	IDs []string `json:"ids"`
	// Share says that other runs may use the same GPUs.
	Share bool `json:"share"`
}

// Any reports whether at least one GPU was requested.
func (g GPURequest) Any() bool { return g.All || g.Count > 0 || len(g.IDs) > 0 }

// Grant replaces the request by the leased devices.
func (g *GPURequest) Grant(names []string) { g.All, g.Count, g.IDs = false, 0, names }

// Names returns the GPUs in the form that a result uses. Of GPUs that the engine chooses only the kind
// is known: it is there once for each.
func (g GPURequest) Names() []string {
	switch {
	case g.Kind != "":
		return slices.Repeat([]string{g.Kind}, g.Count)
	case g.All:
		return []string{"all"}
	case g.Count > 0:
		return []string{fmt.Sprintf("count=%d", g.Count)}
	}
	return g.IDs
}

// String returns the GPUs in the form that a request uses.
func (g GPURequest) String() string {
	switch {
	case g.All:
		return "all"
	case g.Count > 0:
		return strconv.Itoa(g.Count)
	case len(g.IDs) == 1:
		return "device=" + g.IDs[0]
	}
	return strings.Join(g.IDs, ",")
}

// ParseGPUs reads [Request.GPUs]. It does not check that the GPUs exist. The error is a
// [*policy.FieldError].
func ParseGPUs(text string) (GPURequest, error) {
	var gpus GPURequest
	refused := &policy.FieldError{Field: "gpus", Value: fmt.Sprintf("%q", text),
		Rule: `must be "all", a number from 1 to 64, or different device IDs: "0,1", or "device=0" for one`}
	devices, named := strings.CutPrefix(text, "device=")
	switch count, err := strconv.Atoi(text); {
	case text == "":
		return gpus, nil
	case text == "all":
		gpus.All = true
	case err == nil && (count < 1 || count > 64):
		return GPURequest{}, refused
	case err == nil:
		gpus.Count = count
	case !named && !strings.ContainsAny(text, ",-:"):
		return GPURequest{}, refused
	default:
		for id := range strings.SplitSeq(devices, ",") {
			if !isGPU(id) || slices.Contains(gpus.IDs, id) {
				return GPURequest{}, refused
			}
			gpus.IDs = append(gpus.IDs, id)
		}
	}
	return gpus, nil
}

// isGPU accepts names of devices: an index, a UUID ("GPU-…"), or a part of a GPU ("MIG-…",
// "0:1"), which is refused later with a reason.
func isGPU(id string) bool { return len(id) <= 64 && gpuID().MatchString(id) }

var gpuID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([0-9]+(:[0-9]+)*|(?i:GPU|MIG)-[0-9A-Za-z:-]+)$`) })

// Env returns the variables that say which GPUs a program sees.
func (g GPURequest) Env() map[string]string {
	env := map[string]string{}
	switch g.Driver {
	case DriverNVIDIA:
	case DriverLimits:
		// The cluster's own device plugin sets NVIDIA_VISIBLE_DEVICES, which the pod would override.
		env["NVIDIA_DRIVER_CAPABILITIES"] = "compute,utility"
	default:
		// With the NVIDIA runtime as the engine's default, a variable of the image alone
		// would grant GPUs, also in addition to CDI devices.
		env["NVIDIA_VISIBLE_DEVICES"] = "void"
		env["NVIDIA_DRIVER_CAPABILITIES"] = "compute,utility"
	}
	if n := max(g.Count, len(g.IDs)); n > 0 {
		// The container sees its own devices only, and numbers them from 0.
		var visible []string
		for i := range n {
			visible = append(visible, strconv.Itoa(i))
		}
		env["CUDA_VISIBLE_DEVICES"] = strings.Join(visible, ",")
	}
	return env
}
