package images

import (
	"context"
	"errors"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/image"
)

// discardTime bounds cleaning up, which the caller's context does not end.
const discardTime = time.Minute

// untagBase takes the temporary name off the base. Its layer stays: the image
// stands on it.
func (m *maker) untagBase(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTime)
	defer cancel()
	_, err := m.eng.ImageRemove(ctx, m.entry.baseTag(), image.RemoveOptions{Force: true})
	if err = ignoreNotFound(err); err != nil {
		return m.failed(ctx, "clean up", err)
	}
	return nil
}

// discard removes what an unfinished build has left.
func (m *maker) discard(ctx context.Context) error {
	if m.entry.Base.Bootstrap != nil {
		return m.discardBase(ctx)
	}
	return m.discardSteps(ctx)
}

// discardSteps removes what an unfinished build left on a base of a registry, on
// which images of others may stand: only what has the label of this recipe. It
// takes parents without a name with it, but not the base, which has a digest.
func (m *maker) discardSteps(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTime)
	defer cancel()
	all, err := m.eng.ImageList(ctx, image.ListOptions{All: true})
	if err != nil {
		return m.failed(ctx, "clean up", err)
	}
	var errs []error
	for _, img := range all {
		if img.Labels[LabelRecipe] != m.entry.Recipe() || tagged(img) {
			continue
		}
		// The last of a chain of steps takes its parents with it.
		if ids, used := loose(all, img.ID); used || len(ids) > 0 {
			continue
		}
		_, err := m.eng.ImageRemove(ctx, img.ID, image.RemoveOptions{PruneChildren: true})
		if errdefs.IsConflict(err) { // a container of somebody stands on it
			err = nil
		}
		errs = append(errs, ignoreNotFound(err))
	}
	if err := errors.Join(errs...); err != nil {
		return m.failed(ctx, "clean up", err)
	}
	return nil
}

// discardBase removes the temporary base and what an unfinished build left on
// it. It is safe to call when there is none.
func (m *maker) discardBase(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTime)
	defer cancel()
	base, err := m.eng.ImageInspect(ctx, m.entry.baseTag())
	if err != nil {
		if err = ignoreNotFound(err); err != nil {
			return m.failed(ctx, "clean up", err)
		}
		return nil
	}
	all, err := m.eng.ImageList(ctx, image.ListOptions{All: true})
	if err != nil {
		return m.failed(ctx, "clean up", err)
	}
	var errs []error
	for _, id := range untaggedAbove(all, base.ID) {
		_, err := m.eng.ImageRemove(ctx, id, image.RemoveOptions{})
		errs = append(errs, ignoreNotFound(err))
	}
	_, err = m.eng.ImageRemove(ctx, m.entry.baseTag(), image.RemoveOptions{Force: true, PruneChildren: true})
	errs = append(errs, ignoreNotFound(err))
	if err := errors.Join(errs...); err != nil {
		return m.failed(ctx, "clean up", err)
	}
	return nil
}

// untaggedAbove returns the images without a tag that stand on base, directly or
// not, and on which no tagged one stands; the last built first.
func untaggedAbove(all []image.Summary, base string) []string {
	ids, _ := loose(all, base)
	return ids
}

// loose is untaggedAbove, and says whether a tagged image stands on base.
func loose(all []image.Summary, base string) (ids []string, used bool) {
	for _, img := range all {
		if img.ParentID != base {
			continue
		}
		above, usedAbove := loose(all, img.ID)
		ids = append(ids, above...)
		if usedAbove || tagged(img) {
			used = true
		} else {
			ids = append(ids, img.ID)
		}
	}
	return ids, used
}

// tagged says that an image has a name.
func tagged(img image.Summary) bool { return len(tagsOf(img))+len(digestsOf(img)) > 0 }

// discardOld removes an image that a newly made one has replaced, unless it is the
// same or something uses it. It stays visible in the engine then, as an image
// without a name.
func (m *maker) discardOld(ctx context.Context, id string) error {
	ctx, cancel := withoutCancel(ctx)
	defer cancel()
	now, err := m.eng.ImageInspect(ctx, m.entry.Tag())
	if err != nil {
		return m.failed(ctx, "clean up", err)
	}
	if id == "" || id == now.ID {
		return nil
	}
	if _, err := m.eng.ImageRemove(ctx, id, image.RemoveOptions{PruneChildren: true}); ignoreNotFound(err) != nil {
		m.steps.line("clean up", "the image before this one stays: "+err.Error())
	}
	return nil
}

// withoutCancel is a context for cleaning up, which the caller's does not end.
func withoutCancel(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), discardTime)
}
