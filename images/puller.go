package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/registry"
	"github.com/docker/docker/pkg/jsonmessage"
)

// A puller pulls one image once.
type puller struct {
	eng   PullEngine
	given string              // the reference as it was given
	ref   reference.Canonical // repository and digest
	tag   reference.NamedTagged
	opts  PullOptions
	steps *steps
	auth  string // encoded, see [registry.EncodeAuthConfig]; read once
	asked bool   // auth was read
}

func newPuller(eng PullEngine, given string, opts PullOptions) (*puller, error) {
	ref, tag, err := pinned(given)
	if err != nil {
		return nil, err
	}
	if opts.Platform != "" && len(strings.Split(opts.Platform, "/")) < 2 {
		return nil, fmt.Errorf("platform %q: must be os/architecture, such as linux/amd64", opts.Platform)
	}
	if opts.Progress == nil {
		opts.Progress = io.Discard
	}
	if opts.Credentials == nil {
		opts.Credentials = DockerCredentials("")
	}
	return &puller{eng: eng, given: given, ref: ref, tag: tag, opts: opts, steps: newSteps(opts.Progress)}, nil
}

// name is the reference by which the engine knows the image.
func (p *puller) name() string { return reference.FamiliarString(p.ref) }

// choosePlatform asks the engine for its platform when none was given.
func (p *puller) choosePlatform(ctx context.Context) error {
	if p.opts.Platform != "" {
		return nil
	}
	v, err := p.eng.ServerVersion(ctx)
	if err != nil {
		return fmt.Errorf("image %s: asking the engine for its platform: %w", p.given, err)
	}
	p.opts.Platform = v.Os + "/" + v.Arch
	return nil
}

// present returns the image if the engine has it, or else the zero value.
func (p *puller) present(ctx context.Context) (Resolved, error) {
	r, err := p.resolve(ctx)
	if errdefs.IsNotFound(err) {
		return Resolved{}, nil
	}
	return r, err
}

// resolve looks the image up under its digest, and checks digest and platform.
func (p *puller) resolve(ctx context.Context) (Resolved, error) {
	found, err := p.eng.ImageInspect(ctx, p.name())
	if err != nil {
		return Resolved{}, fmt.Errorf("looking up image %s: %w", p.given, err)
	}
	r := Resolved{Name: p.given, Reference: p.name(), ID: found.ID, Digest: p.name(), Platform: platform(found)}
	if !holds(found.RepoDigests, p.ref) {
		return Resolved{}, fmt.Errorf("looking up image %s: the engine lists other digests: %q", p.given, found.RepoDigests)
	}
	if !fits(found, p.opts.Platform) {
		return Resolved{}, &PlatformError{Ref: p.given, Want: p.opts.Platform, Have: r.Platform}
	}
	return r, nil
}

// holds says that digests, as the engine lists them, hold ref.
func holds(digests []string, ref reference.Canonical) bool {
	for _, d := range digests {
		if have, err := reference.ParseNormalizedNamed(d); err == nil && have.String() == ref.String() {
			return true
		}
	}
	return false
}

// fits says that an image is for a platform. A variant counts only if one is
// wanted and the image names one.
func fits(found image.InspectResponse, want string) bool {
	parts := strings.Split(strings.ToLower(want), "/")
	return found.Os == parts[0] && found.Architecture == parts[1] &&
		(len(parts) < 3 || found.Variant == "" || found.Variant == parts[2])
}

// credentials are those of the registry, encoded for the engine. Without any, the
// registry decides.
func (p *puller) credentials() string {
	if p.asked {
		return p.auth
	}
	p.asked = true
	auth, err := p.opts.Credentials(reference.Domain(p.ref))
	if err != nil {
		p.steps.line("pull", fmt.Sprintf("%v; going on without credentials", err))
		return ""
	}
	if auth == (registry.AuthConfig{}) {
		return ""
	}
	p.auth, err = registry.EncodeAuthConfig(auth)
	if err != nil {
		p.steps.line("pull", "the credentials cannot be encoded; going on without")
	}
	return p.auth
}

// compareTag refuses a tag that names another digest. It asks the registry, and
// what it cannot learn does not matter: the digest decides what is pulled.
func (p *puller) compareTag(ctx context.Context) error {
	if p.tag == nil || p.opts.IgnoreMovedTag {
		return nil
	}
	now, err := p.eng.DistributionInspect(ctx, p.tag.String(), p.credentials())
	switch {
	case ctx.Err() != nil:
		return pullFailed(ctx, p.given, ctx.Err())
	case err != nil && errors.Is(pullFailed(ctx, p.given, err), ErrDigestMissing):
		p.steps.line("pull", "the registry has no such repository or tag "+p.tag.Tag()+"; pulling by the digest")
	case err != nil:
		p.steps.line("pull", "the tag "+p.tag.Tag()+" cannot be compared: "+err.Error())
	case now.Descriptor.Digest != p.ref.Digest():
		return &TagMovedError{Ref: p.given, Pinned: p.ref.Digest().String(), Now: now.Descriptor.Digest.String()}
	}
	return nil
}

// fetch pulls by the digest.
func (p *puller) fetch(ctx context.Context) error {
	p.steps.line("pull", p.given+" for "+p.opts.Platform)
	body, err := p.eng.ImagePull(ctx, p.ref.String(), image.PullOptions{
		RegistryAuth: p.credentials(), Platform: p.opts.Platform,
	})
	if err == nil {
		err = jsonmessage.DisplayJSONMessagesStream(body, p.steps, p.opts.TerminalFD, p.opts.Terminal, nil)
		_ = body.Close() // after an error there is nothing more to learn
	}
	if err != nil {
		return pullFailed(ctx, p.given, err)
	}
	return nil
}

// verify checks what was pulled, and removes it if it is not what was wanted.
func (p *puller) verify(ctx context.Context) (Resolved, error) {
	r, err := p.resolve(ctx)
	if err == nil {
		return r, nil
	}
	if errdefs.IsNotFound(err) {
		return Resolved{}, fmt.Errorf("image %s: the engine pulled it, but does not list it under its digest: %w", p.given, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTime)
	defer cancel()
	_, removeErr := p.eng.ImageRemove(ctx, p.name(), image.RemoveOptions{PruneChildren: true})
	return Resolved{}, errors.Join(err, ignoreNotFound(removeErr))
}
