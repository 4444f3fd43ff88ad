package sandbox

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
)

const lockedID = "sha256:" + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// lockOf holds one image.
func lockOf(t *testing.T, name, id string) lock.Lock {
	t.Helper()
	return lock.Lock{Source: "images.lock"}.With(lock.Entry{Name: name, ID: id, Platform: "linux/amd64"})
}

// newLockRunner is a runner on an engine that has one image, as a name of the catalog.
func newLockRunner(t *testing.T, lock *lock.Lock) (*Runner, *enginetest.Fake) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	fake := enginetest.NewFake(nil)
	fake.Image = func(_ string, image *images.Resolved) {
		*image = images.Resolved{Name: "debian", CatalogName: true, ID: lockedID, Platform: "linux/amd64"}
	}
	var options []Option
	if lock != nil {
		options = append(options, WithLock(*lock))
	}
	return newFakeRunner(t, fake, options...), fake
}

func TestRunHoldsToTheLock(t *testing.T) {
	good, other, empty := lockOf(t, "debian", lockedID), lockOf(t, "debian", strings.Replace(lockedID, "0", "f", 1)), lock.Lock{Source: "images.lock"}
	for name, c := range map[string]struct {
		lock    *lock.Lock
		allow   bool
		refused bool
		locked  bool
		warning string
	}{
		"no lock":                  {nil, false, false, false, ""},
		"no lock, allowed":         {nil, true, false, false, ""},
		"locked":                   {&good, false, false, true, ""},
		"locked, allowed":          {&good, true, false, true, ""},
		"another":                  {&other, false, true, false, ""},
		"another, allowed":         {&other, true, false, false, "the engine has " + lockedID + ", the lock images.lock holds sha256:f123"},
		"an empty lock":            {&empty, false, true, false, ""},
		"an empty lock, but asked": {&empty, true, false, false, "has no entry of this name"},
	} {
		t.Run(name, func(t *testing.T) {
			r, fake := newLockRunner(t, c.lock)
			req := command("true")
			req.AllowUnlocked = c.allow
			res, err := r.Run(t.Context(), req)
			if c.refused {
				require.ErrorIs(t, err, lock.ErrUnlocked)
				require.Nil(t, res)
				require.Empty(t, fake.Created, "it is refused before anything is made")
				records, err := r.Store().List()
				require.NoError(t, err)
				require.Empty(t, records)
				_, err = r.Plan(t.Context(), req)
				require.ErrorIs(t, err, lock.ErrUnlocked)
				return
			}
			require.NoError(t, err)
			require.Equal(t, result.StatusExited, res.Status)
			require.Equal(t, c.locked, res.Image.Locked)
			require.Equal(t, c.locked, fake.Created[0].Class.Image.Locked)
			require.Contains(t, res.Warnings, "a warning of the engine")
			if c.warning == "" {
				require.Len(t, res.Warnings, 1)
				return
			}
			require.Len(t, res.Warnings, 2)
			require.Contains(t, strings.Join(res.Warnings, "\n"), c.warning)
		})
	}
}
