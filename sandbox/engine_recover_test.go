//go:build linux

package sandbox_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// ownerAdopts is the number of the moment at which a process that adopts a run is killed; 0 for never.
const ownerAdopts = "EVALBOX_TEST_OWNER_ADOPTS"

// mortal counts the moments of a recovery, and kills this process at one of them.
type mortal struct {
	engine.Engine
	moments, last int
}

func (m *mortal) moment() {
	if m.moments++; m.moments == m.last {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (m *mortal) Info(ctx context.Context) (engine.Info, error) {
	m.moment()
	defer m.moment()
	return m.Engine.Info(ctx)
}

func (m *mortal) Open(ctx context.Context, ref engine.Ref, streams engine.Streams) (engine.Container, error) {
	m.moment()
	defer m.moment()
	return m.Engine.Open(ctx, ref, streams)
}

func (m *mortal) List(ctx context.Context) ([]engine.Found, error) {
	m.moment()
	defer m.moment()
	return m.Engine.List(ctx)
}

func (m *mortal) Remove(ctx context.Context, name string) error {
	m.moment()
	defer m.moment()
	return m.Engine.Remove(ctx, name)
}

// beMortalAdopter adopts all runs of a state directory, and prints how many moments that has.
func beMortalAdopter(e engine.Engine, state, last string) error {
	m := &mortal{Engine: e}
	var err error
	if m.last, err = strconv.Atoi(last); err != nil {
		return err
	}
	r, err := sandbox.New(sandbox.WithEngine(m), sandbox.WithStateDir(state))
	if err != nil {
		return err
	}
	r.At(func(string) { m.moment() })
	err = r.AdoptAll(context.Background(), func(sandbox.Adopted) {})
	fmt.Print(m.moments)
	return err
}

// TestEngineDeathOfARecovery kills a process that recovers the run of a dead controller with SIGKILL, before
// and behind each call of the engine and at each step. The next one finishes the run as if it were the first.
func TestEngineDeathOfARecovery(t *testing.T) {
	for _, dies := range []string{"journaled", "noted", "accepted", "written"} {
		t.Run(dies, func(t *testing.T) {
			adopt := func(t *testing.T, last int) (state, final, moments string) {
				t.Helper()
				id := fmt.Sprintf("dies-%s-%d", dies, last)
				state, final = filepath.Join(t.TempDir(), "state"), filepath.Join(t.TempDir(), "final")
				first := exec.Command(os.Args[0])
				first.Env = append(os.Environ(), ownerState+"="+state, ownerFinal+"="+final, ownerWay+"="+spec.TransferBind, ownerDies+"="+dies, ownerID+"="+id)
				require.ErrorContains(t, first.Run(), "killed")
				second := exec.Command(os.Args[0])
				second.Env = append(os.Environ(), ownerState+"="+state, ownerAdopts+"="+strconv.Itoa(last))
				var stdout, stderr bytes.Buffer
				second.Stdout, second.Stderr = &stdout, &stderr
				if err := second.Run(); last > 0 {
					require.ErrorContains(t, err, "killed", stderr.String())
				} else {
					require.NoError(t, err, stderr.String())
				}
				return state, final, stdout.String()
			}
			_, _, text := adopt(t, 0)
			moments, err := strconv.Atoi(text)
			require.NoError(t, err)
			require.Greater(t, moments, 4)
			for last := 1; last <= moments; last++ {
				t.Run(strconv.Itoa(last), func(t *testing.T) {
					t.Parallel()
					state, final, _ := adopt(t, last)
					r, id := newRunner(t, sandbox.WithStateDir(state)), fmt.Sprintf("dies-%s-%d", dies, last)
					if last%2 == 0 {
						_, err = r.GC(t.Context(), sandbox.GCOptions{})
					} else {
						_, err = r.Adopt(t.Context(), id)
					}
					require.NoError(t, err)
					found, err := r.Store().Get(id)
					require.NoError(t, err)
					require.Equal(t, record.Finished, found.State)
					if dies == "journaled" || dies == "noted" {
						require.Equal(t, result.StatusStartFailed, found.Result.Status)
					} else {
						require.Equal(t, result.StatusExited, found.Result.Status, found.Result.Explanation)
						require.InDelta(t, 0.75, *found.Result.Score, 0)
						require.True(t, found.Result.OutputComplete)
						require.Len(t, found.Result.Outputs, 1)
						require.FileExists(t, filepath.Join(final, "model.bin"))
						require.Equal(t, id, r.LeftBy(t.Context(), final))
					}
					orphans, err := r.Store().Orphans()
					require.NoError(t, err)
					require.Empty(t, orphans)
					requireNothingLeft(t, testAPI(t), spec.LabelState+"="+state)
				})
			}
		})
	}
}
