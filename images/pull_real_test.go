package images_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/docker/docker/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/pull"
)

// pullImage pulls without anybody's
// credentials, and returns the progress too.
func pullImage(t *testing.T, eng *client.Client, ref string, change ...func(*pull.Options)) (images.Resolved, bool, string, error) {
	t.Helper()
	var progress bytes.Buffer
	opts := pull.Options{Credentials: pull.DockerCredentials(t.TempDir()), Progress: &progress}
	for _, c := range change {
		c(&opts)
	}
	r, pulled, err := pull.Pull(t.Context(), eng, ref, opts)
	return r, pulled, progress.String(), err
}

// kindOf is the kind of an error of a pull.
func kindOf(err error) pull.Kind {
	if failed, ok := errors.AsType[*pull.Error](err); ok {
		return failed.Kind
	}
	return pull.Unknown
}

func TestEnginePullByDigest(t *testing.T) {
	eng, reg := engine(t), newRegistry(t, false)
	digest := reg.push(t, "team/tools:1.0", t.Name(), here)
	ref := reg.host + "/team/tools:1.0@" + digest
	byDigest := reg.host + "/team/tools@" + digest
	removeAfter(t, eng, byDigest)
	reg.count("")

	r, pulled, progress, err := pullImage(t, eng, ref)
	require.NoError(t, err)
	assert.True(t, pulled)
	assert.Equal(t, byDigest, r.Reference)
	assert.Equal(t, byDigest, r.Digest)
	assert.Equal(t, here, r.Platform)
	assert.Contains(t, progress, "Digest: "+digest)
	assert.NotContains(t, progress, "\x1b", "bars without a terminal")
	found, err := eng.ImageInspect(t.Context(), r.ID)
	require.NoError(t, err)
	assert.NotContains(t, found.RepoTags, reg.host+"/team/tools:1.0", "a pull by digest sets no tag")
	assert.Positive(t, reg.count("GET /v2/team/tools/blobs/"))

	again, pulled, _, err := pullImage(t, eng, ref)
	require.NoError(t, err)
	assert.False(t, pulled)
	assert.Equal(t, r, again)
	assert.Zero(t, reg.count(""), "what is there is not asked for")
}

func TestEnginePullMovedTag(t *testing.T) {
	eng, reg := engine(t), newRegistry(t, false)
	old := reg.push(t, "team/tools:1.0", t.Name()+" old", here)
	now := reg.push(t, "team/tools:1.0", t.Name()+" now", here)
	ref, byDigest := reg.host+"/team/tools:1.0@"+old, reg.host+"/team/tools@"+old
	removeAfter(t, eng, byDigest)

	_, _, _, err := pullImage(t, eng, ref)
	require.Equal(t, pull.TagMoved, kindOf(err), "%v", err)
	assert.ErrorContains(t, err, old)
	assert.ErrorContains(t, err, now)
	absent(t, eng, byDigest)

	_, pulled, _, err := pullImage(t, eng, ref, func(o *pull.Options) { o.IgnoreMovedTag = true })
	require.NoError(t, err)
	assert.True(t, pulled)
}

func TestEnginePullTagThatIsGone(t *testing.T) {
	eng, reg := engine(t), newRegistry(t, false)
	digest := reg.push(t, "team/tools:1.0", t.Name(), here)
	removeAfter(t, eng, reg.host+"/team/tools@"+digest)
	_, pulled, progress, err := pullImage(t, eng, reg.host+"/team/tools:0.9@"+digest)
	require.NoError(t, err)
	assert.True(t, pulled)
	assert.Contains(t, progress, "the registry has no such repository or tag 0.9")
}

func TestEnginePullMissingDigest(t *testing.T) {
	eng, reg := engine(t), newRegistry(t, false)
	reg.push(t, "team/tools:1.0", t.Name(), here)
	for _, name := range []string{"team/tools", "team/nothing"} {
		ref := reg.host + "/" + name + "@sha256:" + strings.Repeat("0", 64)
		_, _, _, err := pullImage(t, eng, ref)
		require.Equal(t, pull.DigestMissing, kindOf(err), "%v", err)
		assert.ErrorContains(t, err, ref)
	}
}

