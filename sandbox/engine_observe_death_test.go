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
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/runnertest"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// stuckEngine never reports the process of a container, so its program is held back.
type stuckEngine struct{ engine.Engine }

type stuckContainer struct{ engine.Container }

func (e stuckEngine) Prepare(ctx context.Context, class spec.Class, meta engine.Meta) (engine.Container, error) {
	c, err := e.Engine.Prepare(ctx, class, meta)
	return stuckContainer{c}, err
}

func (stuckContainer) PID(context.Context) (int, error) {
	fmt.Println("started") // the container, not its program
	select {}
}

// beObservingOwner holds a program back until it is killed.
func beObservingOwner(state string) error {
	e, err := docker.FromEnv()
	if err != nil {
		return err
	}
	r, err := sandbox.New(sandbox.WithEngine(stuckEngine{e}), sandbox.WithStateDir(state))
	if err != nil {
		return err
	}
	_, err = r.Run(context.Background(), sandbox.Request{
		ID: orphan(ownerObserves), Image: os.Getenv(ownerImage), Command: []string{"sh", "-c", "echo it ran; exit 0"},
		Observe: &sandbox.Observe{Network: true, Canaries: []string{"/etc/shadow"}},
		Limits:  policy.Limits{Timeout: 2 * time.Minute, Memory: 128 * policy.MiB, CPUs: 1},
	}, sandbox.IO{Stdout: os.Stdout})
	return err
}

// TestEngineObserveOwnerThatDies: the program of a controller that is killed while it
// holds it back never starts, and its container ends by itself.
func TestEngineObserveOwnerThatDies(t *testing.T) {
	api := testAPI(t)
	state := filepath.Join(t.TempDir(), "state")
	r := runnertest.New(t, sandbox.WithStateDir(state))
	t.Setenv(ownerImage, imageID(t, r))
	owner := startOwner(t, state, "", ownerObserves)
	id := "evalbox-" + orphan(ownerObserves)
	ended, failed := api.ContainerWait(t.Context(), id, container.WaitConditionNotRunning)
	require.NoError(t, owner.Process.Kill())
	_, _ = owner.Process.Wait()
	requireNotStarted(t, api, id, ended, failed)

	report, err := r.GC(t.Context(), sandbox.GCOptions{})
	require.NoError(t, err)
	require.Len(t, ofRun(report.Finished, orphan(ownerObserves)), 1)
	never, err := r.Store().Get(orphan(ownerObserves))
	require.NoError(t, err)
	require.Equal(t, result.StatusStartFailed, never.Result.Status)
	requireNothingOfAnObservation(t, r, orphan(ownerObserves))
	require.NoError(t, r.Store().Remove(orphan(ownerObserves)))
}

// requireNotStarted waits for the end of a container whose init got no job.
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
	require.NotContains(t, text.String(), "it ran")
}

// imageID is the image of the tests.
func imageID(t *testing.T, r *sandbox.Runner) string {
	t.Helper()
	spec, err := r.Plan(t.Context(), sandbox.Request{Command: []string{"true"}})
	require.NoError(t, err)
	return spec.Class.Image.ID
}
