//go:build linux

package sandbox_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
)

// The test binary serves as a controller that can be killed.
const (
	ownerState = "EVALBOX_TEST_OWNER_STATE"
	ownerFinal = "EVALBOX_TEST_OWNER_FINAL"
	ownerGPUs  = "EVALBOX_TEST_OWNER_GPUS"
	ownerWay   = "EVALBOX_TEST_OWNER_TRANSFER"
	ownerNet   = "EVALBOX_TEST_OWNER_EGRESS"
	ownerImage = "EVALBOX_TEST_OWNER_IMAGE"
	ownerDies  = "EVALBOX_TEST_OWNER_DIES"
	ownerID    = "EVALBOX_TEST_OWNER_ID"
	// ownerObserves is the way of a controller that holds a program back.
	ownerObserves = "observe"
)

func TestMain(m *testing.M) {
	if state := os.Getenv(ownerState); state != "" {
		if err := beOwner(state, os.Getenv(ownerFinal)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// beOwner runs a program that never ends by itself.
func beOwner(state, final string) error {
	if os.Getenv(ownerWay) == ownerObserves {
		return beObservingOwner(state)
	}
	catalog, err := images.LoadCatalog(configs.Images(), "configs/images.yaml")
	if err != nil {
		return err
	}
	e, err := docker.FromEnv()
	if err != nil {
		return err
	}
	if last := os.Getenv(ownerAdopts); last != "" {
		return beMortalAdopter(e, state, last)
	}
	poolSize := 0
	var more []sandbox.Option
	switch os.Getenv(ownerWay) {
	case ownerPools, ownerKeeps:
		poolSize = poolOwnerSize
	case ownerAsks:
		more = append(more, sandbox.WithKeeper())
	}
	r, err := sandbox.New(append(more, sandbox.WithEngine(e), sandbox.WithCatalog(catalog), sandbox.WithStateDir(state),
		sandbox.WithPolicy(policy.Policy{AllowEgress: policy.API, AllowPrivateEgress: true}),
		sandbox.WithPool(sandbox.Pool{Size: poolSize}))...)
	if err != nil {
		return err
	}
	switch os.Getenv(ownerWay) {
	case ownerPools:
		return bePoolOwner(r)
	case ownerKeeps:
		return r.KeepPool(context.Background(), 0, func() { fmt.Println("started") })
	case ownerAsks:
		return beAskingOwner(r)
	}
	if step := os.Getenv(ownerDies); step != "" {
		return beMortalOwner(r, step, final)
	}
	if address := os.Getenv(ownerNet); address != "" {
		return beEgressOwner(r, address, final)
	}
	_, err = r.Run(context.Background(), sandbox.Request{
		ID: orphan(os.Getenv(ownerWay)), Final: final, Transfer: os.Getenv(ownerWay),
		GPUs:    os.Getenv(ownerGPUs),
		Trees:   []sandbox.Tree{{Source: "testdata", Target: "/repo"}},
		Masks:   []string{"/repo/spec-full.json"},
		Command: []string{"python3", "-c", "import time; print('started'); time.sleep(120)"},
		Limits:  policy.Limits{Timeout: 2 * time.Minute, Memory: 128 * policy.MiB, CPUs: 1},
	}, sandbox.IO{Stdout: os.Stdout})
	return err
}

// orphan is the ID of the run of a controller that is killed.
func orphan(way string) string { return "orphan-" + way }

// startOwner starts the controller and returns once its program runs.
func startOwner(t *testing.T, state, final, way string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), ownerState+"="+state, ownerFinal+"="+final, ownerWay+"="+way)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "started\n", line)
	return cmd
}