func TestEnginePullWrongPlatform(t *testing.T) {
	eng, reg := engine(t), newRegistry(t, false)
	digest := reg.push(t, "team/tools:1.0", t.Name(), elsewhere)
	ref := reg.host + "/team/tools@" + digest
	removeAfter(t, eng, ref)
	_, _, _, err := pullImage(t, eng, ref)
	require.Equal(t, pull.WrongPlatform, kindOf(err), "%v", err)
	t.Log(err)
	absent(t, eng, ref)

	// Wanted it is, and then it stays although somebody else does not want it.
	_, _, _, err = pullImage(t, eng, ref, func(o *pull.Options) { o.Platform = elsewhere })
	require.NoError(t, err)
	_, _, _, err = pullImage(t, eng, ref)
	require.Equal(t, pull.WrongPlatform, kindOf(err), "%v", err)
	_, err = eng.ImageInspect(t.Context(), ref)
	require.NoError(t, err)
}

func TestEnginePullRegistryDown(t *testing.T) {
	eng := engine(t)
	ref := freeAddress(t) + "/team/tools:1.0@sha256:" + strings.Repeat("0", 64)
	_, _, progress, err := pullImage(t, eng, ref)
	require.Equal(t, pull.RegistryUnavailable, kindOf(err), "%v", err)
	t.Log(err)
	assert.Contains(t, progress, "the tag 1.0 cannot be compared")
}

func TestEnginePullInterrupted(t *testing.T) {
	t.Parallel()
	eng, reg := engine(t), newRegistry(t, false)
	digest := reg.push(t, "team/tools:1.0", t.Name(), here)
	ref, byDigest := reg.host+"/team/tools:1.0@"+digest, reg.host+"/team/tools@"+digest
	removeAfter(t, eng, byDigest)
	blobs := reg.blobs(t, "team/tools", digest)
	// cut breaks the connection in the middle of a blob, at most so often.
	cut := func(blob string, times int32) {
		var left atomic.Int32
		left.Store(times)
		reg.spoilWith(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/blobs/"+blob) || left.Add(-1) < 0 {
				return false
			}
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte("{"))
			panic(http.ErrAbortHandler)
		})
	}

	cut(blobs[0], math.MaxInt32)
	_, _, _, err := pullImage(t, eng, ref)
	require.Equal(t, pull.Interrupted, kindOf(err), "%v", err)
	absent(t, eng, byDigest)

	// The next try works, and the engine itself tries a layer again.
	cut(blobs[1], 1)
	_, pulled, _, err := pullImage(t, eng, ref)
	require.NoError(t, err)
	assert.True(t, pulled)
	found, err := eng.ImageInspect(t.Context(), byDigest)
	require.NoError(t, err)
	assert.Len(t, found.RootFS.Layers, 1)
}

// A registry that serves other bytes than the digest says is found out.
func TestEnginePullTampered(t *testing.T) {
	eng, reg := engine(t), newRegistry(t, false)
	digest := reg.push(t, "team/tools:1.0", t.Name(), here)
	other := reg.push(t, "team/tools:2.0", t.Name()+" other", here)
	ref := reg.host + "/team/tools@" + digest
	removeAfter(t, eng, ref)
	reg.spoilWith(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/manifests/"+digest) {
			return false
		}
		http.Redirect(w, r, strings.Replace(r.URL.Path, digest, other, 1), http.StatusTemporaryRedirect)
		return true
	})
	_, _, _, err := pullImage(t, eng, ref)
	require.Equal(t, pull.Interrupted, kindOf(err), "%v", err)
	t.Log(err)
	absent(t, eng, ref)
}

