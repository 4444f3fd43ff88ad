package pull

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/registry"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/imagestest"
)

const (
	testID      = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	toolsDigest = "sha256:" + testID
	toolsRef    = "registry.example:5000/team/tools:1.0@" + toolsDigest
	toolsPinned = "registry.example:5000/team/tools@" + toolsDigest
)

// pullTools pulls tools with credentials that hold a secret.
func pullTools(t *testing.T, eng *imagestest.Engine, change func(*Options)) (r images.Resolved, pulled bool, progress string, err error) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	var out bytes.Buffer
	opts := Options{Progress: &out, Credentials: func(host string) (registry.AuthConfig, error) {
		return registry.AuthConfig{Username: host, Password: "secret"}, nil
	}}
	if change != nil {
		change(&opts)
	}
	r, pulled, err = Pull(t.Context(), eng, toolsRef, opts)
	return r, pulled, out.String(), err
}

// kindIn is the kind of an error, [Unknown] for none.
func kindIn(err error) Kind {
	if failed, ok := errors.AsType[*Error](err); ok {
		return failed.Kind
	}
	return Unknown
}

func TestPull(t *testing.T) {
	eng := imagestest.New(t)
	eng.Registry["registry.example:5000/team/tools:1.0"] = toolsDigest
	r, pulled, progress, err := pullTools(t, eng, nil)
	require.NoError(t, err)
	assert.True(t, pulled)
	assert.Equal(t, images.Resolved{
		Name: toolsRef, Reference: toolsPinned, ID: "sha256:pulled", Digest: toolsPinned, Platform: "linux/arm64/v8",
	}, r)
	assert.Equal(t, toolsPinned, eng.Pulled.Ref, "never by the tag")
	assert.Equal(t, "linux/arm64", eng.Pulled.Platform)
	auth, err := registry.DecodeAuthConfig(eng.Pulled.Auth)
	require.NoError(t, err)
	assert.Equal(t, registry.AuthConfig{Username: "registry.example:5000", Password: "secret"}, *auth)
	assert.Contains(t, progress, "Pulling from tools")
	assert.NotContains(t, progress, eng.Pulled.Auth)

	eng.Calls = nil
	_, pulled, _, err = pullTools(t, eng, nil)
	require.NoError(t, err)
	assert.False(t, pulled)
	_, calls := eng.State()
	assert.Equal(t, map[string]int{"inspect": 1, "version": 1}, calls)
}

func TestPullTag(t *testing.T) {
	const tag = "registry.example:5000/team/tools:1.0"
	for _, c := range []struct {
		name   string
		digest string // of the tag in the registry
		err    error
		ignore bool
		want   Kind
		says   string
	}{
		{"same", toolsDigest, nil, false, Unknown, ""},
		{"moved", "sha256:other", nil, false, TagMoved, ""},
		{"moved, ignored", "sha256:other", nil, true, Unknown, ""},
		{"gone", "", nil, false, Unknown, "the registry has no such repository or tag 1.0"},
		{"unknown", "", errors.New("dial tcp: connection refused\x1b[2J"), false, Unknown, "cannot be compared: dial tcp: connection refused\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			eng := imagestest.New(t)
			if eng.Fail["distribution"] = c.err; c.digest != "" {
				eng.Registry[tag] = c.digest
			}
			_, pulled, progress, err := pullTools(t, eng, func(o *Options) { o.IgnoreMovedTag = c.ignore })
			assert.Equal(t, c.want, kindIn(err))
			assert.Equal(t, c.want == Unknown, pulled)
			assert.Contains(t, progress, c.says)
			_, calls := eng.State()
			assert.Equal(t, pulled, calls["pull"] == 1)
			assert.Equal(t, c.ignore, calls["distribution"] == 0)
		})
	}
}

func TestPullRefuses(t *testing.T) {
	for _, c := range []struct{ ref, platform, message string }{
		{"python:3.12", "", "is not pinned"},
		{"python", "", "is not pinned"},
		{"", "", "is not a reference"},
		{"Not A Reference", "", "is not a reference"},
		{testID, "", "is not a reference"},
		{"python@sha512:" + testID + testID, "", "is not pinned"},
		{toolsRef, "amd64", `platform "amd64": must be os/architecture`},
	} {
		t.Run(c.ref, func(t *testing.T) {
			eng := imagestest.New(t)
			_, _, err := Pull(t.Context(), eng, c.ref, Options{Platform: c.platform})
			require.ErrorContains(t, err, c.message)
			_, calls := eng.State()
			assert.Empty(t, calls)
		})
	}
}

