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
	// Reason says why it is kept: locked, in use, recently used, fits.
	Reason string `json:"reason,omitempty"`
}

// Why an image is kept.
const (
	keptLocked = "locked"
	keptInUse  = "a container uses it"
	keptRecent = "recently used"
	keptFits   = "fits"
)

// Prune removes images of ours, the longest unused first, until the rest holds no
// more than the bytes to keep. It never removes an image that the lock holds, one
// that a container uses, or one that has a name that is not of ours. The report
// is true also when there is an error.
func Prune(ctx context.Context, eng Pruner, lock Lock, opts PruneOptions) (PruneReport, error) {
	swept := sweepReaders(ctx, eng, opts)
	all, err := candidates(ctx, eng, lock, opts)
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
func candidates(ctx context.Context, eng Pruner, lock Lock, opts PruneOptions) ([]PrunedImage, error) {
	ours, err := eng.ImageList(ctx, image.ListOptions{Filters: filters.NewArgs(filters.Arg("label", LabelImage))})
	if err != nil {
		return nil, fmt.Errorf("listing the images: %w", err)
	}
	containers, err := eng.ContainerList(ctx, container.ListOptions{All: true})
	if err != nil {
		return nil, fmt.Errorf("listing the containers: %w", err)
	}
	used := map[string]bool{}
	for _, c := range containers {
		used[c.ImageID] = used[c.ImageID] || !leftBehind(c, opts.Now)
	}
	var all []PrunedImage
	for _, img := range ours {
		if !isOurs(img) {
			continue // made by somebody on an image of ours, whose labels it has
		}
		found, err := eng.ImageInspect(ctx, img.ID)
		if ignoreNotFound(err) != nil {
			return nil, fmt.Errorf("looking up image %s: %w", img.ID, err)
		}
		if err != nil {
			continue // gone since
		}
		p := PrunedImage{ID: img.ID, Tags: tagsOf(img), SizeBytes: img.Size, LastUse: lastUse(opts.UsageDir, img.ID)}
		if made := time.Unix(img.Created, 0); made.After(p.LastUse) {
			p.LastUse = made
		}
		r := Resolved{Name: img.ID, ID: img.ID, Content: contentOf(found), Platform: platform(found)}
		switch {
		case lock.Check(r) == nil:
			p.Reason = keptLocked
		case used[img.ID]:
			p.Reason = keptInUse
		}
		all = append(all, p)
	}
	return all, nil
}

// isOurs says that an image with our label has no name but ours.
func isOurs(img image.Summary) bool {
	for _, tag := range tagsOf(img) {
		if !strings.HasPrefix(tag, repository) {
			return false
		}
	}
	return true
}

// tagsOf are the names of an image. Old engines write <none>:<none> for none.
func tagsOf(img image.Summary) []string {
	tags := []string{}
	if tagged(img) {
		tags = append(tags, img.RepoTags...)
	}
	return tags
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
