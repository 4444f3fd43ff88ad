package sandbox

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/gpu"
)

// gpuFacts is what is known, at the end of a run, about the GPUs it had.
type gpuFacts struct {
	// evidence is a line of the program's output that speaks of a lost GPU; empty
	// without one.
	evidence result.GPUFault
	// probed says that nvidia-smi was asked at the end, about GPUs that were
	// well at the start; lost is why one of them is not any more.
	probed bool
	lost   string
}

// gpuLoss looks for signs that a run lost a GPU. nvidia-smi is only asked when the
// program did not end well.
func (a *attempt) gpuLoss(ctx context.Context) gpuFacts {
	var f gpuFacts
	end := a.facts.end
	well := end.Reported && end.Launch == nil && exitCode(end) == 0 && a.facts.stop == stopNone
	if a.gpus.lease == nil || a.facts.startError != nil || a.facts.stop == stopCanceled || well {
		return f
	}
	for i := range a.gpus.faults {
		if fault, ok := a.gpus.faults[i].Fault(); ok && (f.evidence.Line == "" || f.evidence.Doubtful && !fault.Doubtful) {
			f.evidence = fault
		}
	}
	if a.gpus.lease.Inventory().Probed {
		devices, err := gpu.Probe(ctx)
		f.probed, f.lost = true, lostGPU(a.gpus.lease.Devices(), devices, err)
	}
	return f
}

// lostGPU says what a look at the end finds wrong with GPUs that were well at the
// start; empty when they still are. A GPU that is lost may change the indexes of
// the others.
func lostGPU(had, devices []gpu.Device, err error) string {
	if err != nil {
		return err.Error()
	}
	var lost []string
	for _, h := range had {
		i := slices.IndexFunc(devices, func(d gpu.Device) bool { return d.UUID != "" && d.UUID == h.UUID })
		if i < 0 {
			// One that cannot be read any more does not tell its UUID.
			i = slices.IndexFunc(devices, func(d gpu.Device) bool { return d.ID == h.ID && (d.UUID == "" || h.UUID == "") })
		}
		switch {
		case i < 0:
			lost = append(lost, fmt.Sprintf("GPU %s: nvidia-smi does not list it any more", h.ID))
		case devices[i].Problem != "":
			lost = append(lost, fmt.Sprintf("GPU %s: %s", h.ID, devices[i].Problem))
		}
	}
	return strings.Join(lost, "; ")
}

// blameGPUs corrects a verdict that blames the program for the loss of its GPU.
// How the program ended stays as it was. Its own words count, since they are
// often all that is left of a loss; but they are only its words, and the warning
// says so. Words for which the program may be to blame do not count when a look at
// the end finds its GPUs well.
func blameGPUs(v verdict, f gpuFacts) verdict {
	endedItself := v.status == result.StatusExited || v.status == result.StatusSignaled
	// A program whose GPU is gone may also hang.
	hung := v.status == result.StatusTimedOut && f.lost != ""
	if f.evidence.Doubtful && f.probed && f.lost == "" {
		f.evidence = result.GPUFault{}
	}
	if v.fault != result.FaultProgram || !endedItself && !hung || f.evidence.Line == "" && f.lost == "" {
		return v
	}
	v.fault = result.FaultEnvironment
	later := "nvidia-smi was not asked afterwards"
	switch {
	case f.lost != "":
		later = "nvidia-smi after the end: " + f.lost
	case f.probed:
		later = "nvidia-smi found the GPUs of the run well afterwards"
	}
	if f.evidence.Line == "" {
		v.warnings = append(v.warnings, "a GPU was lost during the run: "+later)
		return v
	}
	v.warnings = append(v.warnings, fmt.Sprintf("a GPU may have been lost during the run: the program printed %s, which is its own text; %s",
		f.evidence.Line, later))
	return v
}
