package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/gpu"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// GPUReport is every GPU that the engine can hand out, who has it, and who waits.
type GPUReport struct {
	gpu.Listing
	// LookedAt is what was asked for GPUs, and what it said.
	LookedAt []string `json:"looked_at"`
}

// GPUs looks at the GPUs, their leases and the queue. It changes nothing.
func (r *Runner) GPUs(ctx context.Context) (GPUReport, error) {
	var report GPUReport
	look := func(format string, args ...any) {
		report.LookedAt = append(report.LookedAt, fmt.Sprintf(format, args...))
	}
	info, err := r.engine.Info(ctx)
	if err != nil {
		return GPUReport{}, err
	}
	if err := r.checkGPUDir(); err != nil {
		return GPUReport{}, err
	}
	driver, driverErr := planGPUDriver("", info.Host)
	sources := gpu.Sources{Driver: driver, Local: info.Local, CDI: info.Host.GPUs.CDIDevices}
	switch {
	case !info.Local && strings.HasPrefix(info.Address, "unix://"):
		look("nvidia-smi: not asked, whether the engine is on this machine cannot be told")
	case !info.Local:
		look("nvidia-smi: not asked, the engine is on another machine")
	default:
		if sources.Probed, sources.ProbeErr = gpu.Probe(ctx); sources.ProbeErr != nil {
			look("nvidia-smi: %v", sources.ProbeErr)
		} else {
			look("nvidia-smi: %d GPUs", len(sources.Probed))
		}
	}
	if driverErr != nil {
		look("engine: %v", driverErr)
	} else {
		look("engine: hands out GPUs with %s", driver)
	}
	inv, err := reportInventory(sources)
	var said *gpu.SMIError
	if err != nil && !errors.As(err, &said) && !errors.Is(err, gpu.ErrNoTool) {
		look("%v", err)
	}
	report.Listing, err = r.gpuManager(info).List(ctx, inv)
	return report, err
}

// reportInventory shows the GPUs that the engine lists also when nvidia-smi fails:
// none of them is lent then.
func reportInventory(sources gpu.Sources) (gpu.Inventory, error) {
	inv, err := sources.Inventory()
	var said *gpu.SMIError
	if !errors.As(err, &said) {
		return inv, err
	}
	sources.ProbeErr = gpu.ErrNoTool
	if inv, listErr := sources.Inventory(); listErr == nil {
		for i := range inv.Devices {
			inv.Devices[i].Problem = err.Error()
		}
		return inv, nil
	}
	return inv, err
}

// checkGPUDir looks at the folder of leases that somebody named. It must be there:
// a typing mistake would make a second one, and lend GPUs twice.
func (r *Runner) checkGPUDir() error {
	if r.gpuDir == "" {
		return nil
	}
	refused := &PathError{Field: "gpu_dir", Path: r.gpuDir}
	switch info, err := os.Stat(r.gpuDir); {
	case errors.Is(err, fs.ErrNotExist):
		refused.Rule = spec.RuleMissing
	case err != nil:
		refused.Rule, refused.Err = "cannot be used", fsx.Cause(err)
	case !info.IsDir():
		refused.Rule = "is not a folder"
	default:
		return nil
	}
	return refused
}
