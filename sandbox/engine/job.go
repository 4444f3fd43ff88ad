package engine

import (
	"io"
	"math"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// WireJob translates a job for evalbox's init. oomScore is oom_score_adj of the program: it makes the
// kernel prefer the program over other processes as an OOM victim. ready is what init saw of its
// container.
func WireJob(job spec.Job, dir string, nonce wire.Nonce, oomScore int, ready wire.Ready) wire.Job {
	j := wire.Job{
		Nonce: nonce, Args: job.Command, Env: job.ProgramEnv(), Dir: dir,
		Timeout: policy.Seconds(job.TimeoutSeconds), Grace: policy.Seconds(job.GraceSeconds),
		OrphanLimit: policy.Seconds(job.OrphanLimitSeconds),
		OOMScoreAdj: oomScore, NoFork: job.NoFork, Stdin: job.Stdin, Scratch: spec.WorkDir,
		Processors: max(ready.Cgroup.CPUs, 0),
	}
	for _, a := range job.Aliases {
		j.Aliases = append(j.Aliases, wire.Alias{Path: a.Name, Target: a.Target})
	}
	if j.Timeout > 0 && !job.NoDeadlineEnv {
		j.DeadlineVar = spec.DeadlineEnv
	}
	if size := job.FileSize; size != nil {
		j.Rlimits = []wire.Rlimit{wire.FileSize(size.Soft, size.Hard)}
	}
	if job.SoftTimeoutSeconds > 0 {
		j.SoftLead = j.Timeout - policy.Seconds(job.SoftTimeoutSeconds)
		j.SoftSignal = spec.SoftSignals[job.SoftSignal]
	}
	if job.Egress != nil {
		j.Relay = &wire.Relay{Port: spec.EgressPort, Connections: uint16(min(job.Egress.Connections, math.MaxUint16)), Socket: spec.EgressDir + "/" + spec.EgressSocket}
	}
	return j
}

// EndOf translates the report of init. What only an engine knows is missing: whether the output is
// complete, whether a signal from outside was a request of evalbox, and whether a container was frozen
// whose kernel does not count how long init waits.
func EndOf(r wire.Report) End {
	end := End{
		Reported:  true,
		Abandoned: r.Abandoned, SoftAfter: r.SoftAfter, Escalated: r.Escalated, ProcessesLeft: r.ProcessesLeft,
		StartedAt: r.Started, FinishedAt: r.Finished, Duration: r.Wall, Left: r.Left,
		Usage:     Usage{CPU: r.Usage.CPU, PeakMemory: r.Usage.PeakMemory, OOMKills: r.Usage.OOMKills, Source: r.Usage.Source},
		OOMKilled: r.Usage.OOMKills > 0, Share: r.Share,
	}
	if r.Share.Known {
		end.Frozen = r.Share.Gap
	}
	switch r.Kind {
	case wire.Exited:
		end.ExitCode = r.Value
	case wire.Signaled:
		end.Signal = r.Value
	case wire.NotStarted:
		end.Launch = &LaunchError{Stage: r.Stage.String(), Errno: r.Errno()}
	}
	switch r.Stop {
	case wire.StopNone:
	case wire.StopDeadline:
		end.Cause = ByDeadline
	case wire.StopOrphan:
		end.Cause = ByOrphanLimit
	case wire.StopTerm, wire.StopKill:
		end.Cause = BySignal
	}
	return end
}

// PumpInput copies the caller's input to the program's stdin, through frames to init, until the
// program is over. A reader that blocks also blocks PumpInput, without a time limit.
func PumpInput(init io.Writer, from io.Reader, over <-chan struct{}) {
	to := wire.InputWriter(init)
	buffer := make([]byte, 32<<10)
	for from != nil {
		n, err := from.Read(buffer)
		if _, failed := to.Write(buffer[:n]); failed != nil {
			return
		}
		if err != nil {
			break
		}
		select {
		case <-over:
			return
		default:
		}
	}
	_ = to.Close() // the program may have ended
}
