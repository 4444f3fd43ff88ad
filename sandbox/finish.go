package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/internal/collect"
	"github.com/evalbox/evalbox/sandbox/internal/snapshot"
)

// collectBudget bounds the hashing of outputs.
const collectBudget = 30 * time.Minute

// finish learns what is left to learn, collects, removes and writes the result.
// It works on a context that the caller's cancellation does not end.
func (a *attempt) finish(ctx context.Context) (*result.Result, error) {
	ctx = context.WithoutCancel(ctx)
	complete := a.drain()
	observed := a.observed()
	a.closeObserver()
	a.closeEgress()
	a.usage.sample()
	state := a.inspect(ctx)
	removed := a.remove(ctx)
	a.warnings = append(a.warnings, a.closeOutput()...)
	var outputs []result.Output
	var skipped []result.SkippedOutput
	var trees []result.Tree
	if a.copies() {
		// Nothing may change the depot any more.
		removed = answered(<-removed)
		outputs, skipped = a.fetch(ctx)
		trees = a.collectTrees(ctx, a.fetchTree)
		if err := a.dropDepot(ctx); err != nil {
			a.warnings = append(a.warnings, fmt.Sprintf("volume %s is left behind: %v", depotName(a.spec.Job.RunID), err))
		}
	} else {
		outputs, skipped = a.collect(ctx)
		// The container may still have the copies mounted.
		removed = answered(<-removed)
		trees = a.collectTrees(ctx, nil)
	}
	if err := a.work.handBack(); err != nil {
		a.warnings = append(a.warnings, err.Error())
	}
	if warning := a.work.settle(); warning != "" {
		a.warnings = append(a.warnings, warning)
	}
	if err := <-removed; err != nil {
		a.facts.engineGone = a.facts.engineGone || isLoss(err)
		a.warnings = append(a.warnings, fmt.Sprintf("container %s is left behind: %v", a.spec.Job.ContainerName(), err))
	}
	if a.cancelWait != nil {
		a.cancelWait()
	}

	if leftSomething(outputs, skipped, trees) || triedSomething(observed) {
		// Whatever it printed: something ran.
		a.facts.initFailed, a.facts.launchFailed = false, ""
	}
	verdict := blameGPUs(decide(a.facts), a.gpuLoss(ctx))
	res := a.result(verdict, state, complete && !a.facts.interrupted)
	res.Outputs, res.OutputsSkipped = outputs, skipped
	res.Trees, res.Observed = trees, observed
	if !a.ended.IsZero() {
		res.TeardownSeconds = time.Since(a.ended).Seconds()
	}
	err := a.writeRecord(res)
	if a.facts.lost != nil {
		err = errors.Join(a.facts.lost, err)
	} else if verdict.status == result.StatusEngineLost {
		err = errors.Join(fmt.Errorf("%w: it stopped, and stopped the program with it", ErrEngineUnavailable), err)
	}
	return res, err
}

// leftSomething reports whether files show that the program was there.
func leftSomething(outputs []result.Output, skipped []result.SkippedOutput, trees []result.Tree) bool {
	return len(outputs)+len(skipped) > 0 || slices.ContainsFunc(trees, func(t result.Tree) bool {
		// Of what was there before, only what limits leave out is among the skipped.
		isNew := func(s result.SkippedOutput) bool {
			return s.Kind != snapshot.KindFile && s.Kind != snapshot.KindFolder && s.Kind != "other"
		}
		return len(t.Created)+len(t.Changed)+len(t.Deleted) > 0 || slices.ContainsFunc(t.Skipped, isNew)
	})
}

