package sandbox

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/collect"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/outcome"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/stage"
	"github.com/evalbox/evalbox/sandbox/stream"
)

// result converts the evidence to the wire form.
func (a *run) result(v outcome.Outcome, left stage.Left, observed *result.Observed) *result.Result {
	job, end, timedOut := a.spec.Job, a.evidence.End, v.Status == result.StatusTimedOut
	complete := end.Complete || a.evidence.StartError != nil || end.Launch != nil || v.Status == result.StatusStartFailed
	reason := result.ReasonFor(v.ExitCode, timedOut, a.traceback.SeenMarker())
	res := &result.Result{
		Schema: result.SchemaV1, ID: job.RunID, Name: job.Name, Labels: job.Labels,
		Status: v.Status, Fault: v.Fault, ExitCode: v.ExitCode, Signal: v.Signal,
		TimedOut: timedOut, Deadline: v.Deadline, OOMKilled: end.OOMKilled, Explanation: v.Explanation, Recovered: a.evidence.Recovered, ContainerLeft: a.left,
		Stdout: a.output.Stdout.Text.Text(), Stderr: a.output.Stderr.Text.Text(),
		StdoutBytes: a.output.Stdout.Total(), StderrBytes: a.output.Stderr.Total(),
		StdoutTruncated: a.output.Stdout.Text.Truncated(), StderrTruncated: a.output.Stderr.Text.Truncated(),
		OutputComplete: complete,
		IsError:        reason != "", ErrorReason: reason,
		Image: result.Image{Name: a.spec.Class.Image.Reference, ID: a.spec.Class.Image.ID,
			Digest: a.spec.Class.Image.Digest, Platform: a.spec.Class.Image.Platform, Locked: a.spec.Class.Image.Locked, Reported: end.Image},
		Enforced: a.enforced(), Network: a.proxy.Report(), Observed: observed, Preload: a.preloaded(),
		Outputs: left.Outputs, OutputsSkipped: left.Skipped, OutputsLeftOut: left.LeftOut, Trees: left.Trees,
	}
	if a.waited || a.cold != "" {
		res.Pool = &result.Pool{Waited: a.waited, Reason: a.cold}
	}
	res.Score = a.scoreOf(complete)
	res.ScoreUnfinished = res.Score != nil && v.Unfinished
	res.ScoreCut = res.Score != nil && a.score.Cut()
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
		OOMKills: end.Usage.OOMKills, Source: end.Usage.Source, Contention: a.evidence.Shortage}
	if !a.ended.IsZero() {
		res.TeardownSeconds = time.Since(a.ended).Seconds()
	}
	a.warnOfOutput(complete)
	a.warnOfImage()
	a.warnOfUnenforced(res.Enforced)
	if v.Status == result.StatusEngineLost || v.Status == result.StatusSignaled && v.Fault == result.FaultOperator {
		a.warn.add("outputs are as the interrupted program left them: it did not end by itself")
	}
	if n := end.ProcessesLeft; n > 0 {
		a.warn.add("%d processes of the program could not be killed within 10 s", n)
	}
	if a.info.Exposed != "" {
		a.warn.add("%s", a.info.Exposed)
	}
	for _, warning := range slices.Concat(v.Warnings, a.score.Warnings()) {
		a.warn.add("%s", warning)
	}
	if first := left.Lost; first != nil {
		count := text.Count(left.LeftOut, "file")
		if left.LeftOutCut {
			count = "at least " + count
		}
		a.warn.add("the outputs lack %s of ./final, such as %q: %s", count, text.Short(first.Path, 200), first.Reason)
	}
	if v := vanished(end.Left); v != nil {
		res.Vanished = v
		a.warn.add("%s", vanishedText(*v))
	}
	res.Warnings = a.warn.sorted()
	return res
}

// vanished turns what init saw into the form of a result.
func vanished(left *wire.Left) *result.Vanished {
	if left == nil || left.Files == 0 {
		return nil
	}
	v := &result.Vanished{Files: left.Files, Bytes: left.Bytes, Complete: left.Complete, Names: []string{}}
	for _, name := range left.Names {
		shown, _ := collect.EncodePath(name)
		v.Names = append(v.Names, shown)
	}
	return v
}

