package images

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
)

// Pruner is the part of the engine's API that [Prune] needs. The client of
// github.com/docker/docker has it.
type Pruner interface {
	Inspector
	ImageList(ctx context.Context, opts image.ListOptions) ([]image.Summary, error)
	ImageRemove(ctx context.Context, ref string, opts image.RemoveOptions) ([]image.DeleteResponse, error)
	ContainerList(ctx context.Context, opts container.ListOptions) ([]container.Summary, error)
	ContainerRemove(ctx context.Context, id string, opts container.RemoveOptions) error
}

var _ Pruner = (*client.Client)(nil)

// PruneOptions say how [Prune] works.
type PruneOptions struct {
	// KeepBytes is what the images of ours may hold together.
	KeepBytes int64
	// UnusedFor protects what was used, or made, more recently.
	UnusedFor time.Duration
	// DryRun removes nothing.
	DryRun bool
	// UsageDir is where the times of use are, see [DefaultUsageDir].
	UsageDir string
	// Now is the time.
	Now time.Time
}

// A PruneReport says what [Prune] did.
type PruneReport struct {
	// Removed and Kept are the images of ours, the longest unused first.
	Removed []PrunedImage `json:"removed"`
	Kept    []PrunedImage `json:"kept"`
	// RemovedBytes and KeptBytes are the sums of their sizes. Layers that
	// images share are counted for each.
	RemovedBytes int64 `json:"removed_bytes"`
	KeptBytes    int64 `json:"kept_bytes"`
}

// A PrunedImage is one image of ours.
type PrunedImage struct {
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

// Prune removes images of ours, the longest unused first, until the rest holds no
// more than the bytes to keep. It never removes an image that one of the locks
// holds, that a container uses or another image stands on, or that has a name or a
// registry's digest that is not of ours. The report is true also when there is an
// error.
func Prune(ctx context.Context, eng Pruner, locks []Lock, opts PruneOptions) (PruneReport, error) {
	swept := sweepReaders(ctx, eng, opts)
	all, err := candidates(ctx, eng, locks, opts)
	if err != nil {
		return PruneReport{}, errors.Join(swept, err)
	}
	report := planPrune(all, opts)
	if opts.DryRun {
		return report, swept
	}
	done := PruneReport{Removed: []PrunedImage{}, Kept: report.Kept, KeptBytes: report.KeptBytes}
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
func planPrune(all []PrunedImage, opts PruneOptions) PruneReport {
	r := PruneReport{Removed: []PrunedImage{}, Kept: []PrunedImage{}}
	slices.SortFunc(all, func(a, b PrunedImage) int {
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
func candidates(ctx context.Context, eng Pruner, locks []Lock, opts PruneOptions) ([]PrunedImage, error) {
	ours, err := eng.ImageList(ctx, image.ListOptions{Filters: filters.NewArgs(filters.Arg("label", LabelImage))})
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
		found, err := eng.ImageInspect(ctx, img.ID)
		if ignoreNotFound(err) != nil {
			return nil, fmt.Errorf("looking up image %s: %w", img.ID, err)
		}
		if err != nil {
			continue // gone since
		}
		r := Resolved{Name: img.ID, ID: img.ID, Content: contentOf(found), Platform: platform(found)}
		p := PrunedImage{
			ID: img.ID, Tags: tagsOf(img), SizeBytes: img.Size, LastUse: lastUse(opts.UsageDir, img.ID),
			Reason: inUse[img.ID], content: r.Content,
		}
		if made := time.Unix(img.Created, 0); made.After(p.LastUse) {
			p.LastUse = made
		}
		if slices.ContainsFunc(locks, func(l Lock) bool { return l.Check(r) == nil }) {
			p.Reason = keptLocked
		}
		all = append(all, p)
	}
	return freeDoubles(all, inUse), nil
}

// imagesInUse says by ID which images cannot be removed, and why.
func imagesInUse(ctx context.Context, eng Pruner, steps []image.Summary, now time.Time) (map[string]string, error) {
	reasons := map[string]string{}
	for _, img := range steps {
		reasons[img.ParentID] = keptBase
	}
	containers, err := eng.ContainerList(ctx, container.ListOptions{All: true})
	if err != nil {
		return nil, fmt.Errorf("listing the containers: %w", err)
	}
	for _, c := range containers {
		if !leftBehind(c, now) {
			reasons[c.ImageID] = keptInUse
		}
	}
	return reasons, nil
}

// unfinished are the temporary bases of builds that are under way or were killed,
// with the steps on them. When they were made tells the two apart.
func unfinished(all []image.Summary, inUse map[string]string) []PrunedImage {
	var bases []PrunedImage
	for _, img := range all {
		tags := tagsOf(img)
		if len(tags) == 0 || slices.ContainsFunc(tags, func(tag string) bool { return !strings.HasPrefix(tag, baseRepository) }) {
			continue
		}
		above, used := loose(all, img.ID)
		if used {
			continue // it is whole; the next build of it takes the name off its base
		}
		p := PrunedImage{ID: img.ID, Tags: tags, SizeBytes: img.Size, LastUse: time.Unix(img.Created, 0), above: above}
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
func freeDoubles(all []PrunedImage, inUse map[string]string) []PrunedImage {
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
	for _, name := range slices.Concat(tagsOf(img), digestsOf(img)) {
		if !strings.HasPrefix(name, repository) {
			return false
		}
	}
	return true
}

// tagsOf are the names of an image.
func tagsOf(img image.Summary) []string { return realNames(img.RepoTags, noTag) }

// digestsOf are its names with digests.
func digestsOf(img image.Summary) []string { return realNames(img.RepoDigests, noDigestName) }

// What engines write for no name.
const (
	noTag        = "<none>:<none>"
	noDigestName = "<none>@<none>"
)

// realNames are names without what engines write for none.
func realNames(names []string, none string) []string {
	return slices.DeleteFunc(append([]string{}, names...), func(name string) bool { return name == none })
}

func (p PrunedImage) name() string {
	if len(p.Tags) > 0 {
		return p.Tags[0]
	}
	return p.ID
}

// removeImage takes the names off an image, and with the last one the image. It
// is never forced: an image that is used by now stays.
func removeImage(ctx context.Context, eng Pruner, img PrunedImage) error {
	refs := img.Tags
	if len(refs) == 0 {
		refs = []string{img.ID}
	}
	var errs []error
	for _, id := range img.above {
		_, err := eng.ImageRemove(ctx, id, image.RemoveOptions{})
		errs = append(errs, ignoreNotFound(err))
	}
	for _, ref := range refs {
		found, err := eng.ImageInspect(ctx, ref)
		if ignoreNotFound(err) == nil && found.ID != img.ID {
			continue // gone, or the name is another image's by now
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		_, err = eng.ImageRemove(ctx, ref, image.RemoveOptions{PruneChildren: true})
		errs = append(errs, ignoreNotFound(err))
	}
	return errors.Join(errs...)
}

// sweepReaders removes the containers through which images were read, and that were
// left behind.
func sweepReaders(ctx context.Context, eng Pruner, opts PruneOptions) error {
	left, err := eng.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", LabelReader))})
	if err != nil || opts.DryRun {
		return err
	}
	var errs []error
	for _, c := range left {
		if leftBehind(c, opts.Now) {
			errs = append(errs, ignoreNotFound(eng.ContainerRemove(ctx, c.ID, container.RemoveOptions{RemoveVolumes: true})))
		}
	}
	return errors.Join(errs...)
}
