//go:build linux

package sandbox_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
	"github.com/evalbox/evalbox/sandbox/gpu"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// standIns reports whether the engine has the eight stand-ins for GPUs: CDI
// devices nvidia.com/gpu=0 to 7 that are /dev/zero. An engine with other GPUs
// fails the tests: they would take them from somebody.
func standIns(t *testing.T, r *sandbox.Runner) bool {
	t.Helper()
	said, err := testAPI(t).Info(t.Context())
	require.NoError(t, err)
	info, err := r.Info(t.Context())
	require.NoError(t, err)
	if len(said.DiscoveredDevices) == 0 {
		require.Equal(t, spec.HostGPUs{CDI: info.Host.GPUs.CDI, CDIDevices: info.Host.GPUs.CDIDevices}, info.Host.GPUs)
		require.Empty(t, info.Host.GPUs.CDIDevices)
		return false
	}
	require.Equal(t, []string{
		"nvidia.com/gpu=0", "nvidia.com/gpu=1", "nvidia.com/gpu=2", "nvidia.com/gpu=3",
		"nvidia.com/gpu=4", "nvidia.com/gpu=5", "nvidia.com/gpu=6", "nvidia.com/gpu=7",
	}, info.Host.GPUs.CDIDevices, "the engine of the tests has stand-ins for GPUs, or none")
	return true
}

// seen is what a program finds of its GPUs.
type seen struct {
	Nodes   []string
	Zeros   bool
	Visible string
	Runtime string
	StandIn string
}

const lookForGPUs = `
import glob, json, os
nodes = sorted(glob.glob('/dev/nvidia*'))
print(json.dumps(dict(Nodes=nodes, Zeros=all(open(n, 'rb').read(3) == b'\0\0\0' for n in nodes),
    Visible=os.environ.get('CUDA_VISIBLE_DEVICES', 'unset'), Runtime=os.environ.get('NVIDIA_VISIBLE_DEVICES', 'unset'),
    StandIn=os.environ.get('STAND_IN_GPU', 'unset'))))
`

// TestEngineGPUs runs programs with GPUs where the engine has CDI devices, and is
// refused, before anything is made, where it has none.
func TestEngineGPUs(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	has := standIns(t, r)
	for gpus, test := range map[string]struct {
		want seen
		ids  string
	}{
		"2":          {seen{[]string{"/dev/nvidia0", "/dev/nvidia1"}, true, "0,1", "void", ""}, "0 1"},
		"device=5":   {seen{[]string{"/dev/nvidia5"}, true, "0", "void", "5"}, "5"},
		"device=3,6": {seen{[]string{"/dev/nvidia3", "/dev/nvidia6"}, true, "0,1", "void", ""}, "3 6"},
		"all": {seen{[]string{"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia3", "/dev/nvidia4", "/dev/nvidia5",
			"/dev/nvidia6", "/dev/nvidia7"}, true, "0,1,2,3,4,5,6,7", "void", ""}, "0 1 2 3 4 5 6 7"},
		"": {seen{[]string{}, true, "unset", "void", "unset"}, ""},
	} {
		t.Run("gpus "+gpus, func(t *testing.T) {
			t.Parallel()
			req := python(t, lookForGPUs)
			req.GPUs, req.GPUWait = gpus, 5*time.Minute
			if !has && gpus != "" {
				_, err := r.Run(t.Context(), req)
				requireNoGPUs(t, err)
				return
			}
			res := run(t, r, req)
			require.Equal(t, result.StatusExited, res.Status, "%s", res.Stderr)
			require.Zero(t, res.ExitCode, "%s", res.Stderr)
			var got seen
			require.NoError(t, json.Unmarshal([]byte(res.Stdout), &got), res.Stdout)
			if test.want.StandIn == "" {
				test.want.StandIn = got.StandIn // each device sets it
			}
			require.Equal(t, test.want, got)
			ids := []string{}
			for _, id := range strings.Fields(test.ids) {
				ids = append(ids, "nvidia.com/gpu="+id)
			}
			require.Equal(t, ids, append([]string{}, res.Enforced.GPUs...))
			require.Equal(t, map[bool]string{true: "cdi", false: ""}[gpus != ""], res.Enforced.GPUDriver)
		})
	}
	for gpus, rule := range map[string]string{"9": "9 asked for, 8 there", "device=8": "GPU 8 does not exist; there are 0-7"} {
		req := python(t, "pass")
		req.GPUs = gpus
		_, err := r.Run(t.Context(), req)
		if !has {
			rule = "neither a runtime nvidia nor CDI devices"
		}
		var field *policy.FieldError
		require.ErrorAs(t, err, &field)
		require.Contains(t, field.Rule, rule)
	}
}

// requireNoGPUs is the refusal of an engine that has no GPUs.
func requireNoGPUs(t *testing.T, err error) {
	t.Helper()
	var field *policy.FieldError
	require.ErrorAs(t, err, &field)
	require.Equal(t, "gpus", field.Field)
	require.Contains(t, field.Rule, "neither a runtime nvidia nor CDI devices")
}

