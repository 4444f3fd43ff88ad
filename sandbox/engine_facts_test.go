package sandbox

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// identifiedEngine is a fake engine whose process can be told.
type identifiedEngine struct {
	*fakeEngine
	identity string
	asked    int
}

func (e *identifiedEngine) Identity(context.Context) string { return e.identity }

func (e *identifiedEngine) Info(ctx context.Context) (EngineInfo, error) {
	e.asked++
	return e.fakeEngine.Info(ctx)
}

func TestEngineFactsAreRememberedAsLongAsItIsTheSameProcess(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		engine := &identifiedEngine{fakeEngine: newFakeEngine(nil), identity: "process 1"}
		ask := func() EngineInfo {
			r, err := New(WithEngine(engine), WithStateDir(t.TempDir()))
			require.NoError(t, err)
			info, err := r.engineFacts(t.Context())
			require.NoError(t, err)
			return info
		}
		first := ask()
		require.Equal(t, engine.info, first)
		require.Equal(t, first, ask(), "from disk")
		require.Equal(t, 1, engine.asked)

		engine.identity = "process 2"
		ask()
		require.Equal(t, 2, engine.asked, "another process is asked again")
		time.Sleep(factsOnDisk)
		ask()
		require.Equal(t, 3, engine.asked, "old facts are asked for again")
		require.NoError(t, os.WriteFile(factsPath(engine.identity), []byte("{"), 0o600))
		ask()
		require.Equal(t, 4, engine.asked, "a damaged file is asked over")
		engine.identity = ""
		ask()
		ask()
		require.Equal(t, 6, engine.asked, "an engine that cannot be told is never remembered")
	})
}

func TestFactsAreOnlyASaving(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "/dev/null")
	engine := &identifiedEngine{fakeEngine: newFakeEngine(nil), identity: "process 1"}
	r, err := New(WithEngine(engine), WithStateDir(t.TempDir()))
	require.NoError(t, err)
	info, err := r.engineFacts(t.Context())
	require.NoError(t, err)
	require.Equal(t, engine.info, info)
}

// TestWhatTheEngineSeesIsRemembered: a local run is not to pay for a question
// whose answer is known.
func TestWhatTheEngineSeesIsRemembered(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		engine := &identifiedEngine{fakeEngine: newFakeEngine(nil), identity: "process 1"}
		state := t.TempDir()
		plan := func(state string) string {
			r, err := New(WithEngine(engine), WithStateDir(state))
			require.NoError(t, err)
			spec, err := r.Plan(t.Context(), command("true"))
			require.NoError(t, err)
			return spec.Class.Transfer
		}
		questions := func() int { return engine.fakeDepots.asked }
		require.Equal(t, TransferBind, plan(state))
		require.Equal(t, TransferBind, plan(state))
		require.Equal(t, 1, questions(), "from disk")
		plan(t.TempDir())
		require.Equal(t, 2, questions(), "another state folder may be on another disk")
		time.Sleep(factsOnDisk)
		engine.unseen = true
		require.Equal(t, TransferCopy, plan(state))
		require.Equal(t, 3, questions(), "an old answer is asked for again")
		engine.identity, engine.unseen = "process 2", false
		require.Equal(t, TransferBind, plan(state))
		require.Equal(t, 4, questions(), "another process is asked again")
		left, err := os.ReadDir(state)
		require.NoError(t, err)
		for _, entry := range left {
			require.NotContains(t, entry.Name(), "probe")
		}
	})
}
