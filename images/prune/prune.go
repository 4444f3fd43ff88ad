// Package prune removes images of evalbox that are not needed.
package prune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/images/store"
)

// Options say how [Images] works.
type Options struct {
	// KeepBytes bounds the size of all images of evalbox together.
	KeepBytes int64
	// UnusedFor protects images that were used, or made, more recently.
	UnusedFor time.Duration
	// DryRun removes nothing.
	DryRun bool
	// UsageDir is the directory of the times of use, see [images.DefaultUsageDir].
	UsageDir string
	// Now is the present time.
	Now time.Time
}

// A Report is the outcome of [Images].
type Report struct {
	// Removed and Kept are the images of evalbox, the longest unused first.
	Removed []Image `json:"removed"`
	Kept    []Image `json:"kept"`
	// RemovedBytes and KeptBytes are the sums of their sizes. Layers that images share are
	// counted for each.
	RemovedBytes int64 `json:"removed_bytes"`
	KeptBytes    int64 `json:"kept_bytes"`
}

// An Image is one image of evalbox.
type Image struct {
	ID string `json:"id"`
	// Tags are its names in the engine.
	Tags      []string  `json:"tags"`
	SizeBytes int64     `json:"size_bytes"`
	LastUse   time.Time `json:"last_use"`
	// Reason says why it is kept: locked, in use, stood on, recently used, fits.
	Reason string `json:"reason,omitempty"`

	content string
	// above are the steps of a killed build on it, the last built first.
	above []string
}

// Why an image is kept.
const (
	keptLocked = "locked"
	keptInUse  = "a container uses it"
	keptBase   = "another image stands on it"
	keptRecent = "recently used"
	keptFits   = "fits"
)

// Images removes images of evalbox, the longest unused first, until the others hold at most
// KeepBytes. It never removes an image that one of the locks holds, that a container or
// another image uses, or that has a foreign name or a registry's digest. With an error the
// report is true as well.
func Images(ctx context.Context, api client.APIClient, locks []lock.Lock, opts Options) (Report, error) {
	eng := store.Docker{APIClient: api}
	containers, err := eng.ContainerList(ctx, container.ListOptions{All: true})
	if err != nil {
		return Report{}, fmt.Errorf("listing the containers: %w", err)
	}
	inUse := map[string]string{} // by ID, why an image cannot be removed
	var errs []error
	for _, c := range containers {
		switch {
		case !store.LeftBehind(c, opts.Now):
			inUse[c.ImageID] = keptInUse
		case !opts.DryRun:
			errs = append(errs, store.IgnoreNotFound(eng.ContainerRemove(ctx, c.ID, container.RemoveOptions{RemoveVolumes: true})))
		}
	}
	all, err := candidates(ctx, eng, locks, opts, inUse)
	if err != nil {
		return Report{}, errors.Join(append(errs, err)...)
	}
	report := plan(all, opts)
	if opts.DryRun {
		return report, nil
	}
	done := Report{Removed: []Image{}, Kept: report.Kept, KeptBytes: report.KeptBytes}
	for _, img := range report.Removed {
		if err := removeImage(ctx, eng, img); err != nil {
			errs = append(errs, fmt.Errorf("image %s: %w", img.refs()[0], err))
			img.Reason = "could not be removed"
			done.Kept, done.KeptBytes = append(done.Kept, img), done.KeptBytes+img.SizeBytes
			continue
		}
		done.Removed, done.RemovedBytes = append(done.Removed, img), done.RemovedBytes+img.SizeBytes
	}
	return done, errors.Join(errs...)
}

// plan selects the images to remove. Images with a reason stay.
func plan(all []Image, opts Options) Report {
	r := Report{Removed: []Image{}, Kept: []Image{}}
	slices.SortFunc(all, func(a, b Image) int { return cmp.Or(a.LastUse.Compare(b.LastUse), cmp.Compare(a.ID, b.ID)) })
	for _, img := range all {
		r.KeptBytes += img.SizeBytes
	}
	for _, img := range all {
		switch {
		case img.Reason != "":
		case opts.Now.Sub(img.LastUse) < opts.UnusedFor:
			img.Reason = keptRecent
		case r.KeptBytes <= opts.KeepBytes:
			img.Reason = keptFits
		default:
			r.Removed, r.RemovedBytes = append(r.Removed, img), r.RemovedBytes+img.SizeBytes
			r.KeptBytes -= img.SizeBytes
			continue
		}
		r.Kept = append(r.Kept, img)
	}
	return r
}

