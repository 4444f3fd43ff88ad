package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// TestWireJob: init gets every limit of the job.
func TestWireJob(t *testing.T) {
	job := spec.Job{
		Command: []string{"python3", "x.py"}, Env: []string{"A=1"}, NoFork: true, Stdin: true,
		TimeoutSeconds: 10, GraceSeconds: 2, SoftTimeoutSeconds: 7.5, SoftSignal: "SIGUSR1", OrphanLimitSeconds: 5,
		Aliases: []spec.Alias{{Name: "/data", Target: "/work/input"}}, FileSize: &spec.FileSize{Soft: 100, Hard: 200},
		Egress: &spec.Egress{Connections: 1 << 20},
	}
	want := wire.Job{
		Nonce: wire.Nonce{1}, Args: job.Command, Env: job.Env, Dir: "/work", Scratch: "/work", NoFork: true, Stdin: true, OOMScoreAdj: 900,
		Timeout: 10 * time.Second, Grace: 2 * time.Second, SoftLead: 2500 * time.Millisecond, SoftSignal: 10, OrphanLimit: 5 * time.Second,
		DeadlineVar: "SANDBOX_DEADLINE", Rlimits: []wire.Rlimit{wire.FileSize(100, 200)},
		Aliases:    []wire.Alias{{Path: "/data", Target: "/work/input"}},
		Relay:      &wire.Relay{Port: 3128, Connections: 65535, Socket: "/run/evalbox/proxy.sock"},
		Processors: 2,
	}
	require.Equal(t, want, engine.WireJob(job, "/work", wire.Nonce{1}, 900, wire.Ready{Cgroup: wire.Cgroup{CPUs: 2}}))

	job = spec.Job{Command: job.Command, TimeoutSeconds: 10, NoDeadlineEnv: true}
	require.Equal(t, wire.Job{Args: job.Command, Dir: "/", Scratch: "/work", Timeout: 10 * time.Second}, engine.WireJob(job, "/", wire.Nonce{}, 0, wire.Ready{Cgroup: wire.Cgroup{CPUs: -1}}))
}
