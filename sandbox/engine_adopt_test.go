//go:build linux

package sandbox_test

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/volume"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// beMortalOwner runs a program, and kills this process at a step.
func beMortalOwner(r *sandbox.Runner, step, final string) error {
	r.At(func(at string) {
		if at == step {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	})
	_, err := r.Run(context.Background(), sandbox.Request{
		ID: cmp.Or(os.Getenv(ownerID), orphan(step)), Final: final, Transfer: os.Getenv(ownerWay),
		Trees: []sandbox.Tree{{Source: "plan", Target: "/repo"}},
		Command: []string{"python3", "-c", `
import os
print("begin", flush=True)
for i in range(2000): print("line", i)
open("final/model.bin", "w").write("weights")
os.remove("/repo/plan.go")
open("/work/lost", "w").write("gone")
open("/repo/new", "w").write("new")
print("Final Validation Performance: 0.75")
`},
		Limits: policy.Limits{Timeout: time.Minute, Memory: 128 * policy.MiB, CPUs: 1},
	})
	return err
}

// TestEngineAdoptAtEveryStep kills a controller with SIGKILL at each step of a run.
func TestEngineAdoptAtEveryStep(t *testing.T) {
	for _, way := range []string{spec.TransferBind, spec.TransferCopy} {
		for i, step := range sandbox.StepsOfARun() {
			t.Run(way+" "+step, func(t *testing.T) {
				state, final := filepath.Join(t.TempDir(), "state"), filepath.Join(t.TempDir(), "final")
				require.NoError(t, os.Mkdir(final, 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(final, "mine"), []byte("precious"), 0o600))
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), ownerState+"="+state, ownerFinal+"="+final, ownerWay+"="+way, ownerDies+"="+step)
				cmd.Stderr = os.Stderr
				require.ErrorContains(t, cmd.Run(), "killed")

				r := newRunner(t, sandbox.WithStateDir(state))
				id := orphan(step)
				res, err := r.Adopt(t.Context(), id)
				ran := i >= slices.Index(sandbox.StepsOfARun(), "accepted")
				switch {
				case step == "staged":
					require.Error(t, err)
				case !ran:
					require.NoError(t, err)
					require.Equal(t, result.StatusStartFailed, res.Status, res.Explanation)
				default:
					require.NoError(t, err)
					require.Equal(t, result.StatusExited, res.Status, res.Explanation)
					require.Equal(t, 0, res.ExitCode)
					require.Empty(t, res.OutputsSkipped)
					require.Equal(t, step != "written", res.Recovered)
					require.True(t, res.OutputComplete, res.Warnings)
					require.InDelta(t, 0.75, *res.Score, 0)
					require.Equal(t, &result.Vanished{Files: 1, Bytes: 4, Complete: true, Names: []string{"lost"}}, res.Vanished)
					require.EqualValues(t, len(res.Stdout), res.StdoutBytes)
					require.Len(t, res.Outputs, 1)
					require.Len(t, res.Trees, 1)
					require.Len(t, res.Trees[0].Created, 1, "%+v", res.Trees[0])
					require.Len(t, res.Trees[0].Deleted, 1, "%+v", res.Trees[0])
					kept, err := os.ReadFile(filepath.Join(r.Store().TreeDir(id, 0), "new"))
					require.NoError(t, err)
					require.Equal(t, "new", string(kept))
				}
				if ran {
					require.FileExists(t, filepath.Join(final, "model.bin"))
					require.FileExists(t, filepath.Join(final+".before-"+id, "mine"))
				} else {
					require.FileExists(t, filepath.Join(final, "mine"))
					require.NoDirExists(t, final+".before-"+id)
				}
				info, err := os.Stat(final)
				require.NoError(t, err)
				require.EqualValues(t, os.Getuid(), info.Sys().(*syscall.Stat_t).Uid, "final stays its owner's")
				requireNothingLeft(t, testAPI(t), spec.LabelRun+"="+id)
				orphans, err := r.Store().Orphans()
				require.NoError(t, err)
				require.Empty(t, orphans)
				if step != "staged" {
					found, err := r.Store().Get(id)
					require.NoError(t, err)
					require.Equal(t, record.Finished, found.State)
					require.NoFileExists(t, filepath.Join(found.Dir, record.ReserveFile))
				}
			})
		}
	}
}

// TestEngineSweepKnowsLabelsOfVersion1: what a sandbox of today leaves on an engine is removed, also
// by one with other labels.
func TestEngineSweepKnowsLabelsOfVersion1(t *testing.T) {
	api, r := testAPI(t), newRunner(t)
	plan, err := r.Plan(t.Context(), python(t, "pass"))
	require.NoError(t, err)
	id := "labels-of-version-1-" + filepath.Base(t.TempDir())
	for part, name := range map[string]string{"": "evalbox-" + id, "courier": "evalbox_courier-" + id} {
		_, err := api.ContainerCreate(t.Context(), &container.Config{
			Image: plan.Class.Image.ID, Cmd: []string{"true"}, Labels: sandbox.LabelsOfVersion1(id, part, "", "/no/such/directory"),
		}, &container.HostConfig{NetworkMode: "none"}, nil, nil, name)
		require.NoError(t, err)
	}
	_, err = api.VolumeCreate(t.Context(), volume.CreateOptions{Name: "evalbox-" + id, Labels: sandbox.LabelsOfVersion1(id, "depot", "", "/no/such/directory")})
	require.NoError(t, err)
	require.Len(t, leftOn(t, api, "org.evalbox.run="+id), 3)
	_, err = r.GC(t.Context(), sandbox.GCOptions{})
	require.NoError(t, err)
	requireNothingLeft(t, api, "org.evalbox.run="+id)
}
