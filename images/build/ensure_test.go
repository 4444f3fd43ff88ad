package build

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/imagestest"
	"github.com/evalbox/evalbox/internal/owner"
)

// testDockerfile is what the catalogs in testdata pin.
const testDockerfile = "x"

// options returns options with a root file system of a few bytes, and counts
// how often it is made.
func options(t *testing.T, made *atomic.Int32) Options {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	return Options{
		Dockerfile: testDockerfile,
		Root: func(_ context.Context, b images.Bootstrap, w io.Writer, progress func(string)) error {
			made.Add(1)
			progress("unpacking " + b.Suite)
			_, err := io.WriteString(w, "a root file system")
			return err
		},
	}
}

func TestEnsureMakesOnceAndThenDoesNothing(t *testing.T) {
	cat, eng, made := imagestest.Catalog(t), imagestest.New(t), atomic.Int32{}
	small, _ := cat.Lookup("small")
	opts := options(t, &made)
	var progress bytes.Buffer
	opts.Pull.Progress = &progress

	r, changed, err := Ensure(t.Context(), eng, cat, "", opts)
	require.NoError(t, err)
	assert.True(t, changed)
	assert.Equal(t, "sha256:new", r.ID)
	assert.Equal(t, "a root file system", string(eng.Imported))
	for _, want := range []string{"bootstrap: debian bookworm with 2 packages", "unpacking bookworm", "import: ", "build: " + small.Tag(), "Step 1/1", "done: "} {
		assert.Contains(t, progress.String(), want)
	}
	names, _ := eng.State()
	assert.NotContains(t, names, small.BaseTag())
	assert.Contains(t, names, "sha256:step", "the image stands on it")

	assert.Equal(t, "none", eng.Built.NetworkMode)
	assert.Equal(t, []string{small.Tag()}, eng.Built.Tags)
	assert.Equal(t, small.BaseTag(), *eng.Built.BuildArgs["BASE_IMAGE"])
	assert.Equal(t, small.Recipe(), *eng.Built.BuildArgs["RECIPE"])

	eng.Calls = nil
	again, changed, err := Ensure(t.Context(), eng, cat, "small", opts)
	require.NoError(t, err)
	assert.False(t, changed)
	assert.Equal(t, r, again)
	_, calls := eng.State()
	assert.Equal(t, map[string]int{"inspect": 1}, calls)
	assert.EqualValues(t, 1, made.Load())
}

func TestEnsureForceReplaces(t *testing.T) {
	cat, made := imagestest.Catalog(t), atomic.Int32{}
	small, _ := cat.Lookup("small")
	eng := imagestest.New(t, small.Tag())
	old := "sha256:" + small.Tag()
	opts := options(t, &made)
	opts.Force = true
	r, changed, err := Ensure(t.Context(), eng, cat, "small", opts)
	require.NoError(t, err)
	assert.True(t, changed)
	assert.Equal(t, "sha256:new", r.ID)
	names, _ := eng.State()
	assert.NotContains(t, names, old)
}

func TestEnsureFailureLeavesNothing(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		name, step string
		breakIt    func(*imagestest.Engine, *Options)
	}{
		{"root", "bootstrap", func(_ *imagestest.Engine, o *Options) {
			o.Root = func(_ context.Context, _ images.Bootstrap, w io.Writer, _ func(string)) error {
				_, _ = io.WriteString(w, "half a root file sys")
				return boom
			}
		}},
		{"import refused", "import", func(f *imagestest.Engine, _ *Options) { f.Fail["import"] = boom }},
		{"import refused while the root is being made", "import", func(f *imagestest.Engine, o *Options) {
			f.Fail["import"] = boom
			o.Root = func(ctx context.Context, _ images.Bootstrap, _ io.Writer, _ func(string)) error {
				<-ctx.Done()
				return ctx.Err()
			}
		}},
		{"import fails", "import", func(f *imagestest.Engine, _ *Options) { f.FailLate["import"] = boom }},
		{"build refused", "build", func(f *imagestest.Engine, _ *Options) { f.Fail["build"] = boom }},
		{"build fails", "build", func(f *imagestest.Engine, _ *Options) { f.FailLate["build"] = boom }},
	} {
		t.Run(c.name, func(t *testing.T) {
			cat, eng, made := imagestest.Catalog(t), imagestest.New(t, "python:3.12"), atomic.Int32{}
			opts := options(t, &made)
			c.breakIt(eng, &opts)
			r, changed, err := Ensure(t.Context(), eng, cat, "small", opts)
			assert.Empty(t, r)
			assert.False(t, changed)
			assert.ErrorContains(t, err, "image small: "+c.step+": ")
			assert.ErrorContains(t, err, "boom")
			names, _ := eng.State()
			assert.Equal(t, []string{"python:3.12"}, names)
		})
	}
}

