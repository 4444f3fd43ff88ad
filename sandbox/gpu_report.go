package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/evalbox/evalbox/sandbox/gpu"
)

// GPUReport is every GPU that the engine can hand out, who has it, and who waits.
type GPUReport struct {
	gpu.Listing
	// LookedAt is what was asked for GPUs, and what it said.
	LookedAt []string `json:"looked_at"`
}

// GPUs looks at the GPUs, their leases and the queue. It changes nothing. An
// engine that cannot be reached is told in the report: nvidia-smi may still
// answer.
func (r *Runner) GPUs(ctx context.Context) (GPUReport, error) {
	var report GPUReport
	look := func(format string, args ...any) {
		report.LookedAt = append(report.LookedAt, fmt.Sprintf(format, args...))
	}
	info, engineErr := r.engine.Info(ctx)
	driver, driverErr := "", engineErr
	if engineErr == nil {
		driver, driverErr = planGPUDriver("", info.Host)
	} else {
		info.Local = true
	}
	sources := gpu.Sources{Driver: driver, Local: info.Local, CDI: info.Host.GPUs.CDIDevices}
	switch {
	case !info.Local:
		look("nvidia-smi: not asked, the engine is on another machine")
	default:
		if sources.Probed, sources.ProbeErr = gpu.Probe(ctx); sources.ProbeErr != nil {
			look("nvidia-smi: %v", sources.ProbeErr)
		} else {
			look("nvidia-smi: %d GPUs", len(sources.Probed))
		}
	}
	switch {
	case engineErr != nil:
		look("engine: %v", engineErr)
	case driverErr != nil:
		look("engine: %v", driverErr)
	default:
		look("engine: hands out GPUs with %s", driver)
	}
	inv, err := sources.Inventory()
	var said *gpu.SMIError
	if err != nil && !errors.As(err, &said) && !errors.Is(err, gpu.ErrNoTool) {
		look("%v", err)
	}
	report.Listing, err = r.gpuManager(info).List(ctx, inv)
	return report, err
}
