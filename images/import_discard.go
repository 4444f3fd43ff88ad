package images

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/image"
)

// An inventory is what the engine has: the IDs of all images, and that of each name.
type inventory struct {
	ids   map[string]bool
	names map[string]string
}

func (i importer) present(ctx context.Context) (inventory, error) {
	all, err := i.eng.ImageList(ctx, image.ListOptions{All: true})
	if err != nil {
		return inventory{}, fmt.Errorf("listing the images: %w", err)
	}
	have := inventory{ids: map[string]bool{}, names: map[string]string{}}
	for _, one := range all {
		have.ids[one.ID] = true
		for _, name := range one.RepoTags {
			have.names[name] = one.ID
		}
	}
	return have, nil
}

// discard removes the one image that was loaded.
func (i importer) discard(ctx context.Context, id string) error {
	ctx, cancel := withoutCancel(ctx)
	defer cancel()
	_, err := i.eng.ImageRemove(ctx, id, image.RemoveOptions{Force: true, PruneChildren: true})
	return ignoreNotFound(err)
}

// discardNew undoes a load that went wrong, of which the engine may have told
// nothing: names that it took get back to where they were, and images that are new
// are removed, unless they are somebody else's: those that have a name, were built,
// or are used by a container. Of an archive that it did not get it has nothing.
func (i importer) discardNew(ctx context.Context, before inventory, report loadReport) error {
	if report.cut && len(report.ids)+len(report.names) == 0 {
		return nil
	}
	ctx, cancel := withoutCancel(ctx)
	defer cancel()
	var errs []error
	for name := range report.names {
		if id := before.names[name]; id != "" {
			errs = append(errs, i.eng.ImageTag(ctx, id, name))
			continue
		}
		_, err := i.eng.ImageRemove(ctx, name, image.RemoveOptions{})
		errs = append(errs, ignoreNotFound(err))
	}
	all, err := i.eng.ImageList(ctx, image.ListOptions{All: true})
	errs = append(errs, err)
	for _, img := range all {
		if before.ids[img.ID] || tagged(img) || img.ParentID != "" {
			continue
		}
		_, err := i.eng.ImageRemove(ctx, img.ID, image.RemoveOptions{PruneChildren: true})
		if errdefs.IsConflict(err) {
			err = nil // a container of somebody stands on it
		}
		errs = append(errs, ignoreNotFound(err))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("removing what was loaded: %w", err)
	}
	return nil
}
