// Package push copies images of an engine, and of tar archives, to a registry. This process
// connects to the registry, not the engine.
package push

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/distribution/reference"
	"github.com/docker/docker/client"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	godigest "github.com/opencontainers/go-digest"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/pull"
	"github.com/evalbox/evalbox/internal/text"
)

// Options say how [Image] and [File] work. All have defaults.
type Options struct {
	// Credentials are for the registry. Defaults to [pull.DockerCredentials] of the default
	// directory.
	Credentials pull.Credentials
	// Progress receives a line per step. Defaults to io.Discard.
	Progress io.Writer
}

// Pushed is an image in a registry.
type Pushed struct {
	// Tag is registry/repository:tag.
	Tag string
	// Reference is registry/repository@sha256:…, and Digest is the digest in it: that of the
	// image's manifest.
	Reference, Digest string
	// Platform is os/architecture[/variant].
	Platform string
	// SizeBytes is the size of the image in the registry: configuration and compressed layers.
	SizeBytes int64
}

// ParseTarget reads the reference that an image is pushed to: registry/repository[:tag]. Without
// a tag, it is "latest". The registry must be named, and a digest is refused, because the
// registry computes it. The errors are [*Error].
func ParseTarget(ref string) (reference.NamedTagged, error) {
	refuse := func(format string, args ...any) (reference.NamedTagged, error) {
		return nil, &Error{Ref: ref, Kind: NotTarget, Err: fmt.Errorf(format, args...)}
	}
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return refuse("%w", err)
	}
	if _, digested := named.(reference.Digested); digested {
		return refuse("it has a digest, which the registry computes")
	}
	registry, _, found := strings.Cut(ref, "/")
	if !found || registry != "localhost" && !strings.ContainsAny(registry, ".:") {
		return refuse("it names no registry")
	}
	if tagged, ok := named.(reference.NamedTagged); ok {
		return tagged, nil
	}
	return reference.WithTag(named, "latest")
}

// Image pushes an image of an engine. The engine saves it into a temporary file, which has no
// name and is gone afterwards. The errors of the registry are [*Error]; others are plain.
func Image(ctx context.Context, api client.APIClient, img images.Image, to reference.NamedTagged, opts Options) (pushed Pushed, err error) {
	progress := pull.NewProgress(opts.Progress)
	progress.Line("push", fmt.Sprintf("the engine saves %s (%s)", img.ID, text.Size(img.SizeBytes)))
	saved, err := save(ctx, api, img.ID)
	if err != nil {
		return Pushed{}, fmt.Errorf("image %s: saving it: %w", img.ID, err)
	}
	defer func() { err = errors.Join(err, saved.Close()) }()
	found, err := open(ctx, saved, images.PlainPlatform(img.Platform))
	if err == nil && !slices.Equal(found.layers(), img.Layers) {
		err = errors.New("the engine saved other layers than it lists")
	}
	if err != nil {
		return Pushed{}, fmt.Errorf("image %s: reading what the engine saved: %w", img.ID, err)
	}
	return send(ctx, found, to, opts, progress)
}

