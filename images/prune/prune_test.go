package prune

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/imagestest"
	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/images/store"
	"github.com/evalbox/evalbox/internal/owner"
)

var idOf = imagestest.IDOf

func TestPlan(t *testing.T) {
	now := time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)
	ago := func(days int) time.Time { return now.AddDate(0, 0, -days) }
	all := func() []Image {
		return []Image{
			{ID: "today", SizeBytes: 10, LastUse: now},
			{ID: "old", SizeBytes: 10, LastUse: ago(9)},
			{ID: "older", SizeBytes: 20, LastUse: ago(10)},
			{ID: "locked", SizeBytes: 10, LastUse: ago(20), Reason: keptLocked},
			{ID: "yesterday", SizeBytes: 10, LastUse: ago(1)},
		}
	}
	for name, c := range map[string]struct {
		keep    int64
		removed []string
	}{
		"all fit":           {60, nil},
		"one too many":      {59, []string{"older"}},
		"two":               {39, []string{"older", "old"}},
		"nothing may stay":  {0, []string{"older", "old", "yesterday"}},
		"exactly those fit": {30, []string{"older", "old"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := plan(all(), Options{KeepBytes: c.keep, UnusedFor: time.Hour, Now: now})
			var removed []string
			for _, img := range r.Removed {
				removed = append(removed, img.ID)
			}
			assert.Equal(t, c.removed, removed)
			assert.Len(t, r.Kept, 5-len(removed))
			assert.EqualValues(t, 60, r.RemovedBytes+r.KeptBytes)
			for _, img := range r.Kept {
				assert.NotEmpty(t, img.Reason)
			}
		})
	}
	assert.NotNil(t, plan(nil, Options{}).Removed)
	assert.NotNil(t, plan(nil, Options{}).Kept)
}

// pruneHost holds a locked image, one that a container uses, two free ones, and one
// that somebody made on ours.
func pruneHost(t *testing.T) (*imagestest.Engine, lock.Lock, Options) {
	t.Helper()
	h, cat, _ := imagestest.Small(t, "a 1")
	r, err := images.Resolve(t.Context(), store.Docker{APIClient: h}, cat, "small")
	require.NoError(t, err)
	e := lock.Entry{Name: r.Name, ID: r.ID, Content: r.Content, Platform: r.Platform}
	h.Put("evalbox/used:1", idOf("used"), imagestest.ImageOf(t, "used 1"))
	h.Put("evalbox/free:1", idOf("free"), imagestest.ImageOf(t, "free 1"))
	h.Put("", idOf("nameless"), imagestest.ImageOf(t, "nameless 1"))
	h.Put("mine:1", idOf("mine"), imagestest.ImageOf(t, "mine 1"))
	h.Put("evalbox/free:2", idOf("mine"), imagestest.ImageOf(t, "mine 1"))
	h.Containers["c"] = container.Summary{ID: "c", ImageID: idOf("used")}
	return h, lock.Lock{}.With(e), Options{UsageDir: t.TempDir(), Now: time.Now(), UnusedFor: time.Hour}
}

func TestPrune(t *testing.T) {
	h, l, opts := pruneHost(t)
	require.NoError(t, images.MarkUsed(opts.UsageDir, idOf("free"), opts.Now))

	opts.DryRun = true
	r, err := Images(t.Context(), h, []lock.Lock{{}, l}, opts)
	require.NoError(t, err)
	assert.Len(t, r.Removed, 1)
	assert.NotContains(t, h.Calls, "remove image")

	opts.DryRun = false
	r, err = Images(t.Context(), h, []lock.Lock{{}, l}, opts)
	require.NoError(t, err)
	require.Len(t, r.Removed, 1)
	assert.Equal(t, idOf("nameless"), r.Removed[0].ID)
	var kept []string
	for _, img := range r.Kept {
		kept = append(kept, img.refs()[0]+": "+img.Reason)
	}
	small, _ := imagestest.Catalog(t).Lookup("small")
	assert.ElementsMatch(t, []string{"evalbox/free:1: recently used", small.Tag() + ": locked", "evalbox/used:1: a container uses it"}, kept)
	assert.EqualValues(t, 3000, r.KeptBytes)
	assert.NotContains(t, h.Images, idOf("nameless"))
	assert.Contains(t, h.Images, idOf("mine"))

	opts.UnusedFor = 0
	r, err = Images(t.Context(), h, []lock.Lock{{}, l}, opts)
	require.NoError(t, err)
	require.Len(t, r.Removed, 1)
	assert.Equal(t, []string{"evalbox/free:1"}, r.Removed[0].Tags)
	assert.NotContains(t, h.Images, idOf("free"))
}

// A name that is another image's by the time of the removal stays.
func TestPruneLooksAgain(t *testing.T) {
	h, _, _ := pruneHost(t)
	require.NoError(t, removeImage(t.Context(), store.Docker{APIClient: h}, Image{ID: idOf("was"), Tags: []string{"evalbox/free:1", "evalbox/gone:1"}}))
	assert.Contains(t, h.Tags, "evalbox/free:1")
	assert.NotContains(t, h.Calls, "remove image")
}

func TestPruneReportsWhatFailed(t *testing.T) {
	h, l, opts := pruneHost(t)
	h.Fail["remove image"] = errors.New("conflict")
	opts.UnusedFor = 0
	r, err := Images(t.Context(), h, []lock.Lock{{}, l}, opts)
	require.ErrorContains(t, err, "image evalbox/free:1: conflict")
	assert.Empty(t, r.Removed)
	assert.Len(t, r.Kept, 4)
	assert.EqualValues(t, 4000, r.KeptBytes)
}

