package push

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/registry"
	"github.com/docker/docker/client"
	"github.com/google/go-containerregistry/pkg/name"
	memory "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/imagestest"
	"github.com/evalbox/evalbox/images/pull"
)

type member = imagestest.Member

// tarOf is an archive.
func tarOf(t *testing.T, all ...member) string {
	t.Helper()
	return string(imagestest.Tar(t, all...))
}

// layerOf is an unpacked layer with one file.
func layerOf(t *testing.T, text string) string {
	t.Helper()
	return tarOf(t, member{Name: "file", Body: text})
}

func packed(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := io.WriteString(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.String()
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

func hashOf(text string) v1.Hash {
	d := digest.FromString(text)
	return v1.Hash{Algorithm: d.Algorithm().String(), Hex: d.Encoded()}
}

// configOf is a configuration with a key that the library does not know.
func configOf(t *testing.T, arch string, layers ...string) string {
	t.Helper()
	ids := []string{}
	for _, layer := range layers {
		ids = append(ids, hashOf(layer).String())
	}
	return asJSON(t, map[string]any{
		"os": "linux", "architecture": arch, "unknown": "kept",
		"rootfs": map[string]any{"type": "layers", "diff_ids": ids},
	})
}

// dockerArchive is what docker save writes: the third layer is the first one again.
func dockerArchive(t *testing.T) (archive []member, config string, layers []string) {
	t.Helper()
	layers = []string{layerOf(t, "one"), layerOf(t, "two"), layerOf(t, "one")}
	config = configOf(t, "amd64", layers...)
	return []member{
		{Name: "c.json", Body: config}, {Name: "a/layer.tar", Body: layers[0]}, {Name: "b/layer.tar", Body: packed(t, layers[1])},
		{Name: "d/layer.tar", Link: "../a/layer.tar"},
		{Name: "manifest.json", Body: asJSON(t, []any{map[string]any{"Config": "c.json", "Layers": []string{"a/layer.tar", "b/layer.tar", "d/layer.tar"}}})},
	}, config, layers
}

// ociArchive is an OCI layout: an index in the index, with an image of this architecture, one
// of another that is not there, and an attestation.
func ociArchive(t *testing.T, pack func(*testing.T, string) string) (archive []member, manifest string) {
	t.Helper()
	layer := layerOf(t, "one")
	blob, config := pack(t, layer), configOf(t, "arm64", layer)
	add := func(body string, kind types.MediaType) v1.Descriptor {
		h := hashOf(body)
		archive = append(archive, member{Name: "blobs/sha256/" + h.Hex, Body: body})
		return v1.Descriptor{MediaType: kind, Digest: h, Size: int64(len(body))}
	}
	layerType := types.OCILayer
	if blob == layer {
		layerType = types.OCIUncompressedLayer
	}
	manifest = asJSON(t, v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: add(config, types.OCIConfigJSON),
		Layers: []v1.Descriptor{add(blob, layerType)}, Annotations: map[string]string{"kept": "yes"},
	})
	attested := add("{}", types.OCIManifestSchema1)
	attested.Platform = &v1.Platform{OS: "unknown", Architecture: "unknown"}
	missing := v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: hashOf("elsewhere"), Size: 9}
	below := add(asJSON(t, v1.IndexManifest{
		SchemaVersion: 2, MediaType: types.OCIImageIndex,
		Manifests: []v1.Descriptor{add(manifest, types.OCIManifestSchema1), missing, attested},
	}), types.OCIImageIndex)
	archive = append(archive, member{Name: "index.json", Body: asJSON(t, v1.IndexManifest{SchemaVersion: 2, Manifests: []v1.Descriptor{below}})})
	return archive, manifest
}

func unpacked(_ *testing.T, text string) string { return text }

// newRegistry starts one on the loopback that goes through a handler.
func newRegistry(t *testing.T, before func(http.Handler) http.Handler) (host string) {
	t.Helper()
	server := httptest.NewServer(before(memory.New(memory.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func public(h http.Handler) http.Handler { return h }

// answers refuses what is written with a status and a text.
func answers(status int, text string) func(http.Handler) http.Handler {
	return func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodHead: // nothing is there
				w.WriteHeader(http.StatusNotFound)
			case r.URL.Path != "/v2/":
				w.WriteHeader(status)
			}
			_, _ = io.WriteString(w, text)
		})
	}
}

