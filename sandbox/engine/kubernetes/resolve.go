package kubernetes

import (
	"context"
	"fmt"

	"github.com/distribution/reference"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/policy"
)

// resolve finds an image by its digest. It asks nobody: the nodes pull the image.
func resolve(_ context.Context, ref string) (images.Resolved, error) {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return images.Resolved{}, fmt.Errorf("image %q is not a reference: %w", ref, err)
	}
	digested, ok := named.(reference.Digested)
	if !ok {
		return images.Resolved{}, &policy.FieldError{Field: "image", Value: fmt.Sprintf("%q", ref),
			Rule: "has no digest: on a cluster only a digest names one image",
			Hint: "name it as REGISTRY/REPOSITORY@sha256:…, which sandbox image push prints"}
	}
	id := digested.Digest().String()
	return images.Resolved{Name: ref, Reference: ref, ID: id, Digest: reference.TrimNamed(named).Name() + "@" + id, Platform: "linux/amd64", Content: id}, nil
}
