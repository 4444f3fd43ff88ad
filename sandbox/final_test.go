//go:build linux

package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
)

// finalRequest runs with a ./final of the caller's.
func finalRequest(id, final string) Request {
	req := command("train")
	req.ID, req.Final = id, final
	return req
}

// TestForeignContentOfFinalIsNeverDeleted names a directory with somebody's work in
// it: a typing mistake must not cost more than a rename.
func TestForeignContentOfFinalIsNeverDeleted(t *testing.T) {
	final := filepath.Join(t.TempDir(), "final")
	require.NoError(t, os.MkdirAll(filepath.Join(final, "thesis"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(final, "thesis", "chapter1.tex"), []byte("years"), 0o644))
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		left, err := os.ReadDir(p.Final(""))
		if err != nil || len(left) > 0 {
			return 1
		}
		if os.WriteFile(p.Final("out.csv"), []byte("1\n"), 0o644) != nil {
			return 2
		}
		return 0
	})
	r := newFakeRunner(t, fake)
	res, err := r.Run(t.Context(), finalRequest("r1", final))
	require.NoError(t, err)
	require.Equal(t, 0, res.ExitCode, "final is empty at the start (EX-002)")
	text, err := os.ReadFile(filepath.Join(final+".before-r1", "thesis", "chapter1.tex"))
	require.NoError(t, err)
	require.Equal(t, "years", string(text))
	require.Contains(t, strings.Join(res.Warnings, "\n"), "they are now in "+final+".before-r1")

	// What that run left is nobody's work but its own.
	res, err = r.Run(t.Context(), finalRequest("r2", final))
	require.NoError(t, err)
	require.Equal(t, 0, res.ExitCode)
	require.NoDirExists(t, final+".before-r2")
	require.NotContains(t, strings.Join(res.Warnings, "\n"), "before")

	// A file that was added since is.
	require.NoError(t, os.WriteFile(filepath.Join(final, "notes.txt"), []byte("mine"), 0o644))
	_, err = r.Run(t.Context(), finalRequest("r3", final))
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(final+".before-r3", "notes.txt"))

	// And so is everything once the record is gone that could tell.
	require.NoError(t, r.Store().Remove("r3"))
	_, err = r.Run(t.Context(), finalRequest("r4", final))
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(final+".before-r4", "out.csv"))
}

func TestFailedStartPutsFinalBack(t *testing.T) {
	final := filepath.Join(t.TempDir(), "final")
	require.NoError(t, os.Mkdir(final, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(final, "precious"), nil, 0o644))
	fake := enginetest.NewFake(nil)
	fake.Fail.Start = errors.New("no such runtime")
	r := newFakeRunner(t, fake)
	_, err := r.Run(t.Context(), finalRequest("r1", final))
	require.ErrorIs(t, err, fake.Fail.Start)
	require.FileExists(t, filepath.Join(final, "precious"))
	require.NoDirExists(t, final+".before-r1")
}

// TestTakenNameIsLeftAlone is about a run of the same ID in another state directory:
// its container must survive our refusal.
func TestTakenNameIsLeftAlone(t *testing.T) {
	fake := enginetest.NewFake(nil)
	fake.Listed = []engine.Found{{ID: "other", Name: "evalbox-r1", Running: true}}
	r := newFakeRunner(t, fake)
	res, err := r.Run(t.Context(), command("true"))
	require.ErrorIs(t, err, ErrNameTaken)
	require.Nil(t, res)
	require.Empty(t, fake.Removed)
	require.Empty(t, leftBehind(t, r, fake))
}

func TestOwnerThatCannotBeSeenCountsAsAliveUntilTheDeadline(t *testing.T) {
	elsewhere := owner.Owner{Boot: owner.BootID(), Namespace: "another", PID: 1, Start: "1"}.String()
	now := time.Now()
	require.Equal(t, record.Running, record.Journal{Owner: elsewhere, Deadline: now.Add(time.Second)}.State(now))
	require.Equal(t, record.Lost, record.Journal{Owner: elsewhere, Deadline: now.Add(-time.Second)}.State(now))
	require.Equal(t, record.Running, record.Journal{Owner: "nonsense", Deadline: now.Add(time.Hour)}.State(now), "it is not known")
	require.Equal(t, record.Lost, record.Journal{Owner: "nonsense", Deadline: now.Add(-time.Hour)}.State(now))
	require.Equal(t, record.Lost, record.Journal{Deadline: now.Add(time.Hour)}.State(now), "it gave the run up")
}