// TestEngineGPUsAreNotShared lets runs compete for GPUs. By the engine's own
// times, no two of them had the same at the same time.
func TestEngineGPUsAreNotShared(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	if !standIns(t, r) {
		req := python(t, "pass")
		req.GPUs, req.GPUWait = "3", time.Minute
		_, err := r.Run(t.Context(), req)
		requireNoGPUs(t, err)
		return
	}
	const runs = 5
	results := make([]*result.Result, runs)
	errs := make([]error, runs)
	var all sync.WaitGroup
	for i := range runs {
		req := python(t, "pass")
		req.GPUs, req.GPUWait = "3", 5*time.Minute
		all.Go(func() { results[i], errs[i] = r.Run(t.Context(), req) })
	}
	all.Wait()
	for i, a := range results {
		require.NoError(t, errs[i])
		require.Len(t, a.Enforced.GPUs, 3)
		for _, b := range results[:i] {
			apart := !at(t, a.FinishedAt).After(at(t, b.StartedAt)) || !at(t, b.FinishedAt).After(at(t, a.StartedAt))
			for _, id := range a.Enforced.GPUs {
				require.True(t, apart || !slices.Contains(b.Enforced.GPUs, id), "%s had %s at the same time as %s", a.ID, id, b.ID)
			}
		}
	}
	report, err := r.GPUs(t.Context())
	require.NoError(t, err)
	for _, g := range report.GPUs {
		require.Equal(t, gpu.StateFree, g.State)
	}
}

func at(t *testing.T, text string) time.Time {
	t.Helper()
	when, err := time.Parse(time.RFC3339Nano, text)
	require.NoError(t, err)
	return when
}

// overNetwork is a client that reaches the engine of the tests by a port of this
// machine.
func overNetwork(t *testing.T) *client.Client {
	t.Helper()
	socket := strings.TrimPrefix(testAPI(t).DaemonHost(), "unix://")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			here, err := listener.Accept()
			if err != nil {
				return // closed
			}
			there, err := net.Dial("unix", socket)
			if err != nil {
				_ = here.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{here, there}, {there, here}} {
				go func() {
					_, _ = io.Copy(way[0], way[1]) // ends with either side
					_ = way[0].Close()
				}()
			}
		}
	}()
	api, err := client.NewClientWithOpts(client.WithHost("tcp://"+listener.Addr().String()), client.WithAPIVersionNegotiation())
	require.NoError(t, err)
	return api
}

// TestEngineGPUsReachedTwice holds a GPU of an engine that is reached at its
// socket: who comes over the network does not get it.
func TestEngineGPUsReachedTwice(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state")
	near := newRunner(t, sandbox.WithStateDir(state))
	far := newRunner(t, sandbox.WithStateDir(state), sandbox.WithEngine(docker.New(overNetwork(t))))
	has := standIns(t, far)
	info, err := far.Info(t.Context())
	require.NoError(t, err)
	require.False(t, info.Local)
	last := python(t, "pass")
	last.GPUs = "device=4"
	if !has {
		_, err := far.Run(t.Context(), last)
		requireNoGPUs(t, err)
		return
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	first := python(t, "import time; print('started'); time.sleep(120)")
	first.ID, first.GPUs = "first", "device=4"
	said, done := io.Pipe()
	streams := sandbox.IO{Stdout: done}
	ended := make(chan error, 1)
	go func() {
		_, err := near.Run(ctx, first, streams)
		_ = done.CloseWithError(io.EOF)
		ended <- err
	}()
	_, err = bufio.NewReader(said).ReadString('\n')
	require.NoError(t, err)

	_, err = far.Run(t.Context(), last)
	var busy *gpu.BusyError
	require.ErrorAs(t, err, &busy)
	require.Contains(t, busy.Why, "GPU 4 is held by run first")
	report, err := far.GPUs(t.Context())
	require.NoError(t, err)
	require.Equal(t, gpu.StateHeld, report.GPUs[4].State)
	stop()
	require.NoError(t, <-ended)
	require.Equal(t, []string{"nvidia.com/gpu=4"}, run(t, far, last).Enforced.GPUs)
}

// TestEngineGPUsOfADeadController are not handed out while its program runs.
func TestEngineGPUsOfADeadController(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	r := newRunner(t, sandbox.WithStateDir(state))
	if !standIns(t, r) {
		req := python(t, "pass")
		req.GPUs = "all"
		_, err := r.Run(t.Context(), req)
		requireNoGPUs(t, err)
		return
	}
	t.Setenv(ownerGPUs, "2")
	owner := startOwner(t, state, filepath.Join(t.TempDir(), "final"), spec.TransferAuto)
	report, err := r.GPUs(t.Context())
	require.NoError(t, err)
	require.Equal(t, gpu.StateHeld, report.GPUs[1].State)
	require.Equal(t, owner.Process.Pid, report.GPUs[1].Holders[0].PID)
	require.Equal(t, gpu.StateFree, report.GPUs[2].State)
	require.NoError(t, owner.Process.Signal(syscall.SIGKILL))
	_ = owner.Wait() // killed

	report, err = r.GPUs(t.Context())
	require.NoError(t, err)
	require.Equal(t, gpu.StateQuarantined, report.GPUs[1].State, "its program still runs")
	req := python(t, "pass")
	req.GPUs = "all"
	_, err = r.Run(t.Context(), req)
	require.ErrorContains(t, err, "its program still runs until its time limit")
	ctx, cancel := context.WithCancel(t.Context())
	adopted, err := r.Adopt(ctx, orphan(spec.TransferAuto), sandbox.IO{Stdout: afterLine("started", cancel)})
	require.NoError(t, err)
	require.Equal(t, result.StatusCanceled, adopted.Status)
	res := run(t, r, req)
	require.Len(t, res.Enforced.GPUs, 8)
	containers, err := r.Containers(context.Background())
	require.NoError(t, err)
	for _, c := range containers {
		require.NotEqual(t, state, c.Labels[spec.LabelState], "the orphan is gone")
	}
}
