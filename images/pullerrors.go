package images

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/client"
)

// Why an image cannot be pulled. A [*PullError] is one of them, or none when the
// reason is not known.
var (
	// ErrDigestMissing: the registry does not have what the digest names.
	ErrDigestMissing = errors.New("the registry does not have this digest")
	// ErrRegistryUnavailable: the engine cannot reach the registry, or the
	// registry cannot answer now.
	ErrRegistryUnavailable = errors.New("the registry cannot be reached")
	// ErrCredentialsRefused: the registry wants credentials, or other ones.
	ErrCredentialsRefused = errors.New("the registry refuses the credentials")
	// ErrPullInterrupted: the registry broke off, or sent something else.
	ErrPullInterrupted = errors.New("the pull was interrupted")
	// ErrWrongPlatform: the image is for another platform. The error is a
	// [*PlatformError] when the image's platform is known.
	ErrWrongPlatform = errors.New("the image is for another platform")
	// ErrTagMoved: the tag names another digest. The error is a
	// [*TagMovedError].
	ErrTagMoved = errors.New("the tag names another digest")
	// ErrNotPinned: the reference has no digest. The error is a [*PinError].
	ErrNotPinned = errors.New("the reference has no digest")
)

// A PullError is an image that could not be pulled. Nothing of it is in the
// engine, unless it was there before.
type PullError struct {
	// Ref is the reference that was pulled, with its digest.
	Ref string
	// Reason is one of the errors above, nil when it is none of them.
	Reason error
	// Err is what the engine said.
	Err error
}

func (e *PullError) Error() string {
	said := e.Err.Error()
	if len(said) > maxSaid { // a registry chose the words
		said = strings.ToValidUTF8(said[:maxSaid], "") + " …"
	}
	if e.Reason == nil {
		return fmt.Sprintf("image %s cannot be pulled: %s", e.Ref, said)
	}
	return fmt.Sprintf("image %s cannot be pulled: %v: %s", e.Ref, e.Reason, said)
}

// maxSaid bounds what is repeated of a registry's answer, in bytes.
const maxSaid = 1000

func (e *PullError) Unwrap() error { return e.Err }

// Is makes errors.Is true for the reason.
func (e *PullError) Is(target error) bool { return target == e.Reason }

// Hint says what to do about it.
func (e *PullError) Hint() string {
	host := registryHost(e.Ref)
	switch {
	case errors.Is(e.Reason, ErrDigestMissing):
		return "the image was deleted there, or the digest is mistyped; pin what the registry has now, after a look at it"
	case errors.Is(e.Reason, ErrRegistryUnavailable):
		return "the engine, not this command, connects to " + host + ": check its network, proxy and mirrors (docker info), then try again"
	case errors.Is(e.Reason, ErrCredentialsRefused):
		return "log in with: docker login " + host + "; if you are: check the name, and that your account may pull it"
	case errors.Is(e.Reason, ErrPullInterrupted):
		return "nothing was kept; try again"
	case errors.Is(e.Reason, ErrWrongPlatform):
		return "pin the digest of the image for this platform, or name one with --platform"
	}
	return "try: docker pull " + e.Ref
}

// A TagMovedError is a reference whose tag and digest no longer belong together:
// the pin is out of date, or somebody has put another image under the tag.
type TagMovedError struct {
	// Ref is the reference, with tag and digest.
	Ref string
	// Pinned is the digest in the reference, Now the one that the registry
	// gives for the tag.
	Pinned, Now string
}

func (e *TagMovedError) Error() string {
	return fmt.Sprintf("image %s: the tag names another image now: pinned %s, in the registry %s", e.Ref, e.Pinned, e.Now)
}

// Is makes errors.Is(err, ErrTagMoved) true.
func (e *TagMovedError) Is(target error) bool { return target == ErrTagMoved }

// Hint says what to do about it.
func (e *TagMovedError) Hint() string {
	return "find out why it moved, then pin the new digest; to use the pinned one all the same: --ignore-moved-tag"
}

// A PlatformError is an image for another platform than the wanted one.
type PlatformError struct {
	Ref string
	// Want and Have are os/architecture[/variant].
	Want, Have string
}