// private wants the user alice.
func private(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "alice" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func nobody(string) (registry.AuthConfig, error) { return registry.AuthConfig{}, nil }

// pushFile pushes an archive to team/tools:1.
func pushFile(t *testing.T, host, archive string) (Pushed, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image.tar")
	require.NoError(t, os.WriteFile(file, []byte(archive), 0o600))
	to, err := ParseTarget(host + "/team/tools:1")
	require.NoError(t, err)
	return File(t.Context(), file, to, Options{Credentials: nobody})
}

// inRegistry reads a whole image from a registry.
func inRegistry(t *testing.T, ref string) v1.Image {
	t.Helper()
	at, err := name.ParseReference(ref)
	require.NoError(t, err)
	img, err := remote.Image(at)
	require.NoError(t, err)
	require.NoError(t, validate.Image(img))
	return img
}

func TestFileOfDockerSave(t *testing.T) {
	host := newRegistry(t, public)
	archive, config, layers := dockerArchive(t)
	p, err := pushFile(t, host, tarOf(t, archive...))
	require.NoError(t, err)
	assert.Equal(t, host+"/team/tools:1", p.Tag)
	assert.Equal(t, host+"/team/tools@"+p.Digest, p.Reference)
	assert.Equal(t, "linux/amd64", p.Platform)
	img := inRegistry(t, p.Tag)
	raw, err := img.RawConfigFile()
	require.NoError(t, err)
	assert.Equal(t, config, string(raw), "the ID of an engine is the hash of this text")
	all, err := img.Layers()
	require.NoError(t, err)
	require.Len(t, all, len(layers))
	size := int64(len(config))
	for i, layer := range all {
		id, err := layer.DiffID()
		require.NoError(t, err)
		assert.Equal(t, hashOf(layers[i]), id)
		n, err := layer.Size()
		require.NoError(t, err)
		size += n
		packed, err := layer.Compressed()
		require.NoError(t, err)
		_, err = gzip.NewReader(packed)
		require.NoError(t, err, "layers are compressed")
	}
	assert.Equal(t, size, p.SizeBytes)

	digest, err := inRegistry(t, p.Reference).Digest()
	require.NoError(t, err)
	assert.Equal(t, p.Digest, digest.String())
	again, err := pushFile(t, host, tarOf(t, archive...))
	require.NoError(t, err)
	assert.Equal(t, p, again)
}

func TestFileOfOCILayout(t *testing.T) {
	host := newRegistry(t, public)
	archive, manifest := ociArchive(t, packed)
	p, err := pushFile(t, host, tarOf(t, archive...))
	require.NoError(t, err)
	assert.Equal(t, hashOf(manifest).String(), p.Digest, "an image with compressed layers keeps its digest")
	assert.Equal(t, "linux/arm64", p.Platform)
	inRegistry(t, p.Reference)

	archive, manifest = ociArchive(t, unpacked)
	p, err = pushFile(t, host, tarOf(t, archive...))
	require.NoError(t, err)
	assert.NotEqual(t, hashOf(manifest).String(), p.Digest)
	media, err := inRegistry(t, p.Reference).MediaType()
	require.NoError(t, err)
	assert.Equal(t, types.DockerManifestSchema2, media)
}

func TestArchivesThatAreRefused(t *testing.T) {
	docker, _, layers := dockerArchive(t)
	oci, manifest := ociArchive(t, packed)
	// with replaces a member, or adds one.
	with := func(all []member, m member) []member {
		changed := []member{}
		for _, each := range all {
			if each.Name != m.Name {
				changed = append(changed, each)
			}
		}
		return append(changed, m)
	}
	listing := func(config string, layers ...string) member {
		return member{Name: "manifest.json", Body: asJSON(t, []any{map[string]any{"Config": config, "Layers": layers}})}
	}
	whole := tarOf(t, docker...)
	many := []member{}
	for i := range maxMembers + 1 {
		many = append(many, member{Name: strings.Repeat("x", i%50) + digest.FromBytes([]byte{byte(i), byte(i >> 8)}).Encoded()})
	}
	for what, c := range map[string]struct{ archive, want string }{
		"empty":               {"", "is empty"},
		"not a tar":           {strings.Repeat("x", 2000), "is not a tar archive"},
		"cut off":             {whole[:len(whole)/2], "cut off"},
		"other files":         {tarOf(t, member{Name: "file"}), `no member "manifest.json"`},
		"a member twice":      {tarOf(t, append(docker, member{Name: "./c.json"})...), "two members"},
		"many members":        {tarOf(t, many...), "more than 2000 members"},
		"a large manifest":    {tarOf(t, member{Name: "manifest.json", Body: strings.Repeat(" ", maxText+1)}), "larger than"},
		"a manifest in words": {tarOf(t, member{Name: "manifest.json", Body: "words"}), "manifest.json: invalid"},
		"no image":            {tarOf(t, member{Name: "manifest.json", Body: "[]"}), "holds 0 images"},
		"two images":          {tarOf(t, with(docker, member{Name: "manifest.json", Body: `[{"Config": "c.json"}, {"Config": "c.json"}]`})...), "holds 2 images"},
		"no configuration":    {tarOf(t, with(docker, listing("d.json"))...), `no member "d.json"`},
		"a link to itself":    {tarOf(t, with(docker, member{Name: "c.json", Link: "c.json"})...), `no member "c.json"`},
		"a link outside":      {tarOf(t, with(docker, member{Name: "c.json", Link: "/etc/passwd"})...), `no member "c.json"`},
		"a missing layer":     {tarOf(t, with(docker, listing("c.json", "a/layer.tar", "b/layer.tar", "e/layer.tar"))...), `no member "e/layer.tar"`},
		"fewer layers":        {tarOf(t, with(docker, listing("c.json", "a/layer.tar"))...), "has 1 layers, and its configuration lists 3"},
		"another layer":       {tarOf(t, with(docker, member{Name: "a/layer.tar", Body: layerOf(t, "other")})...), "layer 1: is sha256:"},
		"a broken layer":      {tarOf(t, with(docker, member{Name: "b/layer.tar", Body: packed(t, layers[1])[:20]})...), "layer 2: "},
		"a changed manifest":  {tarOf(t, with(oci, member{Name: "blobs/sha256/" + hashOf(manifest).Hex, Body: "{}"})...), "has another digest"},
		"an index in words":   {tarOf(t, member{Name: "index.json", Body: "words"}), "index.json: "},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := pushFile(t, "127.0.0.1:1", c.archive)
			require.ErrorContains(t, err, c.want)
			assert.ErrorContains(t, err, "archive ")
			_, hinted := errors.AsType[interface {
				error
				Hint() string
			}](err)
			assert.True(t, hinted)
		})
	}
}

