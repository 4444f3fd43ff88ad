package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/evalbox/evalbox/sandbox/outcome"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/collect"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// collectBudget bounds the hashing of outputs.
const collectBudget = 30 * time.Minute

// finish gathers the remaining facts, collects the outputs, writes the result and removes
// the container. Cancellation by the caller does not affect it.
func (a *attempt) finish(ctx context.Context) (*result.Result, error) {
	ctx = context.WithoutCancel(ctx)
	a.stopHelpers()
	gone := a.outlived()
	if a.container != nil && (a.facts.Lost != nil || a.facts.StartError != nil) {
		a.container.Disconnect() // no more writes to the streams
	}
	a.facts.EngineGone = a.engineGoes(ctx)
	observed := a.observed()
	a.closeObserver()
	a.closeEgress()
	if !gone {
		a.removeNow(ctx)
	}
	a.warnings = append(a.warnings, a.closeOutput()...)
	outputs, skipped, trees := a.takeOutputs(ctx)
	if err := a.work.handBack(); err != nil {
		a.warnings = append(a.warnings, err.Error())
	}
	if warning := a.work.settle(); warning != "" {
		a.warnings = append(a.warnings, warning)
	}
	verdict := outcome.BlameGPUs(outcome.Decide(a.facts), a.gpuLoss(ctx))
	res := a.result(verdict)
	res.Outputs, res.OutputsSkipped = outputs, skipped
	res.Trees, res.Observed = trees, observed
	if !a.ended.IsZero() {
		res.TeardownSeconds = time.Since(a.ended).Seconds()
	}
	err := a.writeRecord(res)
	if a.spec.Job.Keep && a.container != nil {
		a.container.Release()
	} else if removeErr := a.remove(ctx); removeErr != nil {
		a.log.Warn("the container is left behind", logError, removeErr)
	}
	if a.facts.Lost != nil {
		err = errors.Join(a.facts.Lost, err)
	} else if verdict.Status == result.StatusEngineLost {
		err = errors.Join(verdict.Err, err)
	}
	return res, err
}

// outlived reports whether all processes of the program are known to be dead, so that
// nothing can change its files.
func (a *attempt) outlived() bool {
	end := a.facts.End
	return a.facts.Lost == nil && a.facts.StartError == nil && end.Reported && end.ProcessesLeft == 0
}

// remove makes sure that the container is removed, which takes the engine a while longer.
func (a *attempt) remove(ctx context.Context) error {
	if a.container == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupBudget)
	defer cancel()
	return a.container.Remove(ctx)
}

// removeNow waits until the container is gone, because it may still contain processes.
func (a *attempt) removeNow(ctx context.Context) {
	if a.spec.Job.Keep || a.nameTaken {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupBudget)
	defer cancel()
	if err := a.runner.engine.Remove(ctx, a.spec.Job.ContainerName()); err != nil {
		a.left = true
		a.facts.EngineGone = a.facts.EngineGone || errors.Is(err, engine.ErrUnavailable)
		a.warnings = append(a.warnings, fmt.Sprintf("container %s is left behind: %v", a.spec.Job.ContainerName(), err))
		if a.facts.Lost == nil && a.facts.StartError == nil && !a.facts.End.Reported {
			a.facts.Lost = errors.Join(outcome.ErrNoExit, err) // it may still be running
		}
	}
}

// takeOutputs collects what the program left.
func (a *attempt) takeOutputs(ctx context.Context) ([]result.Output, []result.SkippedOutput, []result.Tree) {
	if !a.copies() {
		outputs, skipped := a.collect(ctx)
		return outputs, skipped, a.collectTrees(ctx, nil)
	}
	outputs, skipped := a.fetch(ctx)
	trees := a.collectTrees(ctx, a.fetchTree)
	if !a.spec.Job.Keep {
		if err := a.remove(ctx); err != nil { // the container has the depot mounted
			a.log.Debug("the container was not removed", logError, err)
		}
	}
	if err := a.dropDepot(ctx); err != nil {
		a.warnings = append(a.warnings, fmt.Sprintf("volume %s is left behind: %v", spec.DepotName(a.spec.Job.RunID), err))
	}
	return outputs, skipped, trees
}

// farewell is how long an engine that is shutting down may still answer after it has
// stopped a container.
const farewell = 3 * time.Second

// engineGoes distinguishes an engine that shuts down from an operator who stopped the
// program: the engine soon stops answering. It only takes time if somebody else stopped
// the program.
func (a *attempt) engineGoes(ctx context.Context) bool {
	end := a.facts.End
	if a.facts.Lost != nil || a.facts.StartError != nil || len(a.facts.Requested) > 0 || len(end.Foreign) == 0 && end.ForeignErr == nil {
		return false
	}
	if errors.Is(end.ForeignErr, engine.ErrUnavailable) {
		return true
	}
	// An engine that is shutting down waits for its containers.
	a.container.Release()
	ctx, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	for {
		if _, err := a.runner.engine.Info(ctx); err != nil {
			return errors.Is(err, engine.ErrUnavailable)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(farewell / 10):
		}
	}
}

// collect lists ./final once the program can no longer change it.
func (a *attempt) collect(ctx context.Context) ([]result.Output, []result.SkippedOutput) {
	if a.facts.StartError != nil {
		return nil, nil
	}
	if a.facts.Lost != nil {
		a.warnings = append(a.warnings, mayStillRun)
		return nil, nil
	}
	ctx, cancel := a.collecting(ctx)
	defer cancel()
	if err := a.work.reopenFinal(); err != nil {
		a.warnings = append(a.warnings, err.Error())
	}
	if bytes, entries := a.diskUse(ctx); a.facts.Stop != outcome.StopDiskLimit &&
		(bytes > a.spec.Job.DiskBytes || entries > maxEntries) {
		a.warnings = append(a.warnings, fmt.Sprintf("%s more than its disk limit of %v: the program ended before that was noticed",
			a.heldBy(), policy.Size(a.spec.Job.DiskBytes)))
	}
	outputs, skipped, err := collect.Outputs(ctx, a.work.final, outputLimits(a.spec.Job))
	if err != nil {
		a.warnings = append(a.warnings, "outputs are incomplete: "+fsx.Cause(err).Error())
	}
	return outputs, skipped
}

