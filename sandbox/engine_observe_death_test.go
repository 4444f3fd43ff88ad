//go:build linux

package sandbox_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

// stuckEngine never tells the state of a container, so that its program is held back.
type stuckEngine struct{ sandbox.Engine }

func (stuckEngine) Inspect(ctx context.Context, _ string) (sandbox.State, error) {
	fmt.Println("started") // the container, not its program
	select {}
}

// beObservingOwner holds a program back until it is killed.
func beObservingOwner(state string) error {
	endpoint, err := sandbox.FindEngine(sandbox.Address{})
	if err != nil {
		return err
	}
	engine, err := endpoint.Engine()
	if err != nil {
		return err
	}
	r, err := sandbox.New(sandbox.WithEngine(stuckEngine{engine}), sandbox.WithStateDir(state))
	if err != nil {
		return err
	}
	_, err = r.Run(context.Background(), sandbox.Request{
		ID: orphan(ownerObserves), Image: os.Getenv(ownerImage), Command: []string{"sh", "-c", "echo it ran; exit 0"}, Stdout: os.Stdout,
		Observe: &sandbox.Observe{Network: true, Decoys: []string{"/etc/shadow"}},
		Limits:  policy.Limits{Timeout: 2 * time.Minute, Memory: 128 * policy.MiB, CPUs: 1},
	})
	return err
}

// TestEngineObserveOwnerThatDies: the program of a controller that is killed while it
// holds it back never starts, and its container ends by itself.
func TestEngineObserveOwnerThatDies(t *testing.T) {
	api := testAPI(t)
	state := filepath.Join(t.TempDir(), "state")
	r, err := sandbox.New(sandbox.WithCatalog(testCatalog(t)), sandbox.WithStateDir(state))
	require.NoError(t, err)
	defer r.Close()
	t.Setenv(ownerImage, imageID(t, r))
	owner := startOwner(t, state, "", ownerObserves)
	id := "evalbox-" + orphan(ownerObserves)
	ended, failed := api.ContainerWait(t.Context(), id, container.WaitConditionNotRunning)
	require.NoError(t, owner.Process.Kill())
	_, _ = owner.Process.Wait()
	requireNotStarted(t, api, id, ended, failed)

	report, err := r.Sweep(t.Context(), sandbox.SweepOptions{})
	require.NoError(t, err)
	require.Len(t, ofRun(report.Removed, orphan(ownerObserves)), 1)
	requireNothingOfAnObservation(t, r, orphan(ownerObserves))
	require.NoError(t, r.Store().Remove(orphan(ownerObserves)))
}

// TestEngineObserveOwnerThatDiedBefore: a launcher that begins when its controller is dead
// already does not wait for ever.
func TestEngineObserveOwnerThatDiedBefore(t *testing.T) {
	t.Parallel()
	api := testAPI(t)
	r := newRunner(t)
	hold := t.TempDir()
	require.NoError(t, os.Chmod(hold, 0o755))
	script, err := os.ReadFile("observe_launch.sh")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(hold, "launch"), script, 0o444))
	require.NoError(t, unix.Mkfifo(filepath.Join(hold, "go"), 0o666))
	require.NoError(t, os.Chmod(filepath.Join(hold, "go"), 0o666))
	created, err := api.ContainerCreate(t.Context(), &container.Config{
		Image: imageID(t, r), User: sandbox.DedicatedUser, Cmd: []string{"/bin/sh", sandbox.HoldDir + "/launch", "echo", "it ran"},
	}, &container.HostConfig{NetworkMode: "none", ReadonlyRootfs: true,
		Mounts: []mount.Mount{{Type: mount.TypeBind, Source: hold, Target: sandbox.HoldDir, ReadOnly: true}}}, nil, nil, "")
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, api.ContainerRemove(context.Background(), created.ID, container.RemoveOptions{Force: true}))
	})
	ended, failed := api.ContainerWait(t.Context(), created.ID, container.WaitConditionNextExit)
	require.NoError(t, api.ContainerStart(t.Context(), created.ID, container.StartOptions{}))
	requireNotStarted(t, api, created.ID, ended, failed)
}

// requireNotStarted waits for the end of a container whose launcher gave up.
func requireNotStarted(t *testing.T, api *client.Client, id string, ended <-chan container.WaitResponse, failed <-chan error) {
	t.Helper()
	select {
	case end := <-ended:
		require.EqualValues(t, 125, end.StatusCode)
	case err := <-failed:
		require.NoError(t, err)
	}
	logs, err := api.ContainerLogs(t.Context(), id, container.LogsOptions{ShowStdout: true, ShowStderr: true})
	require.NoError(t, err)
	defer logs.Close()
	var text strings.Builder
	_, err = stdcopy.StdCopy(&text, &text, logs)
	require.NoError(t, err)
	require.Equal(t, "[FATAL evalbox launch] the controller went away before it let the program start\n", text.String())
}

// imageID is the image of the tests.
func imageID(t *testing.T, r *sandbox.Runner) string {
	t.Helper()
	spec, err := r.Plan(t.Context(), sandbox.Request{Command: []string{"true"}})
	require.NoError(t, err)
	return spec.Class.Image.ID
}
