package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/images/store"
	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/sandbox/spec"
)

func newList(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the images of the catalog, your own and the locked ones",
		Example: "  sandbox image list",
		Args:    cobra.NoArgs,
		RunE:    with(a, func(ctx context.Context, t *tools, _ []string) error { return t.list(ctx) }),
	}
	a.SettingFlags(cmd, "json")
	return cmd
}

// imageList is the JSON of `image list`.
type imageList struct {
	Schema string        `json:"schema"`
	Images []listedImage `json:"images"`
}

// listedImage is one image as `image list --json` prints it.
type listedImage struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Default     bool   `json:"default"`
	Present     bool   `json:"present"`
	// Makeable says that it is in the catalog, so that `image ensure` makes it.
	Makeable bool `json:"makeable"`
	// Own says that `image build` made it under this name.
	Own    bool `json:"own"`
	Locked bool `json:"locked"`
	// LockedID is the ID in the lock if that holds another image, else empty.
	LockedID  string `json:"locked_id"`
	Tag       string `json:"tag"`
	Base      string `json:"base"`
	ID        string `json:"id"`
	SizeBytes int64  `json:"size_bytes"`
	Created   string `json:"created"`
}

// list shows the images of the catalog, and then the own and the locked ones.
func (t *tools) list(ctx context.Context) error {
	held, _, err := t.settings.Lock()
	if err != nil {
		return err
	}
	all, err := images.List(ctx, t.store(), t.catalog)
	if err != nil {
		return err
	}
	listed := imageList{Schema: "evalbox/image-list/v1", Images: []listedImage{}}
	for _, i := range all {
		listed.Images = append(listed.Images, listedImage{
			Name: i.Name, Description: i.Description, Default: i.Default, Present: i.Present, Makeable: true,
			Locked: i.Present && held.Check(i.Resolved) == nil, LockedID: held.OtherID(i.Resolved), Tag: i.Tag(), Base: i.Base.String(),
			ID: i.Image.ID, SizeBytes: i.Image.SizeBytes, Created: i.Image.Created,
		})
	}
	others, err := t.others(ctx, held)
	if err != nil {
		return err
	}
	listed.Images = append(listed.Images, others...)
	var rows [][]string
	differ := false
	for _, i := range listed.Images {
		rows = append(rows, i.row())
		differ = differ || i.LockedID != ""
	}
	if err := t.ShowTable(t.settings, listed, []string{"NAME", "PRESENT", "LOCKED", "SIZE", "CREATED", "DESCRIPTION"}, rows); err != nil || !differ || t.settings.JSON {
		return err
	}
	fmt.Fprintln(t.Err, "the lock holds another image than the engine has; see what differs with: sandbox image verify")
	return nil
}

// row is the row of the table.
func (i listedImage) row() []string {
	name, present, locked, size, created := i.Name, "no", "no", "-", "-"
	if i.Default {
		name += " (default)"
	}
	if i.Present {
		present, size = "yes", text.Size(i.SizeBytes)
		if at := lock.Created(images.Image{Created: i.Created}); !at.IsZero() {
			created = at.Local().Format(time.DateOnly)
		}
	}
	switch {
	case i.Locked:
		locked = "yes"
	case i.LockedID != "":
		locked = "differs"
	}
	return []string{name, present, locked, size, created, i.Description}
}