// inspect completes the facts: memory, and signals of others.
func (a *attempt) inspect(ctx context.Context) State {
	usage, _ := a.usage.result()
	a.facts.oomKilled = usage.OOMKills > 0
	a.facts.initFailed = isInitFailure(slices.Concat(a.spec.Class.Launcher, a.spec.Job.Command)[0], a.stdout.Total(), a.stderr.text.Text())
	a.inspectLaunch()
	state, err := a.runner.engine.Inspect(ctx, a.container)
	switch {
	case err == nil:
		state.StartedAt = a.observer.began(state.StartedAt)
		a.correct(state)
		a.facts.oomKilled = a.facts.oomKilled || state.OOMKilled
		if state.TTY {
			a.warnings = append(a.warnings, "the container has a terminal: its streams were not split")
		}
	case a.facts.exited:
		// The end is known; only how it came about is not.
		a.warnings = append(a.warnings, "the engine could not tell the program's times and memory: "+err.Error())
	case a.facts.lost == nil && a.facts.startError == nil:
		a.facts.lost = err
	}
	a.askWhoStopped(ctx, state, errors.Is(err, ErrNoContainer))
	return state
}

// askWhoStopped asks the engine whether somebody else sent signals. A program may
// take SIGTERM and exit with 0; but asking costs a call, which a short run that
// ended well is spared.
func (a *attempt) askWhoStopped(ctx context.Context, state State, removed bool) {
	signaled := signalOf(a.facts.code) > 0
	if !a.facts.exited || len(a.facts.signals) > 0 || !signaled && state.FinishedAt.Sub(state.StartedAt) <= time.Second {
		return
	}
	since := state.StartedAt
	if since.IsZero() {
		since = a.started.Add(-time.Second)
	}
	foreign, err := a.runner.engine.Interference(ctx, a.container, since)
	if removed && a.facts.code == 137 {
		// Who removes a container that runs kills it.
		foreign = append(foreign, "SIGKILL")
	}
	a.facts.foreign = foreign
	if err != nil {
		a.warnings = append(a.warnings, "whether somebody else stopped the program could not be told: "+err.Error())
	}
	if signaled && (err != nil || len(foreign) > 0) {
		a.facts.engineGone = isLoss(err) || a.engineGoes(ctx)
	}
}

// correct drops what the engine's own times disprove: a report of the end may
// come late, after our limit has struck or while the engine was away.
func (a *attempt) correct(state State) {
	if state.StartedAt.IsZero() || state.FinishedAt.IsZero() || !a.facts.exited {
		return
	}
	if a.facts.stop == stopTimeout && state.FinishedAt.Sub(state.StartedAt) < seconds(a.spec.Job.TimeoutSeconds) {
		a.facts.stop, a.facts.signals = stopNone, nil
	}
	if back := a.backAt.Load(); back != nil && state.FinishedAt.After(*back) {
		a.facts.endedAway = false
	}
}

// farewell is how long an engine that is shutting down may still answer after it
// has stopped a container.
const farewell = 3 * time.Second

// engineGoes tells an operator who stopped the program from an engine that
// shuts down: the engine stops answering soon. It takes time only when somebody
// did stop the program.
func (a *attempt) engineGoes(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	for {
		if _, err := a.runner.engine.Info(ctx); err != nil {
			return isLoss(err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(farewell / 10):
		}
	}
}

// isInitFailure recognises the line that the container's init prints, instead of
// the program, when it cannot run the command. A program that prints the same and
// does nothing else makes only itself look as if it had not been there.
func isInitFailure(command string, stdoutBytes int64, stderr string) bool {
	rest, ok := strings.CutPrefix(stderr, "[FATAL tini (")
	_, rest, found := strings.Cut(rest, ")] ")
	why, named := strings.CutPrefix(rest, "exec "+command+" failed: ")
	return stdoutBytes == 0 && ok && found && named && strings.Count(why, "\n") == 1 && strings.HasSuffix(why, "\n")
}

// remove ends the container, while the outputs are collected.
func (a *attempt) remove(ctx context.Context) <-chan error {
	if a.spec.Job.Keep {
		return answered(nil)
	}
	removed := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, cleanupBudget)
		defer cancel()
		_ = a.streams.Close() // read to its end, or given up
		removed <- a.runner.engine.Remove(ctx, a.container)
	}()
	return removed
}

// answered is the answer of a call that is over.
func answered(err error) <-chan error {
	answer := make(chan error, 1)
	answer <- err
	return answer
}