// A pull that was canceled ends at once, and does not stand in the way of the next.
func TestEnginePullCanceledInTheMiddle(t *testing.T) {
	eng, reg := engine(t), newRegistry(t, false)
	digest := reg.push(t, "team/tools:1.0", t.Name(), here)
	ref := reg.host + "/team/tools@" + digest
	removeAfter(t, eng, ref)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	release := make(chan struct{})
	reg.spoilWith(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") {
			cancel()
			<-release
		}
		return false
	})
	_, _, err := pull.Pull(ctx, eng, ref, pull.Options{Credentials: pull.DockerCredentials(t.TempDir())})
	close(release)
	require.ErrorIs(t, err, context.Canceled)

	_, _, _, err = pullImage(t, eng, ref)
	require.NoError(t, err)
}

// TestEnginePullShared: whoever needs the same digest at the same time waits for one
// pull, in this process and in others.
func TestEnginePullShared(t *testing.T) {
	if ref := os.Getenv("EVALBOX_TEST_PULL"); ref != "" { // one of the others
		_, _, err := pull.Pull(t.Context(), engine(t), ref, pull.Options{Credentials: pull.DockerCredentials(t.TempDir())})
		require.NoError(t, err)
		return
	}
	eng, reg := engine(t), newRegistry(t, false)
	digest := reg.push(t, "team/tools:1.0", t.Name(), here)
	ref := reg.host + "/team/tools:1.0@" + digest
	removeAfter(t, eng, reg.host+"/team/tools@"+digest)

	// What one pull asks for.
	alone := reg.push(t, "team/alone:1.0", t.Name()+" alone", here)
	removeAfter(t, eng, reg.host+"/team/alone@"+alone)
	reg.count("")
	_, _, _, err := pullImage(t, eng, reg.host+"/team/alone:1.0@"+alone)
	require.NoError(t, err)
	once := reg.count("GET /v2/team/alone/manifests/sha256:")

	const others, ours = 2, 3
	var group sync.WaitGroup
	var pulls atomic.Int32
	for range ours {
		group.Go(func() {
			_, pulled, _, err := pullImage(t, eng, ref)
			assert.NoError(t, err)
			if pulled {
				pulls.Add(1)
			}
		})
	}
	for range others {
		group.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestEnginePullShared$")
			cmd.Env = append(os.Environ(), "EVALBOX_TEST_PULL="+ref)
			out, err := cmd.CombinedOutput()
			assert.NoError(t, err, "%s", out)
		})
	}
	group.Wait()
	assert.LessOrEqual(t, pulls.Load(), int32(1))
	assert.Equal(t, once, reg.count("GET /v2/team/tools/manifests/sha256:"), "each pull asks for the manifest")
}

func TestEnginePullCredentials(t *testing.T) {
	eng, reg := engine(t), newRegistry(t, true)
	digest := reg.push(t, "team/tools:1.0", t.Name(), here)
	ref := reg.host + "/team/tools:1.0@" + digest
	removeAfter(t, eng, reg.host+"/team/tools@"+digest)

	for _, c := range []struct{ name, password string }{
		{"none", ""}, {"wrong", "hunter2hunter2"}, {"right", registryPassword}, // the last leaves the image
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, password := t.TempDir(), c.password
			if password != "" {
				config, err := json.Marshal(map[string]any{"auths": map[string]any{
					reg.host: map[string]string{"username": registryUser, "password": password},
				}})
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600))
			}
			_, pulled, progress, err := pullImage(t, eng, ref, func(o *pull.Options) {
				o.Credentials = pull.DockerCredentials(dir)
			})
			if password == registryPassword {
				require.NoError(t, err)
				assert.True(t, pulled)
			} else {
				t.Log(err)
				require.Equal(t, pull.CredentialsRefused, kindOf(err), "%v", err)
				assert.NotContains(t, err.Error(), "hunter2")
			}
			assert.NotContains(t, progress, "hunter2")
			assert.NotContains(t, progress, registryPassword)
		})
	}
}