// others are the images that are not in the catalog: the own ones of the engine, and those of
// the lock, sorted by name.
func (t *tools) others(ctx context.Context, held lock.Lock) ([]listedImage, error) {
	own, err := t.api.ImageList(ctx, image.ListOptions{Filters: filters.NewArgs(filters.Arg("label", images.LabelOwn))})
	if err != nil {
		return nil, fmt.Errorf("listing the images: %w", err)
	}
	names := held.Names()
	for _, img := range own {
		for _, tag := range store.Tags(img) {
			if name, ok := images.OwnName(tag); ok {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	var list []listedImage
	for _, name := range slices.Compact(names) {
		if _, known := t.catalog.Lookup(name); known {
			continue
		}
		entry, inLock := held.Lookup(name)
		i := listedImage{Name: name, Tag: entry.Reference, Base: entry.Base}
		r, found, err := images.Find(ctx, t.store(), t.catalog, name)
		switch {
		case errors.Is(err, images.ErrNotFound):
			i.Description = "locked; the engine does not have it"
			i.LockedID = entry.ID
		case err != nil:
			return nil, err
		default:
			i.Present, i.Own, i.Tag, i.ID, i.SizeBytes, i.Created = true, r.Own, r.Reference, found.ID, found.SizeBytes, found.Created
			i.Locked, i.LockedID = held.Check(r) == nil, held.OtherID(r)
			i.Description = "image of the engine"
			if r.Own {
				i.Base = found.Config.Labels[images.LabelOwn]
				i.Description = "built from: " + i.Base
			}
			if !inLock && !i.Locked {
				i.Description += "; runs refuse it while there is a lock"
			}
		}
		list = append(list, i)
	}
	return list, nil
}

func newRemove(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rm NAME...",
		Short: "Remove images that evalbox built, from the engine and from the lock",
		Long: `Remove images of the catalog or of your own from the engine, and their entries from
the lock. An image that a container uses is refused. Images of others are left to
'docker image rm'.`,
		Example: "  sandbox image rm mine",
		Args:    cobra.MinimumNArgs(1),
		RunE: with(a, func(ctx context.Context, t *tools, names []string) error {
			removed := removedImages{Schema: "evalbox/image-rm/v1", Removed: []string{}}
			for _, name := range names {
				if err := t.remove(ctx, name); err != nil {
					if t.settings.JSON {
						err = errors.Join(err, t.PrintJSON(removed))
					}
					return err
				}
				removed.Removed = append(removed.Removed, name)
				if !t.settings.JSON {
					if err := t.Print("removed %s\n", name); err != nil {
						return err
					}
				}
			}
			if t.settings.JSON {
				return t.PrintJSON(removed)
			}
			return nil
		}),
	}
	a.SettingFlags(cmd, "json")
	return cmd
}

// removedImages is the JSON of `image rm`.
type removedImages struct {
	Schema  string   `json:"schema"`
	Removed []string `json:"removed"`
}

// How long an image that a container uses is tried again: the container of a run is removed a moment
// after the run has ended, which a busy engine may not do for a while.
const (
	cleanupTime     = 3 * time.Second
	busyCleanupTime = 30 * time.Second
)

// removeFromEngine removes an image. While a container uses it, it tries again for a while.
func (t *tools) removeFromEngine(ctx context.Context, ref string) error {
	for began := time.Now(); ; {
		_, err := t.api.ImageRemove(ctx, ref, image.RemoveOptions{PruneChildren: true})
		if !errdefs.IsConflict(err) {
			return err
		}
		users, listErr := t.api.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("ancestor", ref))})
		if listErr != nil || time.Since(began) > patience(users) {
			return errors.Join(err, listErr)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// patience returns how long to wait for the removal of the containers that use an image. Those of dead
// processes are most likely being removed.
func patience(users []container.Summary) time.Duration {
	for _, c := range users {
		by, err := owner.Parse(c.Labels[spec.LabelOwner])
		switch {
		case err != nil, c.Labels[spec.LabelManaged] != "true", c.Labels[spec.LabelKeep] == "true":
			return 0
		case by.Fate() != owner.Dead:
			return cleanupTime
		}
	}
	if len(users) == 0 { // it was the last one, or another image needs this one
		return cleanupTime
	}
	return busyCleanupTime
}

func (t *tools) remove(ctx context.Context, name string) error {
	r, err := images.Resolve(ctx, t.store(), t.catalog, name)
	if err != nil {
		return err
	}
	if !r.CatalogName && !r.Own {
		return cli.WithHint(fmt.Errorf("image %s: evalbox did not build it", name), "remove it with: docker image rm "+r.Reference+"; and from the lock with: sandbox image unlock "+name)
	}
	if err := t.removeFromEngine(ctx, r.Reference); err != nil {
		return cli.WithHint(fmt.Errorf("image %s: %w", name, err), "see what runs with: sandbox ps")
	}
	path := t.settings.LockPath()
	if held, _, err := t.settings.Lock(); path != "" && err == nil {
		if _, ok := held.Lookup(r.Name); ok {
			_, err := lock.Drop(ctx, path, r.Name)
			return err
		}
	}
	return nil
}
