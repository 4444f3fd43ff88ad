package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/gpu"
)

// TestGPUsUnderCompetition looks at holders and waiters as a user does.
func TestGPUsUnderCompetition(t *testing.T) {
	state := t.TempDir()
	t.Setenv("SANDBOX_STATE_DIR", state)
	standInHere(t, `{"NCPU": 4, "KernelVersion": "KERNEL"}`)
	t.Setenv("PATH", state) // no nvidia-smi
	m := gpu.Open(filepath.Join(state, "gpus"))
	order := func(run string, want gpu.Want) gpu.Order {
		return gpu.Order{Want: want, Holder: gpu.Holder{RunID: run, Name: "my " + run}, Wait: time.Minute,
			Inventory: gpu.Inventory{Known: true, Devices: []gpu.Device{{ID: "0"}, {ID: "1"}, {ID: "2"}}}}
	}
	lease := func(run string, want gpu.Want) *gpu.Lease {
		l, err := m.Acquire(t.Context(), order(run, want))
		require.NoError(t, err)
		return l
	}
	alone := lease("alone", gpu.Want{IDs: []string{"0"}})
	first := lease("first", gpu.Want{IDs: []string{"2"}, Share: true})
	second := lease("second", gpu.Want{IDs: []string{"2"}, Share: true})
	waits, got := make(chan string, 10), make(chan *gpu.Lease, 1)
	go func() {
		o := order("patient", gpu.Want{All: true})
		o.Waiting = func(why string) { waits <- why }
		l, err := m.Acquire(t.Context(), o)
		if err != nil {
			l = nil
		}
		got <- l
	}()
	<-waits

	out, errs := runHere(t, 0, "gpus")
	require.Empty(t, errs)
	require.Regexp(t, `(?m)^GPU +MODEL +MEMORY +STATE +AGE +USER +RUN +NAME$`, out)
	require.Regexp(t, `(?m)^0 +- +- +held +\d+s +\S+ +alone +my alone$`, out)
	require.Regexp(t, `(?m)^2 +- +- +shared +\d+s +\S+ +first +my first$`, out)
	require.Regexp(t, `(?m)^ +\d+s +\S+ +second +my second$`, out)
	require.Regexp(t, `(?m)^WANTS +STATE +AGE +USER +RUN +NAME$`, out)
	require.Regexp(t, `(?m)^all GPUs +waiting +\d+s +\S+ +patient +my patient$`, out)
	for line := range strings.Lines(out) {
		require.LessOrEqual(t, len(line), 80)
	}
	out, _ = runHere(t, 0, "gpus", "--json")
	var report sandbox.GPUReport
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	require.Len(t, report.Queue, 1)
	require.Equal(t, "patient", report.Queue[0].RunID)
	require.Len(t, report.GPUs[1].Holders, 2)

	for _, l := range []*gpu.Lease{alone, first, second} {
		require.NoError(t, l.Release(t.Context()))
	}
	l := <-got
	require.NotNil(t, l)
	require.NoError(t, l.Release(t.Context()))
	out, _ = runHere(t, 0, "gpus")
	require.Contains(t, out, "no GPU known; looked at:")
}

// TestEngineRunWithGPUs is on the engine of the tests, which has stand-ins for GPUs or
// none.
func TestEngineRunWithGPUs(t *testing.T) {
	state := t.TempDir()
	t.Setenv("SANDBOX_STATE_DIR", state)
	t.Setenv("SANDBOX_GPU_DIR", filepath.Join(state, "leases"))
	require.NoError(t, os.Mkdir(filepath.Join(state, "leases"), 0o700))
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(state, "xdg")) // not the lock of the user who runs the tests
	api, err := settings.Settings{}.Client()
	require.NoError(t, err)
	said, err := api.Info(t.Context())
	require.NoError(t, err)
	require.NoError(t, api.Close())
	args := []string{"run", "--gpus", "device=2", "--", "sh", "-c", "echo sees $CUDA_VISIBLE_DEVICES; ls /dev/nvidia*"}
	if len(said.DiscoveredDevices) == 0 {
		out, errs := runHere(t, cli.ExitSandbox, args...)
		require.Empty(t, out)
		require.Contains(t, errs, `sandbox: gpus "device=2": the engine has neither a runtime nvidia nor CDI devices of NVIDIA`)
		require.Contains(t, errs, "sandbox: hint: see which GPUs there are with: sandbox gpus")
		return
	}
	out, _ := runHere(t, 0, args...)
	require.Equal(t, "sees 0\n/dev/nvidia2\n", out)

	m := gpu.Open(filepath.Join(state, "leases"))
	held, err := m.Acquire(t.Context(), gpu.Order{Want: gpu.Want{IDs: []string{"2"}}, Holder: gpu.Holder{RunID: "other"},
		Inventory: gpu.Inventory{Known: true, Devices: []gpu.Device{{ID: "2"}}}})
	require.NoError(t, err)
	_, errs := runHere(t, cli.ExitSandbox, args...)
	require.Contains(t, errs, "sandbox: gpus: GPU 2: not free: GPU 2 is held by run other")
	require.Contains(t, errs, "sandbox: hint: see who has them with: sandbox gpus; wait for them with --gpu-wait 1h")

	errsR, errsW := io.Pipe()
	go func() {
		lines := bufio.NewScanner(errsR)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "sandbox: waiting up to 5m0s for GPUs: GPU 2 is held by run other") {
				_ = held.Release(context.Background()) // the run would never end
			}
		}
	}()
	var waited strings.Builder
	code := Run(t.Context(), append([]string{"run", "--gpu-wait", "5m"}, args[1:]...), cli.Streams{Out: &waited, Err: errsW})
	require.NoError(t, errsW.Close())
	require.Zero(t, code)
	require.Equal(t, "sees 0\n/dev/nvidia2\n", waited.String())
}