func TestEnsureCanceledLeavesNothing(t *testing.T) {
	for _, step := range []string{"bootstrap", "build"} {
		t.Run(step, func(t *testing.T) {
			cat, eng, made := imagestest.Catalog(t), imagestest.New(t), atomic.Int32{}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			opts := options(t, &made)
			if step == "bootstrap" {
				opts.Root = func(ctx context.Context, _ images.Bootstrap, _ io.Writer, _ func(string)) error {
					cancel()
					<-ctx.Done()
					return ctx.Err()
				}
			} else {
				small, _ := cat.Lookup("small")
				ours := map[string]string{images.LabelRecipe: small.Recipe()}
				// The command ends only when it is killed.
				eng.OnBuild = func(ctx context.Context) error {
					cancel()
					eng.Put("", "sha256:running", imagestest.Image{Parent: "sha256:base"})
					eng.AddContainer(container.Summary{ID: "command", ImageID: "sha256:running", Labels: ours})
					select {
					case id := <-eng.Killed:
						return errors.New(id + " was killed")
					case <-ctx.Done():
						return nil
					}
				}
				// Runs of the same recipe are nobody's to kill here, nor is what has another.
				eng.Put("evalbox/small:1", "sha256:named", imagestest.Image{})
				eng.Put("", "sha256:old", imagestest.Image{})
				eng.AddContainer(container.Summary{ID: "before", ImageID: "sha256:old", Labels: ours})
				eng.AddContainer(container.Summary{ID: "named", ImageID: "sha256:named", Labels: ours})
				eng.AddContainer(container.Summary{ID: "run", ImageID: "sha256:old", Labels: map[string]string{images.LabelRecipe: small.Recipe(), owner.LabelManaged: "true"}})
				eng.AddContainer(container.Summary{ID: "other", ImageID: "sha256:old"})
			}
			_, _, err := Ensure(ctx, eng, cat, "small", opts)
			require.ErrorIs(t, err, context.Canceled)
			assert.ErrorContains(t, err, step)
			names, calls := eng.State()
			if step == "bootstrap" {
				assert.Empty(t, names)
			} else {
				assert.Equal(t, []string{"evalbox/small:1", "sha256:old"}, names)
				assert.NotZero(t, calls["kill command"])
				for _, id := range []string{"before", "named", "run", "other"} {
					assert.Zero(t, calls["kill "+id], id)
				}
				assert.True(t, eng.OutlivedCancel, "cleaning up must outlive the caller's context")
			}
		})
	}
}

func TestEnsureRemovesWhatAKilledProcessLeft(t *testing.T) {
	cat, made := imagestest.Catalog(t), atomic.Int32{}
	small, _ := cat.Lookup("small")
	eng := imagestest.New(t, small.BaseTag())
	eng.Put("", "sha256:left", imagestest.Image{Parent: "sha256:" + small.BaseTag()})
	_, _, err := Ensure(t.Context(), eng, cat, "small", options(t, &made))
	require.NoError(t, err)
	names, _ := eng.State()
	assert.NotContains(t, names, "sha256:left")
}

func TestEnsureConcurrentlyMakesOnce(t *testing.T) {
	cat, eng, made := imagestest.Catalog(t), imagestest.New(t), atomic.Int32{}
	opts := options(t, &made)
	var group sync.WaitGroup
	var changes atomic.Int32
	for range 8 {
		group.Go(func() {
			r, changed, err := Ensure(t.Context(), eng, cat, "small", opts)
			assert.NoError(t, err)
			assert.Equal(t, "sha256:new", r.ID)
			if changed {
				changes.Add(1)
			}
		})
	}
	group.Wait()
	assert.EqualValues(t, 1, made.Load())
	assert.EqualValues(t, 1, changes.Load())
}

func TestEnsureRefuses(t *testing.T) {
	for _, c := range []struct {
		name, image, dockerfile, message, hint string
	}{
		{"unknown", "tiny", testDockerfile, "image tiny: is not in the catalog full.yaml", "it names: big-one, pip, small"},
		{"changed Dockerfile", "small", "y", "Dockerfile.runner has SHA-256", "dockerfile_sha256"},
		{"changed requirements", "pip", testDockerfile, "requirements.lock has SHA-256", "requirements_sha256"},
	} {
		t.Run(c.name, func(t *testing.T) {
			eng, made := imagestest.New(t), atomic.Int32{}
			opts := options(t, &made)
			opts.Dockerfile = c.dockerfile
			_, _, err := Ensure(t.Context(), eng, imagestest.Catalog(t), c.image, opts)
			assert.ErrorContains(t, err, c.message)
			assert.Contains(t, imagestest.HintOf(t, err), c.hint)
			assert.Zero(t, made.Load())
		})
	}
}
