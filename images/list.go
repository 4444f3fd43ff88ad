package images

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
)

// Status is what the engine has of one image of a catalog.
type Status struct {
	Name        string
	Description string
	// Tag is the local name in the engine.
	Tag string
	// Base describes what the image stands on.
	Base string
	// Default says that a run without an image uses this one.
	Default bool
	// Makeable says that [Ensure] knows how to make it.
	Makeable bool
	// Present says that the engine has it; the fields below are zero if not.
	Present bool
	ID      string
	// Content and Platform are as in [Resolved].
	Content, Platform string
	// SizeBytes is what the engine reports: all layers together.
	SizeBytes int64
	// Created is RFC 3339, empty when the engine does not know it.
	Created string
}

// Resolved is the image as [Resolve] would find it, if it is present.
func (s Status) Resolved() Resolved {
	return Resolved{Name: s.Name, Reference: s.Tag, ID: s.ID, Platform: s.Platform, Content: s.Content, CatalogName: true}
}

// List says for every image of a catalog, sorted by name, what the engine has.
func List(ctx context.Context, eng Inspector, cat Catalog) ([]Status, error) {
	var all []Status
	for _, name := range cat.Names() {
		e, _ := cat.Lookup(name)
		s := Status{
			Name: name, Description: e.Description, Tag: e.Tag(), Base: e.Base.String(),
			Default: name == cat.Default, Makeable: true,
		}
		found, err := eng.ImageInspect(ctx, s.Tag)
		switch {
		case err == nil:
			s.Present, s.ID, s.SizeBytes, s.Created = true, found.ID, found.Size, found.Created
			s.Content, s.Platform = contentOf(found), platform(found)
		case !errdefs.IsNotFound(err):
			return nil, fmt.Errorf("looking up image %s: %w", name, err)
		}
		all = append(all, s)
	}
	return all, nil
}