func (e *PlatformError) Error() string {
	return fmt.Sprintf("image %s is for %s, wanted is %s", e.Ref, e.Have, e.Want)
}

// Is makes errors.Is(err, ErrWrongPlatform) true.
func (e *PlatformError) Is(target error) bool { return target == ErrWrongPlatform }

// Hint says what to do about it.
func (e *PlatformError) Hint() string {
	return (&PullError{Reason: ErrWrongPlatform}).Hint()
}

// A PinError is a reference without a digest, or no reference at all.
type PinError struct {
	Ref string
	// Err says why it is not a reference; nil if it is one.
	Err error
}

func (e *PinError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("image %q is not a reference: %v", e.Ref, e.Err)
	}
	return fmt.Sprintf("image %q is not pinned: a pull wants a digest, as in NAME:TAG@sha256:…", e.Ref)
}

func (e *PinError) Unwrap() error { return e.Err }

// Is makes errors.Is(err, ErrNotPinned) true.
func (e *PinError) Is(target error) bool { return target == ErrNotPinned }

// Hint says what to do about it.
func (e *PinError) Hint() string {
	if e.Err != nil {
		return "give a name of the catalog (sandbox image list), or [HOST/]NAME[:TAG]@sha256:…"
	}
	return "the registry tells the digest of a tag: docker buildx imagetools inspect " + e.Ref + "; see the pinned names with: sandbox image list"
}

// pullFailed gives an error of a pull its class. The end of ctx stays plain, and
// so does an engine that is gone.
func pullFailed(ctx context.Context, ref string, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("image %s: pull: %w", ref, ctx.Err())
	case client.IsErrConnectionFailed(err):
		return fmt.Errorf("image %s: pull: %w", ref, err)
	}
	return &PullError{Ref: ref, Reason: pullReason(err), Err: err}
}

// pullReason finds the reason in what the engine says. Engines give few of these
// errors a class: to them, a registry's answer is an internal error with a text,
// and once the answer has begun the text is all there is. Hence the words, of the
// engine's own puller (20.10 and newer) and of containerd's; the order matters.
func pullReason(err error) error {
	text := strings.ToLower(err.Error())
	for _, c := range []struct {
		reason error
		is     func(error) bool
		words  []string
	}{
		{ErrWrongPlatform, nil, []string{
			"no matching manifest for", "no match for platform", "does not match the specified platform", "cannot be used on this platform",
		}},
		{ErrCredentialsRefused, errdefs.IsUnauthorized, []string{
			"no basic auth credentials", "unauthorized", "authentication required", "access denied", "denied: ",
			"access to the resource is denied", "403 forbidden", "authorization failed", "insufficient_scope", "incorrect username or password",
		}},
		{ErrRegistryUnavailable, errdefs.IsUnavailable, []string{
			"connection refused", "no such host", "server misbehaving", "name resolution", "i/o timeout", "tls handshake timeout",
			"network is unreachable", "no route to host", "request canceled while waiting for connection", "context deadline exceeded",
			"client.timeout exceeded", "x509: ", "http response to https client", "toomanyrequests", "429 too many requests",
			"500 internal server error", "502 bad gateway", "503 service unavailable", "504 gateway", "proxyconnect",
		}},
		{ErrPullInterrupted, errdefs.IsDataLoss, []string{
			"unexpected eof", "connection reset", "broken pipe", "verification failed", "failed to verify", "unexpected commit digest",
			"unexpected commit size", "short read", "stream error", "error pulling image configuration", "download failed", ": eof",
		}},
		{ErrDigestMissing, errdefs.IsNotFound, []string{
			"manifest unknown", "not found", "name unknown", "404 ",
		}},
	} {
		if c.is != nil && c.is(err) {
			return c.reason
		}
		for _, w := range c.words {
			if strings.Contains(": "+text, w) { // "eof" may be all that is said
				return c.reason
			}
		}
	}
	return nil
}

// registryHost is the host of the registry of a reference.
func registryHost(ref string) string {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return "its registry"
	}
	return reference.Domain(named)
}
