package sandbox

import (
	"context"
	"os"
	"path/filepath"
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
	synctest.Test(t, func(t *testing.T) {
		engine := &identifiedEngine{fakeEngine: newFakeEngine(nil), identity: "process 1"}
		state := filepath.Join(t.TempDir(), "state")
		require.NoError(t, os.Mkdir(state, 0o700))
		ask := func() EngineInfo {
			r, err := New(WithEngine(engine), WithStateDir(state))
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
		require.NoError(t, os.WriteFile(filepath.Join(state, factsFile), []byte("{"), 0o600))
		ask()
		require.Equal(t, 4, engine.asked, "a damaged file is asked over")
		engine.identity = ""
		ask()
		ask()
		require.Equal(t, 6, engine.asked, "an engine that cannot be told is never remembered")
	})
}

func TestFactsAreNotWrittenWithoutAStateFolder(t *testing.T) {
	engine := &identifiedEngine{fakeEngine: newFakeEngine(nil), identity: "process 1"}
	r, err := New(WithEngine(engine), WithStateDir(filepath.Join(t.TempDir(), "state")))
	require.NoError(t, err)
	_, err = r.engineFacts(t.Context())
	require.NoError(t, err)
	require.NoDirExists(t, r.Store().Dir())
}
