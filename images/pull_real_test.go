package images_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images"
)

// pull pulls with a lock folder of the test's own and without anybody's
// credentials, and returns the progress too.
func pull(t *testing.T, eng *client.Client, ref string, change ...func(*images.PullOptions)) (images.Resolved, bool, string, error) {
	t.Helper()
	var progress bytes.Buffer
	opts := images.PullOptions{LockDir: t.TempDir(), Credentials: images.DockerCredentials(t.TempDir()), Progress: &progress}
	for _, c := range change {
		c(&opts)
	}
	r, pulled, err := images.Pull(t.Context(), eng, ref, opts)
	return r, pulled, progress.String(), err
}

func TestPullByDigest(t *testing.T) {
	eng, reg := engine(t), newRegistry(t, false)
	digest := reg.push(t, "team/tools:1.0", t.Name(), here)
	ref := reg.host + "/team/tools:1.0@" + digest
	byDigest := reg.host + "/team/tools@" + digest
	removeAfter(t, eng, byDigest)
	reg.count("")

	r, pulled, progress, err := pull(t, eng, ref)
	require.NoError(t, err)
	assert.True(t, pulled)
	assert.Equal(t, byDigest, r.Reference)
	assert.Equal(t, byDigest, r.Digest)
	assert.Equal(t, here, r.Platform)
	assert.Contains(t, progress, "Digest: "+digest)
	assert.NotContains(t, progress, "\x1b", "bars without a terminal")
	found, err := eng.ImageInspect(t.Context(), r.ID)
	require.NoError(t, err)
	assert.Empty(t, found.RepoTags, "a tag would claim to be the registry's")
	assert.Positive(t, reg.count("GET /v2/team/tools/blobs/"))

	again, pulled, _, err := pull(t, eng, ref)
	require.NoError(t, err)
	assert.False(t, pulled)
	assert.Equal(t, r, again)
	assert.Zero(t, reg.count(""), "what is there is not asked for")
}

func TestPullMovedTag(t *testing.T) {
	eng, reg := engine(t), newRegistry(t, false)
	old := reg.push(t, "team/tools:1.0", t.Name()+" old", here)
	now := reg.push(t, "team/tools:1.0", t.Name()+" now", here)
	ref, byDigest := reg.host+"/team/tools:1.0@"+old, reg.host+"/team/tools@"+old
	removeAfter(t, eng, byDigest)

	_, _, _, err := pull(t, eng, ref)
	require.ErrorIs(t, err, images.ErrTagMoved)
	var moved *images.TagMovedError
	require.ErrorAs(t, err, &moved)
	assert.Equal(t, images.TagMovedError{Ref: ref, Pinned: old, Now: now}, *moved)
	assert.ErrorContains(t, err, old)
	assert.ErrorContains(t, err, now)
	absent(t, eng, byDigest)

	_, pulled, _, err := pull(t, eng, ref, func(o *images.PullOptions) { o.IgnoreMovedTag = true })
	require.NoError(t, err)
	assert.True(t, pulled)
}

func TestPullTagThatIsGone(t *testing.T) {
	eng, reg := engine(t), newRegistry(t, false)
	digest := reg.push(t, "team/tools:1.0", t.Name(), here)
	removeAfter(t, eng, reg.host+"/team/tools@"+digest)
	_, pulled, progress, err := pull(t, eng, reg.host+"/team/tools:0.9@"+digest)
	require.NoError(t, err)
	assert.True(t, pulled)
	assert.Contains(t, progress, "the registry has no tag 0.9 any more")
}

func TestPullMissingDigest(t *testing.T) {
	eng, reg := engine(t), newRegistry(t, false)
	reg.push(t, "team/tools:1.0", t.Name(), here)
	for _, name := range []string{"team/tools", "team/nothing"} {
		ref := reg.host + "/" + name + "@sha256:" + strings.Repeat("0", 64)
		_, _, _, err := pull(t, eng, ref)
		require.ErrorIs(t, err, images.ErrDigestMissing)
		assert.ErrorContains(t, err, ref)
	}
}

func TestPullWrongPlatform(t *testing.T) {
	eng, reg := engine(t), newRegistry(t, false)
	digest := reg.push(t, "team/tools:1.0", t.Name(), elsewhere)
	ref := reg.host + "/team/tools@" + digest
	removeAfter(t, eng, ref)
	_, _, _, err := pull(t, eng, ref)
	require.ErrorIs(t, err, images.ErrWrongPlatform)
	t.Log(err)
	absent(t, eng, ref)

	// Wanted it is, and then it stays although somebody else does not want it.
	_, _, _, err = pull(t, eng, ref, func(o *images.PullOptions) { o.Platform = elsewhere })
	require.NoError(t, err)
	_, _, _, err = pull(t, eng, ref)
	require.ErrorIs(t, err, images.ErrWrongPlatform)
	_, err = eng.ImageInspect(t.Context(), ref)
	require.NoError(t, err)
}

func TestPullRegistryDown(t *testing.T) {
	eng := engine(t)
	ref := freeAddress(t) + "/team/tools:1.0@sha256:" + strings.Repeat("0", 64)
	_, _, progress, err := pull(t, eng, ref)
	require.ErrorIs(t, err, images.ErrRegistryUnavailable)
	t.Log(err)
	assert.Contains(t, progress, "the tag 1.0 cannot be compared")
}

func TestPullInterrupted(t *testing.T) {
	eng, reg := engine(t), newRegistry(t, false)
	digest := reg.push(t, "team/tools:1.0", t.Name(), here)
	ref := reg.host + "/team/tools:1.0@" + digest
	byDigest := reg.host + "/team/tools@" + digest
	removeAfter(t, eng, byDigest)
	// The first blob is the configuration: a layer would be tried again.
	reg.spoilWith(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/blobs/") || r.Method != http.MethodGet {
			return false
		}
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte(`{"architecture":`))
		panic(http.ErrAbortHandler) // breaks the connection
	})
	_, _, _, err := pull(t, eng, ref)
	t.Log(err)
	require.ErrorIs(t, err, images.ErrPullInterrupted)
	absent(t, eng, byDigest)

	reg.spoilWith(nil)
	_, pulled, _, err := pull(t, eng, ref)
	require.NoError(t, err)
	assert.True(t, pulled)
}

func TestPullCredentials(t *testing.T) {
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
			_, pulled, progress, err := pull(t, eng, ref, func(o *images.PullOptions) {
				o.Credentials = images.DockerCredentials(dir)
			})
			if password == registryPassword {
				require.NoError(t, err)
				assert.True(t, pulled)
			} else {
				t.Log(err)
				require.ErrorIs(t, err, images.ErrCredentialsRefused)
				assert.NotContains(t, err.Error(), "hunter2")
			}
			assert.NotContains(t, progress, "hunter2")
			assert.NotContains(t, progress, registryPassword)
		})
	}
}
