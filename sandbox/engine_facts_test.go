package sandbox

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
)

// questions counts how often an engine is asked what it is.
func questions(fake *enginetest.Fake) *int {
	asked := 0
	fake.Hook = func(call, _ string) error {
		if call == "Info" {
			asked++
		}
		return nil
	}
	return &asked
}

func TestEngineFactsAreRememberedAsLongAsItIsTheSameProcess(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		fake := enginetest.NewFake(nil)
		asked := questions(fake)
		ask := func() engine.Info {
			r, err := New(WithEngine(fake), WithStateDir(t.TempDir()))
			require.NoError(t, err)
			info, err := r.engineFacts(t.Context())
			require.NoError(t, err)
			return info
		}
		fake.Own = "process 1"
		first := ask()
		require.Equal(t, fake.Facts, first)
		require.Equal(t, first, ask(), "from disk")
		require.Equal(t, 1, *asked)

		fake.Own = "process 2"
		ask()
		require.Equal(t, 2, *asked, "another process is asked again")
		time.Sleep(factsOnDisk)
		ask()
		require.Equal(t, 3, *asked, "old facts are asked for again")
		require.NoError(t, os.WriteFile(factsPath(fake.Own), []byte("{"), 0o600))
		ask()
		require.Equal(t, 4, *asked, "a damaged file is asked over")
		fake.Own = ""
		ask()
		ask()
		require.Equal(t, 6, *asked, "an engine that cannot be told is never remembered")
	})
}

func TestFactsAreOnlyASaving(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "/dev/null")
	fake := enginetest.NewFake(nil)
	r, err := New(WithEngine(fake), WithStateDir(t.TempDir()))
	require.NoError(t, err)
	info, err := r.engineFacts(t.Context())
	require.NoError(t, err)
	require.Equal(t, fake.Facts, info)
}

// TestEngineWithOtherFilesIsRemembered: a run is not to pay for a container that cannot
// be had when an earlier one found that out.
func TestEngineWithOtherFilesIsRemembered(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		fake := enginetest.NewFake(nil)
		fake.Own, fake.Unseen = "process 1", true
		// run is how often a container was asked for, and how the files came there.
		run := func() (int, string) {
			before := len(fake.Created)
			r, err := New(WithEngine(fake), WithStateDir(t.TempDir()))
			require.NoError(t, err)
			res, err := r.Run(t.Context(), command("true"))
			require.NoError(t, err)
			require.Empty(t, fake.Left())
			return len(fake.Created) - before, res.Enforced.Transfer
		}
		check := func(wantTries int, wantWay, why string) {
			t.Helper()
			tries, way := run()
			require.Equal(t, wantTries, tries, why)
			require.Equal(t, wantWay, way, why)
		}
		check(2, TransferCopy, "it is found out")
		check(1, TransferCopy, "from disk")
		fake.Unseen = false
		check(1, TransferCopy, "as long as it is the same process")
		fake.Own = "process 2"
		check(1, TransferBind, "another process may have other files")
		fake.Unseen = true
		check(2, TransferCopy, "nothing good is taken for granted")
		fake.Unseen = false
		time.Sleep(factsOnDisk)
		check(1, TransferBind, "it is asked over after a while")
	})
}