// fakeEngine saves one archive.
type fakeEngine struct {
	client.APIClient

	archive string
	asked   []string
	err     error
}

func (f *fakeEngine) ImageSave(_ context.Context, ids []string, _ ...client.ImageSaveOption) (io.ReadCloser, error) {
	f.asked = ids
	return io.NopCloser(strings.NewReader(f.archive)), f.err
}

func TestImage(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	host := newRegistry(t, private)
	archive, _, layers := dockerArchive(t)
	eng := &fakeEngine{archive: tarOf(t, archive...)}
	img := images.Image{ID: "sha256:image", Platform: "linux/amd64"}
	for _, layer := range layers {
		img.Layers = append(img.Layers, hashOf(layer).String())
	}
	to, err := ParseTarget(host + "/team/tools")
	require.NoError(t, err)
	var asked []string
	var progress bytes.Buffer
	opts := Options{Progress: &progress, Credentials: func(host string) (registry.AuthConfig, error) {
		asked = append(asked, host)
		return registry.AuthConfig{Username: "alice", Password: "secret"}, nil
	}}
	p, err := Image(t.Context(), eng, img, to, opts)
	require.NoError(t, err)
	assert.Equal(t, []string{"sha256:image"}, eng.asked)
	assert.Equal(t, []string{host}, asked)
	assert.Equal(t, host+"/team/tools:latest", p.Tag)
	assert.Contains(t, progress.String(), "push: the engine saves sha256:image")
	assert.Contains(t, progress.String(), "push: "+p.Tag+" (linux/amd64, ")
	assert.NotContains(t, progress.String(), "secret")

	img.Layers[0] = hashOf("other").String()
	_, err = Image(t.Context(), eng, img, to, opts)
	require.ErrorContains(t, err, "the engine saved other layers than it lists")
	img.Platform = "linux/arm64"
	_, err = Image(t.Context(), eng, img, to, opts)
	require.ErrorContains(t, err, "holds 0 images")
	eng.err = errors.New("no save")
	_, err = Image(t.Context(), eng, img, to, opts)
	require.ErrorContains(t, err, "image sha256:image: saving it: no save")
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestFailures(t *testing.T) {
	archive, _, _ := dockerArchive(t)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	for what, c := range map[string]struct {
		host string
		want Kind
	}{
		"nobody listens":    {closed.Addr().String(), RegistryUnavailable},
		"no credentials":    {newRegistry(t, private), CredentialsRefused},
		"forbidden":         {newRegistry(t, answers(http.StatusForbidden, "no")), CredentialsRefused},
		"not found":         {newRegistry(t, answers(http.StatusNotFound, "no")), RepositoryMissing},
		"too many":          {newRegistry(t, answers(http.StatusTooManyRequests, "no")), RegistryUnavailable},
		"another refusal":   {newRegistry(t, answers(http.StatusBadRequest, "\x1b[2J"+strings.Repeat("é", 100_000))), Unknown},
		"an endless answer": {newRegistry(t, answers(http.StatusBadRequest, strings.Repeat("x", maxAnswer+1))), RegistryUnavailable},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := pushFile(t, c.host, tarOf(t, archive...))
			failed, ok := errors.AsType[*Error](err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, c.want, failed.Kind, "%v", err)
			assert.Equal(t, c.host+"/team/tools:1", failed.Ref)
			assert.NotEmpty(t, failed.Hint())
			assert.Less(t, len(err.Error()), 1300)
			assert.NotContains(t, err.Error(), "\x1b")
		})
	}
}

