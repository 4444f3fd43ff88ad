package images

import (
	"context"
	"errors"
	"time"

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

// tagged says that an image has a name. Old engines write <none>:<none> for
// none.
func tagged(img image.Summary) bool {
	return len(img.RepoTags) > 0 && img.RepoTags[0] != "<none>:<none>"
}

// discardOld removes an image that a newly made one has replaced, unless
// something uses it. It stays visible in the engine then, as an image without a
// name.
func (m *maker) discardOld(ctx context.Context, id string) {
	if id == "" {
		return
	}
	if _, err := m.eng.ImageRemove(ctx, id, image.RemoveOptions{PruneChildren: true}); ignoreNotFound(err) != nil {
		m.steps.line("clean up", "the image before this one stays: "+err.Error())
	}
}

// withoutCancel is a context for cleaning up, which the caller's does not end.
func withoutCancel(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), discardTime)
}