// collect lists ./final once nothing of the program can change it any more.
func (a *attempt) collect(ctx context.Context) ([]result.Output, []result.SkippedOutput) {
	if a.facts.startError != nil {
		return nil, nil
	}
	if a.facts.lost != nil {
		a.warnings = append(a.warnings, mayStillRun)
		return nil, nil
	}
	ctx, cancel := a.collecting(ctx)
	defer cancel()
	if err := a.work.reopenFinal(); err != nil {
		a.warnings = append(a.warnings, err.Error())
	}
	if bytes, entries := a.diskUse(ctx); a.facts.stop != stopDiskLimit &&
		(bytes > a.spec.Job.DiskBytes || entries > maxEntries) {
		a.warnings = append(a.warnings, fmt.Sprintf("%s more than its disk limit of %v: the program ended before that was noticed",
			a.heldBy(), policy.Size(a.spec.Job.DiskBytes)))
	}
	outputs, skipped, err := collect.Outputs(ctx, a.work.final, outputLimits(a.spec.Job))
	if err != nil {
		a.warnings = append(a.warnings, "outputs are incomplete: "+cause(err).Error())
	}
	return outputs, skipped
}

// heldBy names what the disk limit is of.
func (a *attempt) heldBy() string {
	if len(a.spec.Job.Trees) > 0 {
		return "final and the trees hold"
	}
	return "final holds"
}

// mayStillRun is why the outputs of a lost run are left alone.
const mayStillRun = "the program may still run: its outputs were not collected"