// Containers that a killed process read images through are removed, and protect no
// image; those of a living one are not.
func TestPruneSweepsReaders(t *testing.T) {
	h, l, opts := pruneHost(t)
	dead := owner.This()
	dead.PID = 1 << 30 // above any kernel's maximum
	reader := func(id string, age time.Duration, state container.ContainerState, by string) {
		h.Containers[id] = container.Summary{
			ID: id, State: state, ImageID: idOf("free"), Created: opts.Now.Add(-age).Unix(),
			Labels: map[string]string{store.LabelReader: "x", owner.LabelOwner: by},
		}
	}
	reader("old", 2*time.Hour, container.StateCreated, "")
	reader("dead", time.Minute, container.StateCreated, dead.String())
	opts.KeepBytes, opts.DryRun, opts.UnusedFor = 0, true, 0
	r, err := Images(t.Context(), h, []lock.Lock{{}, l}, opts)
	require.NoError(t, err)
	assert.Len(t, r.Removed, 2, "free and nameless")
	assert.Contains(t, h.Containers, "dead")

	reader("new", time.Minute, container.StateCreated, "")
	reader("living", 2*time.Hour, container.StateCreated, owner.This().String())
	reader("running", 2*time.Hour, container.StateRunning, dead.String())
	opts.DryRun = false
	r, err = Images(t.Context(), h, []lock.Lock{{}, l}, opts)
	require.NoError(t, err)
	assert.Len(t, r.Removed, 1, "nameless; free is read by others")
	assert.NotContains(t, h.Containers, "old")
	assert.NotContains(t, h.Containers, "dead")
	for _, id := range []string{"new", "living", "running", "c"} {
		assert.Contains(t, h.Containers, id)
	}
}

// An image that others stand on cannot be removed, and a dry run says so.
func TestPruneKeepsWhatOthersStandOn(t *testing.T) {
	h, l, opts := pruneHost(t)
	child := imagestest.ImageOf(t, "child 1")
	child.Parent = idOf("free")
	h.Put("theirs:1", idOf("child"), child)
	opts.UnusedFor = 0
	for _, opts.DryRun = range []bool{true, false} {
		r, err := Images(t.Context(), h, []lock.Lock{l}, opts)
		require.NoError(t, err)
		require.Len(t, r.Removed, 1)
		assert.Equal(t, idOf("nameless"), r.Removed[0].ID)
		assert.Contains(t, r.Kept, Image{
			ID: idOf("free"), Tags: []string{"evalbox/free:1"}, SizeBytes: 1000, LastUse: time.Unix(0, 0),
			Reason: keptBase, content: r.Kept[slices.IndexFunc(r.Kept, func(p Image) bool { return p.ID == idOf("free") })].content,
		})
	}
}

// An image without a name that is the same as the locked one goes, but the only one
// that the lock holds stays.
func TestPruneRemovesDoublesOfTheLocked(t *testing.T) {
	h, l, opts := pruneHost(t)
	opts.UnusedFor = 0
	h.Put("", idOf("double"), imagestest.ImageOf(t, "a 1"))
	r, err := Images(t.Context(), h, []lock.Lock{l}, opts)
	require.NoError(t, err)
	assert.Contains(t, h.Images, idOf("small"))
	assert.NotContains(t, h.Images, idOf("double"))
	assert.Len(t, r.Removed, 3)

	h.Put("", idOf("double"), imagestest.ImageOf(t, "a 1"))
	small, _ := imagestest.Catalog(t).Lookup("small")
	delete(h.Tags, small.Tag())
	delete(h.Images, idOf("small"))
	_, err = Images(t.Context(), h, []lock.Lock{l}, opts)
	require.NoError(t, err)
	assert.Contains(t, h.Images, idOf("double"))
}

// What a killed build has left goes with its temporary base, but not at once: the
// build may be under way.
func TestPruneRemovesWhatAKilledBuildLeft(t *testing.T) {
	h, l, opts := pruneHost(t)
	h.Put("evalbox-base/small:1", idOf("base"), imagestest.ImageOf(t, "base 1"))
	step, last := imagestest.ImageOf(t, "step 1"), imagestest.ImageOf(t, "last 1")
	step.Parent, last.Parent = idOf("base"), idOf("step")
	h.Put("", idOf("step"), step)
	h.Put("", idOf("last"), last)

	opts.Now = time.Unix(0, 0).Add(time.Minute)
	_, err := Images(t.Context(), h, []lock.Lock{l}, opts)
	require.NoError(t, err)
	assert.Contains(t, h.Images, idOf("last"), "made a minute ago")

	opts.UnusedFor = 0
	r, err := Images(t.Context(), h, []lock.Lock{l}, opts)
	require.NoError(t, err)
	assert.Len(t, r.Removed, 3, "the build, free and nameless")
	for _, id := range []string{"base", "step", "last"} {
		assert.NotContains(t, h.Images, idOf(id))
	}
}

func TestIsOurs(t *testing.T) {
	for _, c := range []struct {
		tags, digests []string
		want          bool
	}{
		{nil, nil, true},
		{[]string{"<none>:<none>"}, []string{"<none>@<none>"}, true},
		{[]string{"evalbox/debian:1"}, nil, true},
		{[]string{"evalbox/debian:1"}, []string{"evalbox/debian@sha256:0"}, true},
		{[]string{"evalbox/debian:1", "mine:1"}, nil, false},
		{[]string{"evalboxer/x:1"}, nil, false},
		{nil, []string{"registry.example/mine@sha256:0"}, false},
		{[]string{"<none>:<none>"}, []string{"registry.example/mine@sha256:0"}, false},
	} {
		assert.Equal(t, c.want, onlyOwnNames(image.Summary{RepoTags: c.tags, RepoDigests: c.digests}), c)
	}
}
