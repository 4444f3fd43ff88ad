// Package prune removes images of evalbox that nobody needs.
package prune

import (
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
	// KeepBytes is what the images of ours may hold together.
	KeepBytes int64
	// UnusedFor protects what was used, or made, more recently.
	UnusedFor time.Duration
	// DryRun removes nothing.
	DryRun bool
	// UsageDir is where the times of use are, see [images.DefaultUsageDir].
	UsageDir string
	// Now is the time.
	Now time.Time
}

// A Report says what [Images] did.
type Report struct {
	// Removed and Kept are the images of ours, the longest unused first.
	Removed []Image `json:"removed"`
	Kept    []Image `json:"kept"`
	// RemovedBytes and KeptBytes are the sums of their sizes. Layers that
	// images share are counted for each.
	RemovedBytes int64 `json:"removed_bytes"`
	KeptBytes    int64 `json:"kept_bytes"`
}

// A Image is one image of ours.
type Image struct {
	ID string `json:"id"`
	// Tags are its names in the engine.
	Tags      []string  `json:"tags"`
	SizeBytes int64     `json:"size_bytes"`
	LastUse   time.Time `json:"last_use"`
	// Reason says why it is kept: locked, in use, stood on, recently used, fits.
	Reason string `json:"reason,omitempty"`

	content string
	// above are what a killed build has left on it, the last built first.
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

// Images removes images of ours, the longest unused first, until the rest holds no
// more than the bytes to keep. It never removes an image that one of the locks
// holds, that a container uses or another image stands on, or that has a name or a
// registry's digest that is not of ours. The report is true also when there is an
// error.
func Images(ctx context.Context, api client.APIClient, locks []lock.Lock, opts Options) (Report, error) {
	eng := store.Docker{APIClient: api}
	swept := sweepReaders(ctx, eng, opts)
	all, err := candidates(ctx, eng, locks, opts)
	if err != nil {
		return Report{}, errors.Join(swept, err)
	}
	report := planPrune(all, opts)
	if opts.DryRun {
		return report, swept
	}
	done := Report{Removed: []Image{}, Kept: report.Kept, KeptBytes: report.KeptBytes}
	errs := []error{swept}
	for _, img := range report.Removed {
		if err := removeImage(ctx, eng, img); err != nil {
			errs = append(errs, fmt.Errorf("image %s: %w", img.name(), err))
			img.Reason = "could not be removed"
			done.Kept, done.KeptBytes = append(done.Kept, img), done.KeptBytes+img.SizeBytes
			continue
		}
		done.Removed, done.RemovedBytes = append(done.Removed, img), done.RemovedBytes+img.SizeBytes
	}
	return done, errors.Join(errs...)
}

// planPrune decides what to remove. Images with a reason stay.
func planPrune(all []Image, opts Options) Report {
	r := Report{Removed: []Image{}, Kept: []Image{}}
	slices.SortFunc(all, func(a, b Image) int {
		if c := a.LastUse.Compare(b.LastUse); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
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

// candidates lists the images of ours, with the reasons to keep them whatever
// the budget.
func candidates(ctx context.Context, eng store.Docker, locks []lock.Lock, opts Options) ([]Image, error) {
	ours, err := eng.ImageList(ctx, image.ListOptions{Filters: filters.NewArgs(filters.Arg("label", images.LabelImage))})
	if err != nil {
		return nil, fmt.Errorf("listing the images: %w", err)
	}
	steps, err := eng.ImageList(ctx, image.ListOptions{All: true})
	if err != nil {
		return nil, fmt.Errorf("listing the images: %w", err)
	}
	inUse, err := imagesInUse(ctx, eng, steps, opts.Now)
	if err != nil {
		return nil, err
	}
	all := unfinished(steps, inUse)
	var ofBuilds []string
	for _, base := range all {
		ofBuilds = append(ofBuilds, base.above...)
	}
	for _, img := range ours {
		if !isOurs(img) || slices.Contains(ofBuilds, img.ID) {
			continue // made by somebody on an image of ours, whose labels it has
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
	return freeDoubles(all, inUse), nil
}

// imagesInUse says by ID which images cannot be removed, and why.
func imagesInUse(ctx context.Context, eng store.Docker, steps []image.Summary, now time.Time) (map[string]string, error) {
	reasons := map[string]string{}
	for _, img := range steps {
		reasons[img.ParentID] = keptBase
	}
	containers, err := eng.ContainerList(ctx, container.ListOptions{All: true})
	if err != nil {
		return nil, fmt.Errorf("listing the containers: %w", err)
	}
	for _, c := range containers {
		if !store.LeftBehind(c, now) {
			reasons[c.ImageID] = keptInUse
		}
	}
	return reasons, nil
}

// unfinished are the temporary bases of builds that are under way or were killed,
// with the steps on them. When they were made tells the two apart.
func unfinished(all []image.Summary, inUse map[string]string) []Image {
	var bases []Image
	for _, img := range all {
		tags := store.Tags(img)
		if len(tags) == 0 || slices.ContainsFunc(tags, func(tag string) bool { return !strings.HasPrefix(tag, images.BaseRepository) }) {
			continue
		}
		above, used := store.Above(all, img.ID)
		if used {
			continue // it is whole; the next build of it takes the name off its base
		}
		p := Image{ID: img.ID, Tags: tags, SizeBytes: img.Size, LastUse: time.Unix(img.Created, 0), above: above}
		for _, step := range all {
			if made := time.Unix(step.Created, 0); slices.Contains(above, step.ID) && made.After(p.LastUse) {
				p.LastUse = made
			}
			if slices.Contains(above, step.ID) && inUse[step.ID] == keptInUse {
				p.Reason = keptInUse
			}
		}
		if inUse[img.ID] == keptInUse {
			p.Reason = keptInUse
		}
		bases = append(bases, p)
	}
	return bases
}

// freeDoubles lets go of locked images without a name where one with a name is the
// same: the lock loses nothing with them.
func freeDoubles(all []Image, inUse map[string]string) []Image {
	named := map[string]bool{}
	for _, img := range all {
		if img.Reason == keptLocked && len(img.Tags) > 0 {
			named[img.content] = true
		}
	}
	for i, img := range all {
		if img.Reason == keptLocked && len(img.Tags) == 0 && named[img.content] {
			all[i].Reason = inUse[img.ID]
		}
	}
	return all
}

// isOurs says that an image with our label has no name but ours, nor a digest of a
// registry: somebody who pulled an image of his by its digest knows it by that only.
func isOurs(img image.Summary) bool {
	for _, name := range slices.Concat(store.Tags(img), store.Digests(img)) {
		if !strings.HasPrefix(name, images.Repository) {
			return false
		}
	}
	return true
}

func (p Image) name() string {
	if len(p.Tags) > 0 {
		return p.Tags[0]
	}
	return p.ID
}

// removeImage takes the names off an image, and with the last one the image. It
// is never forced: an image that is used by now stays.
func removeImage(ctx context.Context, eng store.Docker, img Image) error {
	refs := img.Tags
	if len(refs) == 0 {
		refs = []string{img.ID}
	}
	var errs []error
	for _, id := range img.above {
		errs = append(errs, eng.Remove(ctx, id, image.RemoveOptions{}))
	}
	for _, ref := range refs {
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

// sweepReaders removes the containers through which images were read, and that were
// left behind.
func sweepReaders(ctx context.Context, eng store.Docker, opts Options) error {
	left, err := eng.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", store.LabelReader))})
	if err != nil || opts.DryRun {
		return err
	}
	var errs []error
	for _, c := range left {
		if store.LeftBehind(c, opts.Now) {
			errs = append(errs, store.IgnoreNotFound(eng.ContainerRemove(ctx, c.ID, container.RemoveOptions{RemoveVolumes: true})))
		}
	}
	return errors.Join(errs...)
}