// vanishedText is the warning of files that are gone.
func vanishedText(v result.Vanished) string {
	count, was := text.Count(v.Files, "file"), " was written to the working directory and is gone"
	if v.Files > 1 {
		was = " were written to the working directory and are gone"
	}
	if !v.Complete {
		count = "at least " + count
	}
	names := make([]string, len(v.Names))
	for i, name := range v.Names {
		names[i] = text.Short(name, 100)
	}
	list := text.List(names)
	if more := v.Files - int64(len(names)); more > 0 {
		list = strings.TrimPrefix(fmt.Sprintf("%s and %d more", list, more), " and ")
	}
	return fmt.Sprintf("%s (%s)%s: %s; only ./final is kept", count, text.Size(v.Bytes), was, list)
}

// preloaded says whether the program ran in the interpreter that waited for it, and warns if it did
// not.
func (a *run) preloaded() *result.Preload {
	asked, end := a.spec.Class.Preload, a.evidence.End
	if asked == nil {
		return nil
	}
	p := &result.Preload{Modules: asked.Modules, Reason: end.NotPreloaded}
	switch {
	case !asked.Fits():
		p.Reason = asked.Unfit
	case !end.Reported:
		p.Reason = "unknown: the end of the program was not reported"
		return p
	}
	p.Used = p.Reason == ""
	if !p.Used {
		a.warn.add("the program started without its preloaded modules: %s", p.Reason)
	}
	return p
}

// warnOfOutput warns of output that may lack a part, or is not all in its file.
func (a *run) warnOfOutput(complete bool) {
	end := a.evidence.End
	switch {
	case complete && end.Interrupted:
		a.warn.add("the connection to the engine was lost for a while: output of that time is from the engine's log")
	case complete:
	case end.Interrupted:
		a.warn.add("output may be incomplete: the connection to the engine was lost for a while")
	case a.evidence.Recovered && end.Reported:
		a.warn.add("output may be incomplete: the engine's copy of it has lost its beginning")
	default:
		a.warn.add("output may be incomplete: its end was not seen")
	}
	for _, s := range []*stream.Stream{a.output.Stdout, a.output.Stderr} {
		if kept := s.Kept(); kept < s.Total() {
			a.warn.add("%s holds the first %d of %d bytes", s.Name, kept, s.Total())
		}
		if s.Parted() {
			a.warn.add("%s holds what the dead controller had recorded and, behind it, what the engine still had: a part may be missing or there twice", s.Name)
		}
	}
}

// warnOfImage warns of a container whose image may be another one. An image can have several digests,
// such as those of its index and of one platform in it, so that another digest alone proves nothing.
func (a *run) warnOfImage() {
	reported, asked := a.evidence.End.Image, a.spec.Class.Image.Digest
	_, digest, _ := strings.Cut(asked, "@")
	if reported != "" && !strings.HasSuffix(reported, digest) {
		a.warn.add("the engine reports the image %s for the container, and %s was asked for: whether they are the same is not known", text.Short(reported, 200), asked)
	}
}

// scoreOf returns the score that the program printed. Output that lacks bytes has none: the last
// score line in it may not be the program's last one.
func (a *run) scoreOf(complete bool) *float64 {
	score := a.score.Finite()
	if complete || score == nil {
		return score
	}
	a.warn.add("no score: the output is incomplete; the last score in it is %v", *score)
	return nil
}

