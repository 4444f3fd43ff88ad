package push

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/evalbox/evalbox/images/pull"
)

// A Kind says why an image cannot be pushed, in words.
type Kind string

// The kinds of an [Error].
const (
	Unknown             Kind = ""
	NotTarget           Kind = "not a reference of a registry"
	RegistryUnavailable Kind = "the registry cannot be reached" // or cannot answer now
	CredentialsRefused  Kind = "the registry refuses the credentials"
	RepositoryMissing   Kind = "the registry has no such repository"
)

// An Error is an image that could not be pushed. Layers of it may be in the registry; its tag
// names what it named before.
type Error struct {
	// Ref is the reference that it was pushed to.
	Ref  string
	Kind Kind
	// Err is the error of the registry, or of a check.
	Err error
}

// maxSaid bounds the quoted part of a registry's answer, in bytes.
const maxSaid = 1000

func (e *Error) Error() string {
	said := e.Err.Error()
	if len(said) > maxSaid { // a registry wrote the text
		said = strings.ToValidUTF8(said[:maxSaid], "") + " …"
	}
	said = pull.Visible(said)
	switch e.Kind {
	case NotTarget:
		return fmt.Sprintf("%.300q is not a reference that an image can be pushed to: %s", e.Ref, said)
	case Unknown:
		return fmt.Sprintf("the image cannot be pushed to %s: %s", e.Ref, said)
	case RegistryUnavailable, CredentialsRefused, RepositoryMissing:
	}
	return fmt.Sprintf("the image cannot be pushed to %s: %s: %s", e.Ref, e.Kind, said)
}

func (e *Error) Unwrap() error { return e.Err }

// Hint says what to try.
func (e *Error) Hint() string {
	registry, _, _ := strings.Cut(e.Ref, "/")
	switch e.Kind {
	case NotTarget:
		return "give REGISTRY/REPOSITORY[:TAG], such as registry.example/team/tools:1.0"
	case RegistryUnavailable:
		return "this command, not the engine, connects to " + registry + ": check the name, network, proxy and certificate, then try again; only a registry on the loopback may lack HTTPS"
	case CredentialsRefused:
		return "log in with: docker login " + registry + "; if you are: check the name, and that your account may push it"
	case RepositoryMissing:
		return "check the name; some registries want a repository to be created first"
	case Unknown:
	}
	return "nothing was tagged; see what " + registry + " says about it, then try again"
}

// failed gives an error of a registry its kind. The end of ctx stays plain.
func failed(ctx context.Context, ref string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("pushing to %s: %w", ref, ctx.Err())
	}
	return &Error{Ref: ref, Kind: kindOf(err), Err: err}
}

// kindOf derives the kind from an error of a push. What is not an answer of the registry is a
// connection that failed: the image itself was read before.
func kindOf(err error) Kind {
	answer, ok := errors.AsType[*transport.Error](err)
	switch {
	case !ok:
		return RegistryUnavailable
	case answer.StatusCode == http.StatusUnauthorized, answer.StatusCode == http.StatusForbidden:
		return CredentialsRefused
	case answer.StatusCode == http.StatusNotFound:
		return RepositoryMissing
	case answer.StatusCode == http.StatusTooManyRequests, answer.StatusCode >= http.StatusInternalServerError:
		return RegistryUnavailable
	}
	return Unknown
}
