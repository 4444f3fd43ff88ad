package main

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/gpu"
)

// TestGPUsUnderCompetition looks at holders and waiters as a user does.
func TestGPUsUnderCompetition(t *testing.T) {
	state := t.TempDir()
	t.Setenv("SANDBOX_STATE_DIR", state)
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(state, "no.sock"))
	t.Setenv("PATH", state) // no nvidia-smi
	m := gpu.Open(filepath.Join(state, "gpus", "local"))
	order := func(run string, want gpu.Want) gpu.Order {
		return gpu.Order{Want: want, Holder: gpu.Holder{RunID: run}, Wait: time.Minute,
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
	require.Regexp(t, `(?m)^0 +- +- +- +held +alone since 20\S+, process \d+ of \S+ on \S+$`, out)
	require.Regexp(t, `(?m)^2 +- +- +- +shared +first since `, out)
	require.Regexp(t, `(?m)^ +second since `, out)
	require.Regexp(t, `(?m)^ARRIVAL +RUN +WANTS +STATE +SINCE +PROCESS$`, out)
	require.Regexp(t, `(?m)^4 +patient +all GPUs +waiting +20`, out)
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
	require.Contains(t, out, "no GPU; looked at:")
}