// A registry that loses what it accepted is found out.
func TestPushedIsLookedUp(t *testing.T) {
	host := newRegistry(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/manifests/sha256:") && r.Method == http.MethodHead {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	archive, _, _ := dockerArchive(t)
	_, err := pushFile(t, host, tarOf(t, archive...))
	failed, ok := errors.AsType[*Error](err)
	require.True(t, ok, "%v", err)
	assert.Contains(t, failed.Ref, "@sha256:")
}

func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	host := newRegistry(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/blobs/uploads/") {
				cancel()
				<-r.Context().Done()
			}
			h.ServeHTTP(w, r)
		})
	})
	archive, _, _ := dockerArchive(t)
	file := filepath.Join(t.TempDir(), "image.tar")
	require.NoError(t, os.WriteFile(file, []byte(tarOf(t, archive...)), 0o600))
	to, err := ParseTarget(host + "/team/tools:1")
	require.NoError(t, err)
	_, err = File(ctx, file, to, Options{Credentials: nobody})
	require.ErrorIs(t, err, context.Canceled)
	_, err = File(ctx, file, to, Options{Credentials: nobody})
	require.ErrorIs(t, err, context.Canceled, "before anything is read")
}

// Credentials that cannot be read are reported, and the push goes on.
func TestWithoutReadableCredentials(t *testing.T) {
	host := newRegistry(t, public)
	archive, _, _ := dockerArchive(t)
	file := filepath.Join(t.TempDir(), "image.tar")
	require.NoError(t, os.WriteFile(file, []byte(tarOf(t, archive...)), 0o600))
	to, err := ParseTarget(host + "/team/tools:1")
	require.NoError(t, err)
	var progress bytes.Buffer
	_, err = File(t.Context(), file, to, Options{Progress: &progress, Credentials: func(string) (registry.AuthConfig, error) {
		return registry.AuthConfig{}, errors.New("no helper")
	}})
	require.NoError(t, err)
	assert.Contains(t, progress.String(), "no helper; going on without credentials")
}

func TestPlainHTTPIsForTheLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "127.0.0.1": true, "127.9.9.9": true, "::1": true,
		"10.0.0.1": false, "127.0.0.1.example": false, "registry.local": false, "": false,
	} {
		assert.Equal(t, want, loopback(host), host)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://10.0.0.1:5000/v2/", strings.NewReader("secret"))
	require.NoError(t, err)
	_, err = (&carrier{}).RoundTrip(req) //nolint:bodyclose // there is no response
	require.ErrorIs(t, err, errPlain)
}

func TestProgressOfLargeImages(t *testing.T) {
	var out bytes.Buffer
	c := carrier{total: 100 << 20, progress: pull.NewProgress(&out)}
	for range 100 {
		c.count(1 << 20)
	}
	assert.Equal(t, 10, strings.Count(out.String(), "\n"), "%s", &out)
	assert.Contains(t, out.String(), "push: 100 MiB of 100 MiB sent")
}

func TestParseTarget(t *testing.T) {
	for ref, want := range map[string]string{
		"registry.example/team/tools:1.0": "registry.example/team/tools:1.0",
		"registry.example/tools":          "registry.example/tools:latest",
		"localhost/tools":                 "localhost/tools:latest",
		"registry:5000/tools:x":           "registry:5000/tools:x",
		"docker.io/team/tools":            "docker.io/team/tools:latest",
	} {
		to, err := ParseTarget(ref)
		require.NoError(t, err, ref)
		assert.Equal(t, want, to.String())
	}
	for ref, want := range map[string]string{
		"": "not a reference", "tools": "it names no registry", "team/tools:1": "it names no registry",
		"registry.example/Tools": "must be lowercase", "https://registry.example/tools": "not a reference",
		"registry.example/tools@" + hashOf("x").String():   "the registry computes",
		"registry.example/tools:1@" + hashOf("x").String(): "the registry computes",
	} {
		_, err := ParseTarget(ref)
		failed, ok := errors.AsType[*Error](err)
		require.True(t, ok, ref)
		assert.Equal(t, NotTarget, failed.Kind)
		assert.ErrorContains(t, err, want)
		assert.Contains(t, failed.Hint(), "REGISTRY/REPOSITORY[:TAG]")
	}
}
