package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/gpu"
	"github.com/evalbox/evalbox/sandbox/outcome"
	"github.com/evalbox/evalbox/sandbox/plan"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// WithGPUDir sets the directory of GPU leases. It must exist. The default is a directory of
// the state directory. Users of other state directories, and jobs in containers, that
// share the GPUs must share this directory.
func WithGPUDir(dir string) Option {
	return func(r *Runner) error {
		if dir == "" {
			return errors.New("sandbox: empty directory of GPU leases")
		}
		abs, err := filepath.Abs(dir)
		r.gpuDir = abs
		return err
	}
}

// gpuManager lends the GPUs of an engine. The GPUs of one engine are the same whatever its
// address, and the GPUs of this machine are the same for all of its engines.
func (r *Runner) gpuManager(info engine.Info) *gpu.Manager {
	dir := r.gpuDir
	if dir == "" {
		dir = filepath.Join(r.store.Dir(), "gpus")
	}
	sum := sha256.Sum256([]byte(info.ID))
	pools := []string{"engine-" + hex.EncodeToString(sum[:8])}
	if info.Local {
		pools = append(pools, gpu.LocalPool)
	}
	return gpu.Open(dir, pools...)
}

// gpuInventory looks at the GPUs that the engine can hand out.
func gpuInventory(ctx context.Context, driver string, info engine.Info) (gpu.Inventory, error) {
	sources := gpu.Sources{Driver: driver, Local: info.Local, CDI: info.Host.GPUs.CDIDevices}
	if info.Local {
		sources.Probed, sources.ProbeErr = gpu.Probe(ctx)
	}
	// After the probe: a slow one is not an old one.
	sources.At = time.Now()
	return sources.Inventory()
}

// gpusFor checks that the engine's machine has the GPUs of a plan. They need not be free. It does not
// know those that the engine chooses.
func (r *Runner) gpusFor(ctx context.Context, asked spec.GPURequest, info engine.Info) (gpu.Inventory, error) {
	if !asked.Any() || asked.Kind != "" {
		return gpu.Inventory{}, nil
	}
	if err := checkGPUDir(r.gpuDir); err != nil {
		return gpu.Inventory{}, err
	}
	inv, err := gpuInventory(ctx, asked.Driver, info)
	if err == nil {
		err = wanted(asked).Check(inv)
	}
	return inv, gpuError(asked, err)
}

// gpuError adds the field to an error of a request for GPUs.
func gpuError(asked spec.GPURequest, err error) error {
	var want *gpu.WantError
	var said *gpu.SMIError
	switch {
	case errors.As(err, &want):
		return &policy.FieldError{Field: "gpus", Value: fmt.Sprintf("%q", asked), Rule: want.Rule}
	case errors.As(err, &said), errors.Is(err, gpu.ErrNoTool):
		return &policy.FieldError{Field: "gpus", Value: fmt.Sprintf("%q", asked), Rule: err.Error()}
	}
	return err
}

// leaseGPUs waits for the GPUs of the plan and adds their names to it. Nothing of the run
// exists yet.
func (a *run) leaseGPUs(ctx context.Context) error {
	inv := a.inventory
	asked := &a.spec.Class.GPUs
	if !asked.Any() || asked.Kind != "" {
		return nil
	}
	order := gpu.Order{
		Want: wanted(*asked), Inventory: inv, Wait: a.request.GPUWait,
		Holder: gpu.Holder{RunID: a.spec.Job.RunID, Name: a.spec.Job.Name, Engine: a.info.ID,
			LimitSeconds: (a.limit() + deadlineSlack).Seconds()},
		StillUsed: func(ctx context.Context, dead gpu.Holder, since time.Time) string {
			return a.runner.stillUses(ctx, a.info, dead, since)
		},
	}
	if say := a.hooks.Waiting; say != nil {
		order.Waiting = func(why string) { say("GPUs: " + why) }
	}
	if inv.Probed {
		order.Look = func(ctx context.Context) (gpu.Inventory, error) { return gpuInventory(ctx, asked.Driver, a.info) }
	}
	lease, err := a.runner.gpuManager(a.info).Acquire(ctx, order)
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", outcome.ErrCanceled, err)
		}
		return gpuError(*asked, err)
	}
	a.gpus, inv = lease, lease.Inventory()
	if !inv.Probed {
		a.warn.add("health and memory of the GPUs are not known: nvidia-smi does not report them here")
	}
	if ids := lease.IDs(); ids != nil {
		names := make([]string, len(ids))
		for i, id := range ids {
			names[i] = inv.EngineName(id)
		}
		asked.Grant(names)
	}
	a.spec.Class.Env = spec.MergeEnv(a.spec.Class.Env, spec.SortedEnv(asked.Env()))
	a.log.Debug("GPUs leased", logGPUs, asked.Names())
	return nil
}

// releaseGPUs gives the GPUs back once the container cannot use them any more. Otherwise,
// for example after the engine was lost, they stay marked: the next lease looks for the
// container first.
func (a *run) releaseGPUs(ctx context.Context) {
	if a.gpus == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupBudget)
	defer cancel()
	giveBack := a.gpus.Leave
	if gone := a.evidence.Lost == nil && !a.left; gone {
		giveBack = func() error { return a.gpus.Release(ctx) }
	}
	if err := giveBack(); err != nil {
		a.log.Warn("GPUs were not given back in order", logGPUs, a.spec.Class.GPUs.Names(), logError, err)
	}
}

