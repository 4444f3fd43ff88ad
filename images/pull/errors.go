package pull

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/client"
)

// A Kind says why an image cannot be pulled, in words.
type Kind string

// The kinds of an [Error].
const (
	Unknown             Kind = ""
	DigestMissing       Kind = "the registry does not have this digest"
	RegistryUnavailable Kind = "the registry cannot be reached" // by the engine, or cannot answer now
	CredentialsRefused  Kind = "the registry refuses the credentials"
	Interrupted         Kind = "the pull was interrupted" // or the registry sent something else
	WrongPlatform       Kind = "the image is for another platform"
	// TagMoved: the pin is out of date, or somebody has put another image under the tag.
	TagMoved     Kind = "the tag names another digest"
	NotPinned    Kind = "the reference has no digest"
	NotReference Kind = "not a reference"
)

// An Error is an image that could not be pulled. Nothing of it is in the engine, unless it
// was there before.
type Error struct {
	// Ref is the reference, with its digest.
	Ref  string
	Kind Kind
	// Err is the error of the engine, or of a check.
	Err error

	// own says that the text of Err is complete, because this package wrote it.
	own bool
}

// refused returns an error of a check of this package.
func refused(kind Kind, ref, format string, args ...any) error {
	return &Error{Ref: ref, Kind: kind, Err: fmt.Errorf(format, args...), own: true}
}

func (e *Error) Error() string {
	said := e.Err.Error()
	if e.own {
		return said
	}
	if len(said) > maxSaid { // a registry wrote the text
		said = strings.ToValidUTF8(said[:maxSaid], "") + " …"
	}
	if e.Kind == Unknown {
		return fmt.Sprintf("image %s cannot be pulled: %s", e.Ref, said)
	}
	return fmt.Sprintf("image %s cannot be pulled: %s: %s", e.Ref, e.Kind, said)
}

// maxSaid bounds the quoted part of a registry's answer, in bytes.
const maxSaid = 1000

func (e *Error) Unwrap() error { return e.Err }

// Hint says what to try.
func (e *Error) Hint() string {
	host := registryHost(e.Ref)
	switch e.Kind {
	case DigestMissing:
		return "the image was deleted there, or the digest is mistyped; pin what the registry has now, after a look at it"
	case RegistryUnavailable:
		return "the engine, not this command, connects to " + host + ": check its network, proxy and mirrors (docker info), then try again"
	case CredentialsRefused:
		return "log in with: docker login " + host + "; if you are: check the name, and that your account may pull it"
	case Interrupted:
		return "nothing was kept; try again"
	case WrongPlatform:
		return "pin the digest of the image for this platform, or name one with --platform"
	case TagMoved:
		return "find out why it moved, then pin the new digest; to use the pinned one all the same: --ignore-moved-tag"
	case NotPinned:
		return "the registry names the digest of a tag: docker buildx imagetools inspect " + e.Ref + "; see the pinned names with: sandbox image list"
	case NotReference:
		return "give a name of the catalog (sandbox image list), or [HOST/]NAME[:TAG]@sha256:…"
	case Unknown:
	}
	return "try: docker pull " + e.Ref
}

// pullFailed gives an error of a pull its kind. The end of ctx stays plain, and so does an
// engine that is gone.
func pullFailed(ctx context.Context, ref string, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("image %s: pull: %w", ref, ctx.Err())
	case client.IsErrConnectionFailed(err):
		return fmt.Errorf("image %s: pull: %w", ref, err)
	}
	return &Error{Ref: ref, Kind: kindOf(err), Err: err}
}

// kindOf derives the kind from an error of the engine. Engines give few of these errors a
// class: a registry's answer is an internal error with a text, and after the beginning of
// the answer there is only the text. The words are those of the engine's own puller (20.10
// and newer) and of containerd's; the order matters.
func kindOf(err error) Kind {
	text := strings.ToLower(err.Error())
	for _, c := range []struct {
		kind  Kind
		is    func(error) bool
		words []string
	}{
		{WrongPlatform, func(error) bool { return false }, []string{
			"no matching manifest for", "no match for platform", "does not match the specified platform", "cannot be used on this platform",
		}},
		{CredentialsRefused, errdefs.IsUnauthorized, []string{
			"no basic auth credentials", "unauthorized", "authentication required", "access denied", "denied: ",
			"access to the resource is denied", "403 forbidden", "authorization failed", "insufficient_scope", "incorrect username or password",
		}},
		{RegistryUnavailable, errdefs.IsUnavailable, []string{
			"connection refused", "no such host", "server misbehaving", "name resolution", "i/o timeout", "tls handshake timeout",
			"network is unreachable", "no route to host", "request canceled while waiting for connection", "context deadline exceeded",
			"client.timeout exceeded", "x509: ", "http response to https client", "toomanyrequests", "429 too many requests",
			"500 internal server error", "502 bad gateway", "503 service unavailable", "504 gateway", "proxyconnect",
		}},
		{Interrupted, errdefs.IsDataLoss, []string{
			"unexpected eof", "connection reset", "broken pipe", "verification failed", "failed to verify", "unexpected commit digest",
			"unexpected commit size", "short read", "stream error", "error pulling image configuration", "download failed", ": eof",
		}},
		{DigestMissing, errdefs.IsNotFound, []string{
			"manifest unknown", "not found", "name unknown", "404 ",
		}},
	} {
		says := func(word string) bool { return strings.Contains(": "+text, word) } // "eof" may be the whole text
		if c.is(err) || slices.ContainsFunc(c.words, says) {
			return c.kind
		}
	}
	return Unknown
}

// registryHost is the host of the registry of a reference.
func registryHost(ref string) string {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return "its registry"
	}
	return reference.Domain(named)
}
