package images_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/registry"
	"github.com/docker/docker/client"
	godigest "github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
)

// The user of a registry with credentials. The line is what htpasswd -B writes.
const (
	registryUser     = "alice"
	registryPassword = "correct-horse"
	registryHtpasswd = "alice:$2y$05$abcdefghijklmnopqrstuuZ0Fx87Pb/Aqb0E90lfvCwzXnaFKUHpS\n"
)

// A testRegistry is Debian's docker-registry on the loopback, with a proxy before
// it that counts the requests and can spoil the answers.
type testRegistry struct {
	host string // of the proxy
	auth string // encoded, for the engine

	mu       sync.Mutex
	requests []string                                                 // "GET /v2/…", guarded by mu
	spoil    func(w http.ResponseWriter, r *http.Request) (done bool) // guarded by mu
}

// newRegistry starts a registry, with credentials if it is private. It ends with
// the test.
func newRegistry(t *testing.T, private bool) *testRegistry {
	t.Helper()
	program, err := exec.LookPath("docker-registry")
	require.NoError(t, err, "the tests of pulling need docker-registry: hack/setup.sh test-tools")
	dir := t.TempDir()
	backend := freeAddress(t)
	config := fmt.Sprintf("version: 0.1\nlog: {level: error, accesslog: {disabled: true}}\nstorage: {filesystem: {rootdirectory: %s}}\nhttp: {addr: %q}\n",
		filepath.Join(dir, "data"), backend)
	r := &testRegistry{auth: encode(t, registry.AuthConfig{})}
	if private {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "htpasswd"), []byte(registryHtpasswd), 0o600))
		config += fmt.Sprintf("auth: {htpasswd: {realm: test, path: %s}}\n", filepath.Join(dir, "htpasswd"))
		r.auth = encode(t, registry.AuthConfig{Username: registryUser, Password: registryPassword})
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.yml"), []byte(config), 0o600))

	var log bytes.Buffer
	cmd := exec.Command(program, "serve", filepath.Join(dir, "config.yml"))
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("docker-registry: %s", &log)
		}
	})
	awaitHTTP(t, "http://"+backend+"/v2/", ended)

	target, err := url.Parse("http://" + backend)
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(target)
			pr.Out.Host = pr.In.Host // the registry makes addresses of it
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.requests = append(r.requests, req.Method+" "+req.URL.Path)
		spoil := r.spoil
		r.mu.Unlock()
		if spoil == nil || !spoil(w, req) {
			proxy.ServeHTTP(w, req)
		}
	}))
	t.Cleanup(server.Close)
	r.host = strings.TrimPrefix(server.URL, "http://")
	return r
}

// count returns how many requests there were that begin so, and forgets them all.
func (r *testRegistry) count(prefix string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, req := range r.requests {
		if strings.HasPrefix(req, prefix) {
			n++
		}
	}
	r.requests = nil
	return n
}

// spoilWith makes the proxy answer by itself what the function says is done.
func (r *testRegistry) spoilWith(f func(http.ResponseWriter, *http.Request) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spoil = f
}

// push puts a tiny image for a platform, of a file with this text, into the
// registry under a name (repository:tag), and returns its digest.
func (r *testRegistry) push(t *testing.T, name, text, platform string) (digest string) {
	t.Helper()
	var root bytes.Buffer
	w := tar.NewWriter(&root)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "text", Mode: 0o644, Size: int64(len(text))}))
	_, err := io.WriteString(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	os, arch, _ := strings.Cut(platform, "/")
	layer := root.Bytes()
	config := asJSON(t, ocispec.Image{
		Platform: ocispec.Platform{OS: os, Architecture: arch},
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []godigest.Digest{godigest.FromBytes(layer)}},
	})
	repo, tag, _ := strings.Cut(name, ":")
	return r.putManifest(t, repo, tag, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: "application/vnd.docker.distribution.manifest.v2+json",
		Config: r.putBlob(t, repo, "application/vnd.docker.container.image.v1+json", config),
		Layers: []ocispec.Descriptor{r.putBlob(t, repo, "application/vnd.docker.image.rootfs.diff.tar", layer)},
	})
}

// putBlob uploads one blob.
func (r *testRegistry) putBlob(t *testing.T, repo, mediaType string, data []byte) ocispec.Descriptor {
	t.Helper()
	begun := r.request(t, http.MethodPost, "http://"+r.host+"/v2/"+repo+"/blobs/uploads/", "", nil)
	place, err := url.Parse(begun.Get("Location"))
	require.NoError(t, err)
	digest := godigest.FromBytes(data)
	query := place.Query()
	query.Set("digest", digest.String())
	place.RawQuery = query.Encode()
	r.request(t, http.MethodPut, place.String(), "application/octet-stream", data)
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest, Size: int64(len(data))}
}

// putManifest uploads a manifest under a tag.
func (r *testRegistry) putManifest(t *testing.T, repo, tag string, manifest ocispec.Manifest) (digest string) {
	t.Helper()
	header := r.request(t, http.MethodPut, "http://"+r.host+"/v2/"+repo+"/manifests/"+tag, manifest.MediaType, asJSON(t, manifest))
	return header.Get("Docker-Content-Digest")
}

// blobs are the digests of what a manifest names: configuration, then layers.
func (r *testRegistry) blobs(t *testing.T, repo, digest string) (digests []string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.host+"/v2/"+repo+"/manifests/"+digest, nil)
	require.NoError(t, err)
	req.Header.Set("Accept", "application/vnd.docker.distribution.manifest.v2+json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	var manifest ocispec.Manifest
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&manifest))
	digests = []string{manifest.Config.Digest.String()}
	for _, layer := range manifest.Layers {
		digests = append(digests, layer.Digest.String())
	}
	return digests
}

// request sends one request with the credentials, and wants success.
func (r *testRegistry) request(t *testing.T, method, address, mediaType string, body []byte) http.Header {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, bytes.NewReader(body))
	require.NoError(t, err)
	req.SetBasicAuth(registryUser, registryPassword)
	req.Header.Set("Content-Type", mediaType)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	require.Less(t, resp.StatusCode, 300, "%s %s: %s", method, address, text)
	return resp.Header
}

func asJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return data
}

// removeAfter removes an image at the end of the test, if it is there.
func removeAfter(t *testing.T, eng *client.Client, refs ...string) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, ref := range refs {
			_, _ = eng.ImageRemove(ctx, ref, image.RemoveOptions{Force: true, PruneChildren: true})
		}
	})
}

// absent fails if the engine has an image.
func absent(t *testing.T, eng *client.Client, ref string) {
	t.Helper()
	_, err := eng.ImageInspect(t.Context(), ref)
	require.ErrorContains(t, err, "No such image", "%s is in the engine", ref)
}

func encode(t *testing.T, auth registry.AuthConfig) string {
	t.Helper()
	text, err := registry.EncodeAuthConfig(auth)
	require.NoError(t, err)
	return text
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// awaitHTTP returns once somebody answers, whatever it is.
func awaitHTTP(t *testing.T, address string, ended <-chan struct{}) {
	t.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	giveUp := time.After(time.Minute)
	for {
		if resp, err := http.Get(address); err == nil {
			_ = resp.Body.Close()
			return
		}
		select {
		case <-ended:
			t.Fatal("docker-registry ended")
		case <-giveUp:
			t.Fatal("docker-registry does not answer")
		case <-poll.C:
		}
	}
}

// here and elsewhere are the platform of the engine and another one.
var here, elsewhere = "linux/" + runtime.GOARCH, "linux/s390x"