// enforced reports what was applied, from the view of the container's init where
// possible.
func (a *run) enforced() result.Enforced {
	class, job, info := a.spec.Class, a.spec.Job, a.info
	e := result.Enforced{
		Engine: info.Name + " " + info.Version, APIVersion: info.APIVersion,
		Runtime: class.Runtime, CgroupVersion: class.Cgroup.Version, User: class.User, Network: class.Network,
		Transfer:       class.Transfer,
		TimeoutSeconds: job.TimeoutSeconds, GraceSeconds: job.GraceSeconds,
		SoftTimeoutSeconds: job.SoftTimeoutSeconds, SoftSignal: job.SoftSignal,
		MemoryBytes: class.Cgroup.MemoryBytes, SwapBytes: class.Cgroup.SwapBytes,
		CPUs: float64(class.Cgroup.NanoCPUs) / 1e9, PIDs: class.Cgroup.PIDs, ShmBytes: class.Cgroup.ShmBytes,
		DiskBytes: job.DiskBytes, Disk: result.DiskBound(job.DiskBound), OutputLimitBytes: job.OutputLimitBytes, StreamFileBytes: job.StreamFileBytes,
		ReadOnlyRoot: class.ReadOnlyRoot, NoNewPrivileges: class.NoNewPrivileges, CapDrop: class.CapDrop,
		Seccomp: class.Seccomp.Name,
	}
	if job.NoFork {
		e.Seccomp += ", no processes"
	}
	if hash := class.Seccomp.SHA256; hash != "" {
		e.Seccomp += " sha256:" + hash
	}
	for _, u := range class.Ulimits {
		e.Ulimits = append(e.Ulimits, fmt.Sprintf("%s=%d:%d", u.Name, u.Soft, u.Hard))
	}
	if size := job.FileSize; size != nil {
		e.Ulimits = append(e.Ulimits, fmt.Sprintf("fsize=%d:%d", size.Soft, size.Hard))
		slices.Sort(e.Ulimits)
	}
	for _, t := range class.Tmpfs {
		e.Mounts = append(e.Mounts, result.Mount{Target: t.Target, Type: "tmpfs"})
		switch t.Target {
		case spec.TmpDir:
			e.TmpBytes = t.SizeBytes
		case spec.WorkDir:
			e.ScratchBytes = t.SizeBytes
		}
	}
	for _, m := range class.Masks {
		e.Mounts = append(e.Mounts, result.Mount{Target: m.Target, Type: "mask", ReadOnly: true})
	}
	for _, b := range class.Binds {
		e.Mounts = append(e.Mounts, result.Mount{Target: b.Target, Type: "bind", ReadOnly: b.ReadOnly})
	}
	e.GPUs, e.GPUDriver, e.GPUsShared = class.GPUs.Names(), class.GPUs.Driver, class.GPUs.Share
	var seen wire.Ready
	if a.container != nil {
		seen = a.container.Ready()
		asSeen(&e, seen)
	}
	asUnenforced(&e, class, seen)
	e.Isolation = a.wireIsolation(e.Seccomp)
	return e
}

// asSeen replaces planned values by those that the container's init saw, where it can see
// them.
func asSeen(e *result.Enforced, seen wire.Ready) {
	if seen.Build == "" {
		return // the start of a reopened container is unknown
	}
	e.User = fmt.Sprintf("%d:%d", seen.UID, seen.GID)
	e.NoNewPrivileges = seen.NoNewPrivs
	if limit := seen.Cgroup.MemoryBytes; limit > 0 {
		e.MemoryBytes = limit
	}
	if own := wire.InitTasks(e.PIDs); seen.Cgroup.PIDs > own {
		e.PIDs = seen.Cgroup.PIDs - own
	}
	if root, ok := seen.MountAt("/"); ok {
		e.ReadOnlyRoot = root.ReadOnly
	}
	for i, m := range e.Mounts {
		if is, ok := seen.MountAt(m.Target); ok && m.Type != "tmpfs" {
			e.Mounts[i].ReadOnly = is.ReadOnly
		}
	}
}

// asUnenforced replaces the limits that the engine cannot enforce, and lists them. A limit that the
// container's init saw in force counts as enforced.
func asUnenforced(e *result.Enforced, class spec.Class, seen wire.Ready) {
	for _, limit := range class.Unenforced {
		known := seen.Build != "" && seen.Cgroup.Version != 0
		switch limit {
		case spec.LimitSwap:
			if known && seen.Cgroup.SwapBytes >= 0 && seen.Cgroup.SwapBytes <= class.Cgroup.SwapBytes {
				continue
			}
			if e.SwapBytes = -1; known && seen.Cgroup.SwapBytes > 0 {
				e.SwapBytes = seen.Cgroup.SwapBytes
			}
		case spec.LimitPIDs:
			own := wire.InitTasks(class.Cgroup.PIDs)
			if known && seen.Cgroup.PIDs > own && seen.Cgroup.PIDs-own <= class.Cgroup.PIDs {
				continue
			}
			if !known || seen.Cgroup.PIDs <= own {
				e.PIDs = 0
			}
		case spec.LimitInterfaces, spec.LimitNetwork:
			if class.Network != "none" || seen.Build != "" && !engine.HasInterfaces(seen) {
				continue
			}
		}
		e.Unenforced = append(e.Unenforced, limit)
	}
}

// warnOfUnenforced names the limits that do not hold. Interfaces that nothing gets through harm
// nobody, and the engine itself warns of an open network.
func (a *run) warnOfUnenforced(e result.Enforced) {
	limits := slices.DeleteFunc(slices.Clone(e.Unenforced), func(limit string) bool {
		return limit == spec.LimitInterfaces || limit == spec.LimitNetwork
	})
	if len(limits) > 0 {
		a.warn.add("the engine does not enforce all limits; not enforced: %s", strings.Join(limits, ", "))
	}
}