// candidates lists the images of evalbox, with the reasons to keep them that the budget does
// not change.
func candidates(ctx context.Context, eng store.Docker, locks []lock.Lock, opts Options, inUse map[string]string) ([]Image, error) {
	labeled, err := eng.ImageList(ctx, image.ListOptions{Filters: filters.NewArgs(filters.Arg("label", images.LabelImage))})
	if err != nil {
		return nil, fmt.Errorf("listing the images: %w", err)
	}
	steps, err := eng.ImageList(ctx, image.ListOptions{All: true})
	if err != nil {
		return nil, fmt.Errorf("listing the images: %w", err)
	}
	for _, img := range steps {
		inUse[img.ParentID] = cmp.Or(inUse[img.ParentID], keptBase)
	}
	all := unfinished(steps, inUse)
	var ofBuilds []string
	for _, base := range all {
		ofBuilds = append(ofBuilds, base.above...)
	}
	for _, img := range labeled {
		if !onlyOwnNames(img) || slices.Contains(ofBuilds, img.ID) {
			continue // a foreign image on an image of evalbox inherits its labels
		}
		r, err := images.Resolve(ctx, eng, images.Catalog{}, img.ID)
		if errors.Is(err, images.ErrNotFound) {
			continue // gone since
		}
		if err != nil {
			return nil, err
		}
		p := Image{
			ID: img.ID, Tags: store.Tags(img), SizeBytes: img.Size, LastUse: images.LastUse(opts.UsageDir, img.ID),
			Reason: inUse[img.ID], content: r.Content,
		}
		if made := time.Unix(img.Created, 0); made.After(p.LastUse) {
			p.LastUse = made
		}
		if slices.ContainsFunc(locks, func(l lock.Lock) bool { return l.Check(r) == nil }) {
			p.Reason = keptLocked
		}
		all = append(all, p)
	}
	// A locked image without a name may go if one with a name has the same content.
	for i, img := range all {
		same := func(other Image) bool {
			return other.Reason == keptLocked && len(other.Tags) > 0 && other.content == img.content
		}
		if img.Reason == keptLocked && len(img.Tags) == 0 && slices.ContainsFunc(all, same) {
			all[i].Reason = inUse[img.ID]
		}
	}
	return all, nil
}

// unfinished returns the temporary bases of builds that are running or were killed, with the
// steps on them. Only the time of creation distinguishes the two.
func unfinished(all []image.Summary, inUse map[string]string) []Image {
	var bases []Image
	for _, img := range all {
		tags := store.Tags(img)
		if len(tags) == 0 || !within(images.BaseRepository, tags) {
			continue
		}
		above, used := store.Above(all, img.ID)
		if used {
			continue // the image is complete; its next build removes the name of the base
		}
		p := Image{ID: img.ID, Tags: tags, SizeBytes: img.Size, LastUse: time.Unix(img.Created, 0), above: above}
		for _, step := range all {
			if step.ID != img.ID && !slices.Contains(above, step.ID) {
				continue
			}
			if made := time.Unix(step.Created, 0); made.After(p.LastUse) {
				p.LastUse = made
			}
			if inUse[step.ID] == keptInUse {
				p.Reason = keptInUse
			}
		}
		bases = append(bases, p)
	}
	return bases
}

// onlyOwnNames reports whether an image has only names of evalbox. A registry's digest counts
// as a foreign name: it may be the only name of a pulled image.
func onlyOwnNames(img image.Summary) bool {
	return within(images.Repository, slices.Concat(store.Tags(img), store.Digests(img)))
}

// within reports whether all names begin with a prefix.
func within(prefix string, names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) })
}

// refs returns the names of an image, or its ID.
func (p Image) refs() []string {
	if len(p.Tags) > 0 {
		return p.Tags
	}
	return []string{p.ID}
}

// removeImage removes the names of an image, and with the last one the image. It does not
// force the removal: an image that came into use stays.
func removeImage(ctx context.Context, eng store.Docker, img Image) error {
	var errs []error
	for _, id := range img.above {
		errs = append(errs, eng.Remove(ctx, id, image.RemoveOptions{}))
	}
	for _, ref := range img.refs() {
		found, err := eng.Image(ctx, ref)
		switch {
		case store.IgnoreNotFound(err) != nil:
			errs = append(errs, err)
		case found.ID == img.ID: // else gone, or the name is another image's by now
			errs = append(errs, eng.Remove(ctx, ref, image.RemoveOptions{PruneChildren: true}))
		}
	}
	return errors.Join(errs...)
}