// collecting bounds the collection. Whoever asks for the end at once does not want
// to wait for hashes.
func (a *attempt) collecting(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, collectBudget)
	if a.req.Kill != nil {
		go func() {
			select {
			case <-a.req.Kill:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	return ctx, cancel
}

// outputLimits are the limits of a job's collection.
func outputLimits(job Job) collect.Limits {
	return collect.Limits{
		Files: job.OutputFiles, Depth: job.OutputDepth, FileBytes: job.OutputFileBytes, TotalBytes: job.OutputTotalBytes,
	}
}

// result puts the facts into the wire form.
func (a *attempt) result(v verdict, state State, complete bool) *result.Result {
	job, timedOut := a.spec.Job, v.status == result.StatusTimedOut
	reason := result.ReasonFor(v.exitCode, timedOut, a.traceback.SeenMarker())
	res := &result.Result{
		Schema: result.SchemaV1, ID: job.RunID, Name: job.Name, Labels: job.Labels,
		Status: v.status, Fault: v.fault, ExitCode: v.exitCode, Signal: v.signal,
		TimedOut: timedOut, OOMKilled: a.facts.oomKilled, Explanation: v.explanation,
		Stdout: a.stdout.text.Text(), Stderr: a.stderr.text.Text(),
		StdoutBytes: a.stdout.Total(), StderrBytes: a.stderr.Total(),
		StdoutTruncated: a.stdout.text.Truncated(), StderrTruncated: a.stderr.text.Truncated(),
		OutputComplete: complete,
		Score:          a.score.Finite(),
		IsError:        reason != "", ErrorReason: reason,
		Image: result.Image{Name: a.spec.Class.Image.Reference, ID: a.spec.Class.Image.ID,
			Digest: a.spec.Class.Image.Digest, Platform: a.spec.Class.Image.Platform, Locked: a.spec.Class.Image.Locked},
		Enforced: enforced(a.spec, a.info), Network: a.network(),
	}
	if res.IsError && res.Fault == result.FaultNone {
		// Exit code 0 with a traceback: the program should be looked at.
		res.Fault = result.FaultProgram
	}
	if res.IsError {
		if text, ok := a.traceback.Traceback(); ok {
			res.ErrorTraceback = &text
		} else {
			res.ErrorSummary = result.ErrorSummary(res.Stderr)
		}
	}
	if !state.StartedAt.IsZero() {
		res.StartedAt = state.StartedAt.Format(time.RFC3339Nano)
		res.SetupSeconds = a.started.Sub(a.began).Seconds()
	}
	if !state.FinishedAt.IsZero() && state.FinishedAt.After(state.StartedAt) && !state.StartedAt.IsZero() {
		res.FinishedAt = state.FinishedAt.Format(time.RFC3339Nano)
		res.DurationSeconds = state.FinishedAt.Sub(state.StartedAt).Seconds()
	}
	usage, source := a.usage.result()
	res.Resources = result.Resources{CPUSeconds: usage.CPU.Seconds(), PeakMemoryBytes: usage.PeakMemory,
		OOMKills: usage.OOMKills, Source: source}
	if !complete {
		a.warnings = append(a.warnings, "output may be incomplete: the connection to the engine was lost for a while")
	}
	for name, out := range map[string]*output{stdoutFile: a.stdout, stderrFile: a.stderr} {
		if kept := out.Kept(); kept < out.Total() {
			a.warnings = append(a.warnings, fmt.Sprintf("%s holds the first %d of %d bytes", name, kept, out.Total()))
		}
	}
	a.warnings = append(a.warnings, v.warnings...)
	if n := job.Egress.PIDs(); n > 0 && a.req.Limits.PIDs > 0 {
		a.warnings = append(a.warnings, fmt.Sprintf("the limit of %d processes holds %d that are for the way to the proxy: the program could use them as well",
			a.spec.Class.Cgroup.PIDs, n))
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

// enforced says what was applied, from the Spec that the engine accepted.
func enforced(spec Spec, info EngineInfo) result.Enforced {
	class, job := spec.Class, spec.Job
	e := result.Enforced{
		Engine: info.Name + " " + info.Version, APIVersion: info.APIVersion,
		Runtime: class.Runtime, CgroupVersion: class.Cgroup.Version, User: class.User, Network: class.Network,
		Transfer:       class.Transfer,
		TimeoutSeconds: job.TimeoutSeconds, GraceSeconds: job.GraceSeconds,
		MemoryBytes: class.Cgroup.MemoryBytes, SwapBytes: class.Cgroup.SwapBytes,
		CPUs: float64(class.Cgroup.NanoCPUs) / 1e9, PIDs: class.Cgroup.PIDs, ProxyPIDs: job.Egress.PIDs(), ShmBytes: class.Cgroup.ShmBytes,
		DiskBytes: job.DiskBytes, OutputLimitBytes: job.OutputLimitBytes, StreamFileBytes: job.StreamFileBytes,
		ReadOnlyRoot: class.ReadOnlyRoot, NoNewPrivileges: class.NoNewPrivileges, CapDrop: class.CapDrop,
		Seccomp: class.Seccomp.Name + " sha256:" + class.Seccomp.SHA256,
	}
	for _, u := range class.Ulimits {
		e.Ulimits = append(e.Ulimits, fmt.Sprintf("%s=%d:%d", u.Name, u.Soft, u.Hard))
	}
	for _, t := range class.Tmpfs {
		e.Mounts = append(e.Mounts, result.Mount{Target: t.Target, Type: "tmpfs"})
		switch t.Target {
		case TmpDir:
			e.TmpBytes = t.SizeBytes
		case WorkDir:
			e.ScratchBytes = t.SizeBytes
		}
	}
	for _, m := range class.Masks {
		e.Mounts = append(e.Mounts, result.Mount{Target: m.Target, Type: "mask", ReadOnly: true})
	}
	for _, b := range class.Binds {
		e.Mounts = append(e.Mounts, result.Mount{Target: b.Target, Type: "bind", ReadOnly: b.ReadOnly})
	}
	e.GPUs, e.GPUDriver, e.GPUsShared = class.GPUs.ids(), class.GPUs.Driver, class.GPUs.Share
	return e
}

// writeRecord writes the result and lets go of the workspace.
func (a *attempt) writeRecord(res *result.Result) error {
	text, err := res.Encode()
	if err != nil {
		return errors.Join(fmt.Errorf("encoding the result of run %s: %w", res.ID, err), a.work.release())
	}
	// The space that was set aside is for this file.
	if err := os.Remove(a.work.reserve); err != nil {
		a.log.Debug("the reserve could not be removed", logError, err)
	}
	if err := writeAtomically(filepath.Join(a.work.record, resultFile), text, true); err != nil {
		return errors.Join(stateError(a.work.record, "cannot be written", err), a.work.release())
	}
	return a.work.release()
}