// heldBy names the directories that count toward the disk limit.
func (a *attempt) heldBy() string {
	if len(a.spec.Job.Trees) > 0 {
		return "final and the trees hold"
	}
	return "final holds"
}

// mayStillRun says why the outputs of a lost run are not collected.
const mayStillRun = "the program may still run: its outputs were not collected"

// collecting bounds the collection. A caller who closes [Hooks].Kill does not want to wait
// for hashes.
func (a *attempt) collecting(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, collectBudget)
	if a.hooks.Kill != nil {
		go func() {
			select {
			case <-a.hooks.Kill:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	return ctx, cancel
}

func outputLimits(job Job) collect.Limits {
	return collect.Limits{
		Files: job.OutputFiles, Depth: job.OutputDepth, FileBytes: job.OutputFileBytes, TotalBytes: job.OutputTotalBytes,
	}
}

// result converts the facts to the wire form.
func (a *attempt) result(v outcome.Outcome) *result.Result {
	job, end, timedOut := a.spec.Job, a.facts.End, v.Status == result.StatusTimedOut
	complete := end.Complete && !end.Interrupted || a.facts.StartError != nil || end.Launch != nil
	reason := result.ReasonFor(v.ExitCode, timedOut, a.traceback.SeenMarker())
	res := &result.Result{
		Schema: result.SchemaV1, ID: job.RunID, Name: job.Name, Labels: job.Labels,
		Status: v.Status, Fault: v.Fault, ExitCode: v.ExitCode, Signal: v.Signal,
		TimedOut: timedOut, OOMKilled: end.OOMKilled, Explanation: v.Explanation,
		Stdout: a.stdout.text.Text(), Stderr: a.stderr.text.Text(),
		StdoutBytes: a.stdout.Total(), StderrBytes: a.stderr.Total(),
		StdoutTruncated: a.stdout.text.Truncated(), StderrTruncated: a.stderr.text.Truncated(),
		OutputComplete: complete,
		Score:          a.score.Finite(),
		IsError:        reason != "", ErrorReason: reason,
		Image: result.Image{Name: a.spec.Class.Image.Reference, ID: a.spec.Class.Image.ID,
			Digest: a.spec.Class.Image.Digest, Platform: a.spec.Class.Image.Platform, Locked: a.spec.Class.Image.Locked},
		Enforced: a.enforced(), Network: a.network(),
	}
	if res.IsError && res.Fault == result.FaultNone {
		// Exit code 0 with a traceback: the program is at fault.
		res.Fault = result.FaultProgram
	}
	if res.IsError {
		if text, ok := a.traceback.Traceback(); ok {
			res.ErrorTraceback = &text
		} else {
			res.ErrorSummary = result.ErrorSummary(res.Stderr)
		}
	}
	if !end.StartedAt.IsZero() {
		res.StartedAt = end.StartedAt.Format(time.RFC3339Nano)
		res.SetupSeconds = a.started.Sub(a.began).Seconds()
	}
	if !end.FinishedAt.IsZero() {
		res.FinishedAt = end.FinishedAt.Format(time.RFC3339Nano)
		res.DurationSeconds = end.Duration.Seconds()
	}
	res.Resources = result.Resources{CPUSeconds: end.Usage.CPU.Seconds(), PeakMemoryBytes: end.Usage.PeakMemory,
		OOMKills: end.Usage.OOMKills, Source: end.Usage.Source}
	switch {
	case complete:
	case end.Interrupted:
		a.warnings = append(a.warnings, "output may be incomplete: the connection to the engine was lost for a while")
	default:
		a.warnings = append(a.warnings, "output may be incomplete: its end was not seen")
	}
	for name, out := range map[string]*output{record.StdoutFile: a.stdout, record.StderrFile: a.stderr} {
		if kept := out.Kept(); kept < out.Total() {
			a.warnings = append(a.warnings, fmt.Sprintf("%s holds the first %d of %d bytes", name, kept, out.Total()))
		}
	}
	a.warnings = append(a.warnings, v.Warnings...)
	if n := end.ProcessesLeft; n > 0 {
		a.warnings = append(a.warnings, fmt.Sprintf("%d processes of the program could not be killed within 10 s", n))
	}
	if a.info.Exposed != "" {
		a.warnings = append(a.warnings, a.info.Exposed)
	}
	a.warnings = append(a.warnings, a.gpus.warnings...)
	a.warnings = append(a.warnings, a.score.Warnings()...)
	slices.Sort(a.warnings)
	res.Warnings = a.warnings
	return res
}

// writeRecord writes the result and releases the workspace.
func (a *attempt) writeRecord(res *result.Result) error {
	text, err := res.Encode()
	if err != nil {
		return errors.Join(fmt.Errorf("encoding the result of run %s: %w", res.ID, err), a.work.release())
	}
	// The reserved space is for this file.
	if err := os.Remove(a.work.reserve); err != nil {
		a.log.Debug("the reserve could not be removed", logError, err)
	}
	if err := fsx.WriteFile(filepath.Join(a.work.record, record.ResultFile), text, 0o600, true); err != nil {
		return errors.Join(record.StateError(a.work.record, "cannot be written", err), a.work.release())
	}
	return a.work.release()
}
