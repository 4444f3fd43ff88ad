package kubernetes

import (
	"context"
	"fmt"

	"github.com/distribution/reference"

	"github.com/evalbox/evalbox/images"
)

// resolve finds an image by its digest. It asks nobody: the nodes pull the image.
func resolve(_ context.Context, ref string) (images.Resolved, error) {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return images.Resolved{}, fmt.Errorf("image %q is not a reference: %w", ref, err)
	}
	digested, ok := named.(reference.Digested)
	if !ok {
		return images.Resolved{}, &noDigestError{ref}
	}
	id := digested.Digest().String()
	return images.Resolved{Name: ref, Reference: ref, ID: id, Digest: named.Name() + "@" + id, Platform: "linux/amd64", Content: id}, nil
}

// A noDigestError is an [images.ErrNotFound] of a name that the engine cannot resolve.
type noDigestError struct{ ref string }

func (e *noDigestError) Error() string {
	return fmt.Sprintf("image %q has no digest: on a cluster only a digest names one image", e.ref)
}

func (e *noDigestError) Unwrap() error { return images.ErrNotFound }

// Hint says what to do.
func (e *noDigestError) Hint() string {
	return "name it as REGISTRY/REPOSITORY@sha256:…; sandbox image push prints that of a local image"
}