// save writes an image of an engine to a temporary file that has no name any more.
func save(ctx context.Context, api client.APIClient, id string) (*os.File, error) {
	stream, err := api.ImageSave(ctx, []string{id})
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	file, err := os.CreateTemp("", "evalbox-push-")
	if err != nil {
		return nil, err
	}
	err = os.Remove(file.Name())
	if err == nil {
		_, err = io.Copy(file, stream)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// File pushes the image of a tar archive: the output of docker save, or an OCI layout. The
// archive must hold one image, and is not trusted. The errors of the registry are [*Error];
// others are plain.
func File(ctx context.Context, path string, to reference.NamedTagged, opts Options) (Pushed, error) {
	file, err := os.Open(path)
	if err != nil {
		return Pushed{}, err
	}
	defer file.Close() // it was only read
	found, err := open(ctx, file, "")
	if err != nil {
		return Pushed{}, fmt.Errorf("archive %s: %w", path, images.WithHint(err, "make one with: docker save -o FILE.tar IMAGE"))
	}
	return send(ctx, found, to, opts, pull.NewProgress(opts.Progress))
}

// send pushes an image, and makes sure that the registry has it under its digest.
func send(ctx context.Context, img *saved, to reference.NamedTagged, opts Options, progress *pull.Progress) (Pushed, error) {
	image, err := partial.CompressedToImage(img)
	if err != nil {
		return Pushed{}, err
	}
	digest, err := image.Digest()
	if err != nil {
		return Pushed{}, err
	}
	byDigest, err := reference.WithDigest(reference.TrimNamed(to), godigest.Digest(digest.String()))
	if err != nil {
		return Pushed{}, err
	}
	p := Pushed{
		Tag: to.String(), Reference: byDigest.String(), Digest: digest.String(),
		Platform: images.PlainPlatform(img.platform()), SizeBytes: img.size(),
	}
	progress.Line("push", fmt.Sprintf("%s (%s, %s)", p.Tag, p.Platform, text.Size(p.SizeBytes)))
	remoteOpts, scheme := []remote.Option{
		remote.WithContext(ctx), remote.WithAuth(credentials(opts.Credentials, reference.Domain(to), progress)),
		remote.WithTransport(&carrier{total: p.SizeBytes, progress: progress}), remote.WithUserAgent("evalbox"),
	}, []name.Option{}
	if loopback(hostOf(reference.Domain(to))) {
		scheme = append(scheme, name.Insecure)
	}
	tag, err := name.NewTag(p.Tag, scheme...)
	if err != nil {
		return Pushed{}, &Error{Ref: p.Tag, Kind: NotTarget, Err: err}
	}
	if err := remote.Write(tag, image, remoteOpts...); err != nil {
		return Pushed{}, failed(ctx, p.Tag, err)
	}
	if _, err := remote.Head(tag.Context().Digest(p.Digest), remoteOpts...); err != nil {
		return Pushed{}, failed(ctx, p.Reference, err)
	}
	return p, nil
}

// credentials are those for the registry. Without readable ones, the push goes on without.
func credentials(from pull.Credentials, registry string, progress *pull.Progress) authn.Authenticator {
	if from == nil {
		from = pull.DockerCredentials("")
	}
	found, err := from(registry)
	if err != nil {
		progress.Line("push", fmt.Sprintf("%v; going on without credentials", err))
	}
	return authn.FromConfig(authn.AuthConfig{
		Username: found.Username, Password: found.Password, Auth: found.Auth,
		IdentityToken: found.IdentityToken, RegistryToken: found.RegistryToken,
	})
}

// maxAnswer bounds what is read of an answer of a registry, in bytes. The answers to a push are
// short.
const maxAnswer = 4 << 20

// A carrier carries the requests to a registry, and what they are redirected to. Plain HTTP only
// goes to the loopback, because credentials could be read on the way. It reports how much was
// sent.
type carrier struct {
	total    int64
	progress *pull.Progress
	sent     atomic.Int64
}

var errPlain = errors.New("plain HTTP is only for a registry on the loopback")

func (t *carrier) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" && !loopback(req.URL.Hostname()) {
		if req.Body != nil {
			_ = req.Body.Close() // it was not sent
		}
		return nil, errPlain
	}
	if req.Body != nil && req.Body != http.NoBody && (req.Method == http.MethodPatch || req.Method == http.MethodPut) {
		req = req.Clone(req.Context())
		req.Body = &counted{ReadCloser: req.Body, count: t.count}
	}
	resp, err := remote.DefaultTransport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	return resp, nil
}

// leastStep is how much is sent at least between two lines of progress, in bytes.
const leastStep = 8 << 20

// count reports about each tenth of the image.
func (t *carrier) count(n int) {
	step := max(t.total/10, leastStep)
	sent := t.sent.Add(int64(n))
	if sent/step > (sent-int64(n))/step {
		t.progress.Line("push", fmt.Sprintf("%s of %s sent", text.Size(min(sent, t.total)), text.Size(t.total)))
	}
}

// counted counts what is read.
type counted struct {
	io.ReadCloser

	count func(n int)
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.count(n)
	return n, err
}

// hostOf drops the port.
func hostOf(registry string) string {
	if host, _, err := net.SplitHostPort(registry); err == nil {
		return host
	}
	return registry
}

// loopback reports whether a host is this machine, whatever a resolver says.
func loopback(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }
