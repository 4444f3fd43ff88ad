package images

import (
	"errors"
	"fmt"
	"strings"
)

// ErrNotFound means that the engine does not have an image. The error is a
// [*NotFoundError].
var ErrNotFound = errors.New("image not found")

// A NotFoundError names an image that the engine does not have.
type NotFoundError struct {
	// Ref is the requested reference, or the default name.
	Ref string
	// CatalogName says that Ref is a name of the catalog.
	CatalogName bool
	// Entry is the entry of that name.
	Entry Entry
}

func (e *NotFoundError) Error() string {
	if e.CatalogName {
		return fmt.Sprintf("image %s (%s) is not in the engine", e.Ref, e.Entry.Tag())
	}
	return fmt.Sprintf("image %q is neither a name of the catalog nor in the engine", e.Ref)
}

// Is makes errors.Is(err, ErrNotFound) true.
func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }

// Hint says how to get the image.
func (e *NotFoundError) Hint() string {
	switch {
	case e.CatalogName:
		return "make it with: sandbox image ensure " + e.Ref
	case strings.HasPrefix(e.Ref, Repository):
		return "images of evalbox are in no registry: make it with sandbox image ensure, or import it with sandbox image import"
	case strings.HasPrefix(e.Ref, "sha256:"):
		return "see what the engine has with: docker image ls --no-trunc"
	case IsPinned(e.Ref):
		return "nothing is pulled unasked; pull it with: sandbox image pull " + e.Ref
	case strings.ContainsAny(e.Ref, "/:."):
		return "see the names with: sandbox image list; nothing is pulled unasked, so for an image of a registry: docker pull " + e.Ref
	default:
		// A bare word is most likely a name of another catalog. An image of a registry with
		// this name is another image.
		return "see the names with: sandbox image list; name another catalog with --catalog; for an image of a registry write NAME:TAG"
	}
}

// WithHint returns an error that wraps err and whose method Hint() string returns hint.
func WithHint(err error, hint string) error { return &hintedError{err, hint} }

type hintedError struct {
	error

	hint string
}

func (e *hintedError) Unwrap() error { return e.error }

func (e *hintedError) Hint() string { return e.hint }
