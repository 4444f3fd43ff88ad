package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/distribution/reference"
)

// PullOptions say how [Pull] works. All have defaults.
type PullOptions struct {
	// Platform is os/architecture[/variant]. Defaults to the engine's.
	Platform string
	// IgnoreMovedTag does without the comparison of tag and digest.
	IgnoreMovedTag bool
	// Credentials are for the registry. Defaults to [DockerCredentials] of the
	// default folder.
	Credentials Credentials
	// LockDir is the folder of the lock files that keep two processes from
	// pulling the same digest. It is created when missing. Defaults to evalbox
	// in the user's cache folder.
	LockDir string
	// Progress receives what is being done, with progress bars on a terminal.
	// Defaults to io.Discard.
	Progress io.Writer
	// Terminal says that Progress is a terminal, TerminalFD which one.
	Terminal   bool
	TerminalFD uintptr
}

// Pull makes sure that the engine has the image of a reference with a digest
// (name[:tag]@sha256:…). It returns the image and whether it was pulled just now;
// what the engine has already is not asked for again.
//
// The image is pulled by its digest, which the engine verifies. A tag beside the
// digest must still name it in the registry: if it names another one, that is a
// [*TagMovedError]. If the registry cannot tell, that is reported and does not
// matter. An image for another platform is a [*PlatformError], and is removed
// again. The other errors are [*PinError], [*PullError], and plain ones when ctx
// ended or the engine failed. None of them leaves anything in the engine.
//
// At most one process per LockDir pulls a given digest at a time; the others wait
// and then find it.
func Pull(ctx context.Context, eng PullEngine, ref string, opts PullOptions) (r Resolved, pulled bool, err error) {
	p, err := newPuller(eng, ref, opts)
	if err != nil {
		return Resolved{}, false, err
	}
	if err := p.choosePlatform(ctx); err != nil {
		return Resolved{}, false, err
	}
	if r, err := p.present(ctx); err != nil || r.ID != "" {
		return r, false, err
	}
	unlock, err := lockName(ctx, opts.LockDir, "pull-"+p.ref.Digest().Encoded(), func() {
		p.steps.line("pull", "another process is pulling this image, waiting for it")
	})
	if err != nil {
		return Resolved{}, false, fmt.Errorf("image %s: lock: %w", ref, err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if r, err := p.present(ctx); err != nil || r.ID != "" {
		return r, false, err
	}
	if err := p.compareTag(ctx); err != nil {
		return Resolved{}, false, err
	}
	if err := p.fetch(ctx); err != nil {
		return Resolved{}, false, err
	}
	r, err = p.verify(ctx)
	return r, err == nil, err
}

// PullName is [Pull] of what a name means: an entry of the catalog means its base,
// anything else is a reference.
func PullName(ctx context.Context, eng PullEngine, cat Catalog, name string, opts PullOptions) (Resolved, bool, error) {
	entry, ok := cat.Lookup(name)
	if name == "" || !ok {
		return Pull(ctx, eng, name, opts)
	}
	if entry.Base.Reference == "" {
		return Resolved{}, false, &CannotMakeError{
			Name: name, Reason: "stands on no image of a registry, there is nothing to pull",
			hint: "make it with: sandbox image ensure " + name,
		}
	}
	return Pull(ctx, eng, entry.Base.Reference, opts)
}

// pinned reads a reference that has a digest. The tag is empty when there is none.
func pinned(ref string) (canonical reference.Canonical, tag reference.NamedTagged, err error) {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return nil, nil, &PinError{Ref: ref, Err: err}
	}
	digested, ok := named.(reference.Digested)
	if !ok || !strings.HasPrefix(string(digested.Digest()), "sha256:") {
		return nil, nil, &PinError{Ref: ref}
	}
	repo := reference.TrimNamed(named)
	canonical, err = reference.WithDigest(repo, digested.Digest())
	if err != nil {
		return nil, nil, &PinError{Ref: ref, Err: err}
	}
	if tagged, ok := named.(reference.Tagged); ok {
		tag, err = reference.WithTag(repo, tagged.Tag())
	}
	return canonical, tag, err
}
