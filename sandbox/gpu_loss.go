package sandbox

import (
	"context"

	"github.com/evalbox/evalbox/sandbox/outcome"

	"github.com/evalbox/evalbox/sandbox/gpu"
)

// gpuLoss looks for signs that a run lost a GPU. nvidia-smi is only asked when the
// program did not end well.
func (a *attempt) gpuLoss(ctx context.Context) outcome.GPUEvidence {
	var f outcome.GPUEvidence
	end := a.facts.End
	well := end.Reported && end.Launch == nil && end.ExitStatus() == 0 && a.facts.Stop == outcome.StopNone
	if a.gpus.lease == nil || a.facts.StartError != nil || a.facts.Stop == outcome.StopCanceled || well {
		return f
	}
	for i := range a.gpus.faults {
		if fault, ok := a.gpus.faults[i].Fault(); ok && (f.Output.Line == "" || f.Output.Doubtful && !fault.Doubtful) {
			f.Output = fault
		}
	}
	if a.gpus.lease.Inventory().Probed {
		devices, err := gpu.Probe(ctx)
		f.Probed, f.Lost = true, gpu.Lost(a.gpus.lease.Devices(), devices, err)
	}
	return f
}
