package sandbox

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// questions counts the calls of the engine's Info.
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
			info, err := r.facts.get(t.Context(), fake)
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
		require.Equal(t, 2, *asked, "a new process is asked again")
		time.Sleep(factsOnDisk)
		ask()
		require.Equal(t, 3, *asked, "expired facts are queried again")
		require.NoError(t, os.WriteFile(factsPath(fake.Own), []byte("{"), 0o600))
		ask()
		require.Equal(t, 4, *asked, "a damaged file is ignored")
		fake.Own = ""
		ask()
		ask()
		require.Equal(t, 6, *asked, "an engine without an identity is never cached")
	})
}

// TestNobodyWaitsForTheFactsLongerThanItsContext: callers share one question to an engine that hangs. It
// goes on without the caller who asked first, and an error is not remembered.
func TestNobodyWaitsForTheFactsLongerThanItsContext(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		fake := enginetest.NewFake(nil)
		answers := make(chan error)
		asked := 0
		fake.Hook = func(string, string) error {
			asked++
			return <-answers
		}
		r, err := New(WithEngine(fake), WithStateDir(t.TempDir()))
		require.NoError(t, err)
		get := func() (end func(), result chan error) {
			ctx, cancel := context.WithCancel(t.Context())
			result = make(chan error, 1)
			go func() {
				_, err := r.facts.get(ctx, fake)
				result <- err
			}()
			synctest.Wait()
			return cancel, result
		}
		end1, first := get()
		end2, second := get()
		end3, third := get()
		defer end3()
		end2()
		require.ErrorIs(t, <-second, context.Canceled)
		end1()
		require.ErrorIs(t, <-first, context.Canceled)
		synctest.Wait()
		require.Empty(t, third)
		require.Equal(t, spec.TransferCopy, r.facts.transfer("", engine.Info{}), "what is known is not held up")
		answers <- engine.ErrUnavailable
		require.ErrorIs(t, <-third, engine.ErrUnavailable)
		require.Equal(t, 1, asked)

		end4, fourth := get()
		defer end4()
		answers <- nil
		require.NoError(t, <-fourth)
		require.Equal(t, 2, asked)
	})
}

func TestFactsAreOnlyASaving(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "/dev/null")
	fake := enginetest.NewFake(nil)
	r, err := New(WithEngine(fake), WithStateDir(t.TempDir()))
	require.NoError(t, err)
	info, err := r.facts.get(t.Context(), fake)
	require.NoError(t, err)
	require.Equal(t, fake.Facts, info)
}

// TestEngineWithOtherFilesIsRemembered: a run must not pay for a container that cannot
// mount its files if an earlier run has found that out.
func TestEngineWithOtherFilesIsRemembered(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		fake := enginetest.NewFake(nil)
		fake.Own, fake.Unseen = "process 1", true
		// run returns the number of containers that were requested, and the transfer that
		// was used.
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
		check(2, spec.TransferCopy, "the first run finds out")
		check(1, spec.TransferCopy, "from disk")
		fake.Unseen = false
		check(1, spec.TransferCopy, "while it is the same process")
		fake.Own = "process 2"
		check(1, spec.TransferBind, "another process may have other files")
		fake.Unseen = true
		check(2, spec.TransferCopy, "sharing is verified in every run")
		fake.Unseen = false
		time.Sleep(factsOnDisk)
		check(1, spec.TransferBind, "the facts expire")
	})
}