// stillUses says why the program of a dead holder may still use its GPUs; empty if it cannot.
// A run that has ended is finished behind the wait, which only lasts until the program uses no GPU any more.
func (r *Runner) stillUses(ctx context.Context, info engine.Info, dead gpu.Holder, since time.Time) string {
	if dead.Engine != info.ID {
		if time.Since(since) > seconds(dead.LimitSeconds) {
			return ""
		}
		return fmt.Sprintf("run %s of another engine, whose controller is gone, may still use it", dead.RunID)
	}
	containers, err := r.engine.List(ctx)
	if err != nil {
		return fmt.Sprintf("whether run %s, whose controller is gone, still uses it is unknown: %v", dead.RunID, err)
	}
	var reasons []string
	for _, c := range containers {
		// A container that was only created may still start: the engine continues a
		// start whose caller is dead. Parts have no GPUs.
		if c.Labels[spec.LabelRun] != dead.RunID || c.Ended || c.Labels[spec.LabelPart] != "" {
			continue
		}
		reason := r.endOrphan(ctx, c)
		if reason == "" {
			continue
		}
		does := "may still start"
		if c.Running {
			does = "still runs"
		}
		reasons = append(reasons, fmt.Sprintf("container %s %s: %s", c.Name, does, reason))
	}
	return strings.Join(reasons, "; ")
}

// endOrphan begins to finish the run of a container whose controller is dead, if its program has ended,
// and removes a container that no run of this store has. Otherwise it says why not.
func (r *Runner) endOrphan(ctx context.Context, c engine.Found) string {
	store := r.recovery.StoreOf(c)
	found, err := store.Load(c.Labels[spec.LabelRun])
	if err != nil || !found.State.Abandoned() || store != r.store {
		return r.recovery.RemoveAbandoned(ctx, c)
	}
	work := r.finishBehind(found)
	select {
	case <-work.Ended:
		return ""
	case <-work.Done:
	case <-ctx.Done():
		return context.Cause(ctx).Error()
	}
	if err := work.Err; work.Result == nil && !errors.Is(err, outcome.ErrOwnerDied) {
		return err.Error()
	}
	return ""
}

// wanted is a request in the form of a lease.
func wanted(g spec.GPURequest) gpu.Want {
	return gpu.Want{All: g.All, Count: g.Count, IDs: g.IDs, Share: g.Share}
}

// lostGPUs returns which of the leased GPUs do not work any more, and is empty if all of them work or
// nobody knows. It asks nvidia-smi only if the outcome blames the program.
func (a *run) lostGPUs(ctx context.Context, v outcome.Outcome) string {
	if a.gpus == nil || !a.gpus.Inventory().Probed || v.Fault != result.FaultProgram {
		return ""
	}
	devices, err := gpu.Probe(ctx)
	return gpu.Lost(a.gpus.Devices(), devices, err)
}

// GPUReport is every GPU that the engine can hand out, with its holder and the queue.
type GPUReport struct {
	gpu.Listing
	// LookedAt has one line for each source that was asked for GPUs, with its answer.
	LookedAt []string `json:"looked_at"`
}

// GPUs lists the GPUs, their leases and the queue. It changes nothing.
func (r *Runner) GPUs(ctx context.Context) (GPUReport, error) {
	var report GPUReport
	look := func(format string, args ...any) {
		report.LookedAt = append(report.LookedAt, fmt.Sprintf(format, args...))
	}
	info, err := r.engine.Info(ctx)
	if err != nil {
		return GPUReport{}, err
	}
	if err := checkGPUDir(r.gpuDir); err != nil {
		return GPUReport{}, err
	}
	if g := info.Host.GPUs; g.Kind != "" {
		look("engine: chooses the GPUs of a run itself, by %s: %s", g.Driver, g.Kind)
		report.Listing, err = r.gpuManager(info).List(ctx, gpu.Inventory{})
		return report, err
	}
	driver, driverErr := plan.GPUDriver("", info.Host)
	sources := gpu.Sources{Driver: driver, Local: info.Local, CDI: info.Host.GPUs.CDIDevices}
	switch {
	case !info.Local && strings.HasPrefix(info.Address, "unix://"):
		look("nvidia-smi: not asked, whether the engine is on this machine is not known")
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

// reportInventory has the GPUs that the engine lists also if nvidia-smi fails. None of them
// is lent then.
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

// checkGPUDir refuses a directory of leases that is named and does not exist: a typing
// mistake would make a second one, and GPUs would be lent twice.
func checkGPUDir(dir string) error {
	if dir == "" {
		return nil
	}
	refused := &PathError{Field: "gpu_dir", Path: dir}
	switch info, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		refused.Rule = spec.RuleMissing
	case err != nil:
		refused.Rule, refused.Err = "cannot be used", fsx.Cause(err)
	case !info.IsDir():
		refused.Rule = "is not a directory"
	default:
		return nil
	}
	return refused
}
