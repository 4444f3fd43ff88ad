// Package pull pulls images of registries by their digests.
package pull

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/cli/cli/config"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/registry"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/jsonmessage"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/store"
)

// Options say how [Pull] works. All have defaults.
type Options struct {
	// Platform is os/architecture[/variant]. Defaults to the engine's.
	Platform string
	// IgnoreMovedTag skips the comparison of tag and digest.
	IgnoreMovedTag bool
	// Credentials are for the registry. Defaults to [DockerCredentials] of the default
	// directory.
	Credentials Credentials
	// Progress receives a line per step, and progress bars on a terminal. Defaults to
	// io.Discard.
	Progress io.Writer
	// Terminal says that Progress is a terminal, TerminalFD is its file descriptor.
	Terminal   bool
	TerminalFD uintptr
}

// Pull makes sure that the engine has the image of a reference with a digest
// (name[:tag]@sha256:…). It returns the image and whether it was pulled just now; an image
// that the engine has is not pulled again.
//
// The image is pulled by its digest, which the engine verifies. A tag beside the digest
// must still name the image in the registry: another image is an error of the kind
// [TagMoved]. A registry that cannot answer this question is reported to Progress only. An
// image for another platform is an error, and is removed again. The errors are [*Error], and
// plain ones when ctx ended or the engine failed. After an error nothing is left in the
// engine.
//
// At most one process of a user pulls a given digest at a time; the others wait and then
// find it.
func Pull(ctx context.Context, api client.APIClient, ref string, opts Options) (r images.Resolved, pulled bool, err error) {
	p, err := newPuller(ctx, api, ref, opts)
	if err != nil {
		return images.Resolved{}, false, err
	}
	if r, err := p.present(ctx); err != nil || r.ID != "" {
		return r, false, err
	}
	unlock, err := images.WaitLock(ctx, "pull-"+p.ref.Digest().Encoded(), func() {
		p.progress.Line("pull", "another process is pulling this image, waiting for it")
	})
	if err != nil {
		return images.Resolved{}, false, fmt.Errorf("image %s: lock: %w", ref, err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if r, err := p.present(ctx); err != nil || r.ID != "" {
		return r, false, err
	}
	if err := p.compareTag(ctx); err != nil {
		return images.Resolved{}, false, err
	}
	if err := p.fetch(ctx); err != nil {
		return images.Resolved{}, false, err
	}
	r, err = p.verify(ctx)
	return r, err == nil, err
}

// Named is [Pull] of what a name means: an entry of the catalog means its base, anything
// else is a reference.
func Named(ctx context.Context, api client.APIClient, cat images.Catalog, name string, opts Options) (images.Resolved, bool, error) {
	ref := name
	if entry, ok := cat.Lookup(name); ok && name != "" {
		ref = entry.Base.Reference
		if ref == "" {
			err := fmt.Errorf("image %s: stands on no image of a registry, there is nothing to pull", name)
			return images.Resolved{}, false, images.WithHint(err, "make it with: sandbox image ensure "+name)
		}
	}
	return Pull(ctx, api, ref, opts)
}

// A puller pulls one image once.
type puller struct {
	eng      store.Docker
	given    string              // the reference of the caller
	ref      reference.Canonical // repository and digest
	tag      reference.NamedTagged
	opts     Options
	progress *Progress
	auth     func() string // encoded, see [registry.EncodeAuthConfig]; read once
}

// newPuller asks the engine for its platform when none was given.
func newPuller(ctx context.Context, api client.APIClient, given string, opts Options) (*puller, error) {
	ref, tag, err := images.ParsePinned(given)
	switch {
	case errors.Is(err, images.ErrNotPinned):
		return nil, refused(NotPinned, given, "image %q is not pinned: %w", given, err)
	case err != nil:
		return nil, refused(NotReference, given, "image %q is not a reference: %w", given, err)
	case opts.Platform != "" && !strings.Contains(opts.Platform, "/"):
		return nil, fmt.Errorf("platform %q: must be os/architecture, such as linux/amd64", opts.Platform)
	}
	if opts.Platform == "" {
		v, err := api.ServerVersion(ctx)
		if err != nil {
			return nil, fmt.Errorf("image %s: asking the engine for its platform: %w", given, err)
		}
		opts.Platform = v.Os + "/" + v.Arch
	}
	if opts.Credentials == nil {
		opts.Credentials = DockerCredentials("")
	}
	p := &puller{eng: store.Docker{APIClient: api}, given: given, ref: ref, tag: tag, opts: opts, progress: NewProgress(opts.Progress)}
	p.auth = sync.OnceValue(p.credentials)
	return p, nil
}

// present returns the image if the engine has it, or else the zero value.
func (p *puller) present(ctx context.Context) (images.Resolved, error) {
	r, err := p.resolve(ctx)
	return r, store.IgnoreNotFound(err)
}

// resolve looks the image up under its digest, and checks digest and platform.
func (p *puller) resolve(ctx context.Context) (images.Resolved, error) {
	name := reference.FamiliarString(p.ref)
	found, err := p.eng.Image(ctx, name)
	if err != nil {
		return images.Resolved{}, fmt.Errorf("looking up image %s: %w", p.given, err)
	}
	holds := func(listed string) bool {
		have, err := reference.ParseNormalizedNamed(listed)
		return err == nil && have.String() == p.ref.String()
	}
	if !slices.ContainsFunc(found.Digests, holds) {
		return images.Resolved{}, fmt.Errorf("looking up image %s: the engine lists other digests: %q", p.given, found.Digests)
	}
	if !fits(found.Platform, p.opts.Platform) {
		return images.Resolved{}, refused(WrongPlatform, p.given, "image %s is for %s, wanted is %s", p.given, found.Platform, p.opts.Platform)
	}
	return images.Resolved{Name: p.given, Reference: name, ID: found.ID, Digest: name, Platform: found.Platform}, nil
}

// fits reports whether the platform of an image is the wanted one. The variant counts only
// if both have one.
func fits(have, want string) bool {
	has, wants := strings.Split(have, "/"), strings.Split(strings.ToLower(want), "/")
	return has[0] == wants[0] && has[1] == wants[1] && (len(wants) < 3 || len(has) < 3 || has[2] == wants[2])
}

// credentials returns those of the registry, encoded for the engine; empty if there are none.
func (p *puller) credentials() string {
	auth, err := p.opts.Credentials(reference.Domain(p.ref))
	if err != nil {
		p.progress.Line("pull", fmt.Sprintf("%v; going on without credentials", err))
		return ""
	}
	if auth == (registry.AuthConfig{}) {
		return ""
	}
	encoded, err := registry.EncodeAuthConfig(auth)
	if err != nil {
		p.progress.Line("pull", "the credentials cannot be encoded; going on without")
	}
	return encoded
}

// compareTag refuses a tag that names another digest in the registry. A registry that does
// not answer is not an error, because the pull is by digest.
func (p *puller) compareTag(ctx context.Context) error {
	if p.tag == nil || p.opts.IgnoreMovedTag {
		return nil
	}
	now, err := p.eng.DistributionInspect(ctx, p.tag.String(), p.auth())
	switch {
	case ctx.Err() != nil:
		return pullFailed(ctx, p.given, ctx.Err())
	case err != nil && !client.IsErrConnectionFailed(err) && kindOf(err) == DigestMissing:
		p.progress.Line("pull", "the registry has no such repository or tag "+p.tag.Tag()+"; pulling by the digest")
	case err != nil:
		p.progress.Line("pull", "the tag "+p.tag.Tag()+" cannot be compared: "+err.Error())
	case now.Descriptor.Digest != p.ref.Digest():
		return refused(TagMoved, p.given, "image %s: the tag names another image now: pinned %s, in the registry %s",
			p.given, p.ref.Digest(), now.Descriptor.Digest)
	}
	return nil
}

// fetch pulls by the digest.
func (p *puller) fetch(ctx context.Context) error {
	p.progress.Line("pull", p.given+" for "+p.opts.Platform)
	body, err := p.eng.ImagePull(ctx, p.ref.String(), image.PullOptions{
		RegistryAuth: p.auth(), Platform: p.opts.Platform,
	})
	if err == nil {
		err = store.StreamError(jsonmessage.DisplayJSONMessagesStream(body, p.progress, p.opts.TerminalFD, p.opts.Terminal, nil))
		_ = body.Close() // after an error there is nothing more to learn
	}
	if err != nil {
		return pullFailed(ctx, p.given, err)
	}
	return nil
}

// verify checks the pulled image, and removes it if it is the wrong one.
func (p *puller) verify(ctx context.Context) (images.Resolved, error) {
	r, err := p.resolve(ctx)
	if err == nil {
		return r, nil
	}
	if errdefs.IsNotFound(err) {
		return images.Resolved{}, fmt.Errorf("image %s: the engine pulled it, but does not list it under its digest: %w", p.given, err)
	}
	ctx, cancel := store.Cleanup(ctx)
	defer cancel()
	removed := p.eng.Remove(ctx, reference.FamiliarString(p.ref), image.RemoveOptions{PruneChildren: true})
	return images.Resolved{}, errors.Join(err, removed)
}

// Credentials returns the credentials for a registry; the zero value means none. The host is
// as in a reference: docker.io, or host[:port]. The result goes only to the engine, with the
// request that needs it. The errors must not hold secrets.
type Credentials func(host string) (registry.AuthConfig, error)

// dockerHub is the name of the registry of names without a host in Docker's configuration.
const dockerHub = "https://index.docker.io/v1/"

// DockerCredentials are those of Docker's configuration in a directory, where docker login
// keeps them: in config.json, or in the credential store or helper that it names. The empty
// directory means $DOCKER_CONFIG, or else ~/.docker. The configuration is read anew for
// each registry.
func DockerCredentials(dir string) Credentials {
	return func(host string) (registry.AuthConfig, error) {
		file, err := config.Load(dir)
		if err != nil {
			return registry.AuthConfig{}, fmt.Errorf("the Docker configuration cannot be read: %w", err)
		}
		key := host
		if host == "docker.io" || host == "index.docker.io" {
			key = dockerHub
		}
		found, err := file.GetAuthConfig(key)
		if err != nil {
			helper := file.CredentialsStore
			if own, ok := file.CredentialHelpers[key]; ok {
				helper = own
			}
			if _, missing := exec.LookPath("docker-credential-" + helper); helper != "" && missing != nil {
				return registry.AuthConfig{}, fmt.Errorf("the credential helper of the Docker configuration for %s, docker-credential-%s, is not there", host, helper)
			}
			// Without the text of the error: a helper may have said anything.
			return registry.AuthConfig{}, fmt.Errorf("the credential store of the Docker configuration failed for %s", host)
		}
		return registry.AuthConfig{
			Username: found.Username, Password: found.Password, Auth: found.Auth,
			ServerAddress: found.ServerAddress, IdentityToken: found.IdentityToken, RegistryToken: found.RegistryToken,
		}, nil
	}
}

// Progress writes one line for each step, with the time since the beginning. It is safe for
// concurrent use, and ignores errors of the writer.
type Progress struct {
	start time.Time

	mu sync.Mutex
	w  io.Writer // guarded by mu
}

// NewProgress returns a Progress that begins now. A nil writer discards.
func NewProgress(w io.Writer) *Progress {
	if w == nil {
		w = io.Discard
	}
	return &Progress{start: time.Now(), w: w}
}

// Line writes one line of a step.
func (p *Progress) Line(step, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintf(p.w, "[%6.1fs] %s: %s\n", time.Since(p.start).Seconds(), step, Visible(strings.TrimSpace(text)))
}

// Write passes the output of the engine on unchanged.
func (p *Progress) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = p.w.Write(data)
	return len(data), nil
}

// escapeSequence matches a sequence that colours text or moves the cursor.
var escapeSequence = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\x1b\[[0-?]*[ -/]*[@-~]`) })

// Visible drops control characters, and whole escape sequences, that could drive a terminal.
func Visible(text string) string {
	text = escapeSequence().ReplaceAllString(text, "")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}