func TestNamed(t *testing.T) {
	cat := imagestest.Catalog(t)
	opts := Options{Credentials: DockerCredentials(t.TempDir())}
	eng := imagestest.New(t)
	_, _, err := Named(t.Context(), eng, cat, "big-one", opts)
	require.NoError(t, err)
	assert.Contains(t, eng.Pulled.Ref, "registry.example:5000/team/big@sha256:")
	assert.Empty(t, eng.Pulled.Auth)

	_, _, err = Named(t.Context(), imagestest.New(t), cat, "small", opts)
	assert.ErrorContains(t, err, "nothing to pull")
	_, _, err = Named(t.Context(), imagestest.New(t), cat, "", opts)
	assert.Error(t, err, "the default is not meant by nothing")
}

func TestPullFailureLeavesNothing(t *testing.T) {
	for _, c := range []struct {
		name    string
		breakIt func(*imagestest.Engine)
		want    Kind
	}{
		{"refused", func(f *imagestest.Engine) { f.Fail["pull"] = errdefs.ErrUnauthenticated }, CredentialsRefused},
		{"broken off", func(f *imagestest.Engine) { f.FailLate["pull"] = errors.New("unexpected EOF") }, Interrupted},
		{"other platform", func(f *imagestest.Engine) { f.Arch = "s390x" }, WrongPlatform},
	} {
		t.Run(c.name, func(t *testing.T) {
			eng := imagestest.New(t, "python:3.12")
			c.breakIt(eng)
			r, pulled, _, err := pullTools(t, eng, nil)
			assert.Equal(t, c.want, kindIn(err))
			assert.Empty(t, r)
			assert.False(t, pulled)
			names, _ := eng.State()
			assert.Equal(t, []string{"python:3.12"}, names)
		})
	}
}

func TestPullKeepsWhatWasThere(t *testing.T) {
	eng := imagestest.New(t)
	eng.Put("", "sha256:there", imagestest.Image{Digests: []string{toolsPinned}})
	eng.Arch = "s390x"
	_, _, _, err := pullTools(t, eng, nil)
	assert.Equal(t, WrongPlatform, kindIn(err))
	names, _ := eng.State()
	assert.Equal(t, []string{toolsPinned}, names)
}

func TestPullCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := Pull(ctx, imagestest.New(t), toolsRef, Options{Platform: "linux/arm64"})
	require.ErrorIs(t, err, context.Canceled)
}

func TestPullWithoutReadableCredentials(t *testing.T) {
	eng := imagestest.New(t)
	_, pulled, progress, err := pullTools(t, eng, func(o *Options) {
		o.Credentials = func(string) (registry.AuthConfig, error) { return registry.AuthConfig{}, errors.New("no helper") }
	})
	require.NoError(t, err)
	assert.True(t, pulled)
	assert.Empty(t, eng.Pulled.Auth)
	assert.Contains(t, progress, "no helper; going on without credentials")
}

func TestFits(t *testing.T) {
	for _, c := range []struct {
		have, want string
		fits       bool
	}{
		{"linux/amd64", "linux/amd64", true},
		{"linux/arm64/v8", "linux/arm64", true},
		{"linux/arm/v7", "linux/arm/v7", true},
		{"linux/arm/v6", "linux/arm/v7", false},
		{"linux/arm64", "linux/arm64/v8", true},
		{"linux/arm64", "linux/amd64", false},
		{"windows/amd64", "linux/amd64", false},
		{"/", "linux/amd64", false},
	} {
		assert.Equal(t, c.fits, fits(c.have, c.want), "%+v", c)
	}
}

func TestVisible(t *testing.T) {
	assert.Equal(t, "ERROR: no\n", Visible("\x1b[1;31mERROR\x1b[0m: no\x1b[K\r\n"))
}
