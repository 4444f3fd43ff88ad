package archive

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strings"
	"sync"

	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/jsonmessage"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/images/packages"
	"github.com/evalbox/evalbox/images/store"
)

// Import loads an archive that [Export] wrote and locks the image; source is the name of
// the archive in messages. The archive is not trusted: the image gets its name only after
// its layers, its configuration and its packages were found to be those of the entry that
// came with it. If the lock in the file has an entry of the name, the image must be that
// one. A refused image is removed again unless the engine had it before.
func Import(ctx context.Context, api client.APIClient, cat images.Catalog, lockPath string, r io.Reader, source string) (lock.Change, error) {
	in, e, err := openArchive(r, source)
	if err != nil {
		return lock.Change{}, bad(source, err)
	}
	i := importer{eng: store.Docker{APIClient: api}, cat: cat, lockPath: lockPath, source: source, entry: e}
	if err := i.check(ctx); err != nil {
		return lock.Change{}, err
	}
	before, err := i.present(ctx)
	if err != nil {
		return lock.Change{}, err
	}
	report, err := i.load(ctx, in)
	if err != nil {
		return lock.Change{}, errors.Join(err, i.discardNew(ctx, before, report))
	}
	id := report.id()
	change, err := i.accept(ctx, id)
	if err != nil && !before.ids[id] {
		ctx, cancel := store.Cleanup(ctx)
		defer cancel()
		err = errors.Join(err, i.eng.Remove(ctx, id, image.RemoveOptions{Force: true, PruneChildren: true}))
	}
	return change, err
}

// An importer loads one archive once.
type importer struct {
	eng              store.Docker
	cat              images.Catalog
	lockPath, source string
	// entry is the lock entry in the archive.
	entry lock.Entry
}

// check compares the lock entry of the archive with the catalog, the lock and the engine, so
// that most archives that accept would refuse are not loaded.
func (i importer) check(ctx context.Context) error {
	if err := i.checkName(); err != nil {
		return err
	}
	l, err := lock.Read(i.lockPath)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	offered := images.Resolved{ID: i.entry.ID, Content: i.entry.Content, Platform: i.entry.Platform}
	return i.allowed(ctx, l, offered)
}

// checkName refuses an archive whose name could become that of another image. One name of
// the engine has several spellings; only the shortest is permitted.
func (i importer) checkName() error {
	name, ref := i.entry.Name, i.entry.Reference
	if name == "" {
		return i.bad("its image has no name")
	}
	if known, named := i.cat.Lookup(name); named {
		if ref != known.Tag() {
			return i.other("name the catalog that it was exported with: --catalog FILE",
				"it holds %s; image %s of the catalog %s is %s", ref, name, i.cat.Source, known.Tag())
		}
		return nil
	}
	if images.IsName(name) && ref == images.OwnTag(name) {
		return nil
	}
	if ref != name || strings.HasPrefix(ref, images.Repository) {
		return i.other("name the catalog that it was exported with: --catalog FILE",
			"image %q is not in the catalog %s", name, i.cat.Source)
	}
	parsed, err := reference.ParseAnyReference(ref)
	if err != nil {
		return i.bad("%q is not a reference: %w", ref, err)
	}
	if named, ok := parsed.(reference.Named); ok && reference.FamiliarString(named) != ref {
		return i.bad("the name %q is not in its short form, %q", ref, reference.FamiliarString(named))
	}
	return nil
}

// allowed refuses an image that may not get the name: if the lock has an entry of the name,
// the image must be that one; otherwise no other image may have the name.
func (i importer) allowed(ctx context.Context, l lock.Lock, offered images.Resolved) error {
	name := i.entry.Name
	if locked, ok := l.Lookup(name); ok {
		if !locked.Is(offered) {
			return i.other("the lock decides; to take this one all the same, import it with a lock of its own: --lock FILE",
				"it holds %s %s, the lock %s holds %s", name, offered.ID, i.lockPath, locked.ID)
		}
		return nil
	}
	have, err := images.Resolve(ctx, i.eng, i.cat, name)
	switch {
	case errors.Is(err, images.ErrNotFound):
		return nil
	case err != nil:
		return err
	case have.Content != offered.Content:
		return i.other(fmt.Sprintf("keep the engine's with: sandbox image lock %s; or take the name off it with: docker rmi %s", name, have.Reference),
			"the engine has another image %s (%s), which is not locked", name, have.ID)
	}
	return nil
}

// bad returns the error of a malformed archive.
func (i importer) bad(format string, args ...any) error {
	return bad(i.source, fmt.Errorf(format, args...))
}

// other returns the error of an archive of another image than is known here.
func (i importer) other(hint, format string, args ...any) error {
	return fmt.Errorf("archive %s: %w", i.source, images.WithHint(fmt.Errorf(format, args...), hint))
}

// accept checks the loaded image, names it and locks it. From here on only the engine's
// description of the image counts.
func (i importer) accept(ctx context.Context, id string) (lock.Change, error) {
	r, found, err := images.Find(ctx, i.eng, images.Catalog{}, id)
	if err != nil {
		return lock.Change{}, err
	}
	e := i.entry
	if r.Content != e.Content {
		return lock.Change{}, i.bad("its image has the content %s, its lock entry says %s", r.Content, e.Content)
	}
	in, err := i.eng.Contents(ctx, id)
	if err != nil {
		return lock.Change{}, fmt.Errorf("image %s: listing its packages: %w", e.Name, err)
	}
	if diff := packages.Compare(e.Packages, in.Packages); !diff.Empty() {
		return lock.Change{}, i.bad("its image does not hold the packages of its lock entry; the first difference: %s", diff.Lines()[0])
	}
	e.ID, e.Platform, e.System, e.Created = r.ID, r.Platform, in.System, lock.Created(found)
	change := lock.Change{After: e}
	err = lock.Update(ctx, i.lockPath, func(l lock.Lock) (lock.Lock, error) {
		if err := i.allowed(ctx, l, r); err != nil {
			return l, err
		}
		if !strings.HasPrefix(e.Reference, "sha256:") { // else it is only known by its ID
			if err := i.eng.ImageTag(ctx, id, e.Reference); err != nil {
				return l, fmt.Errorf("image %s: naming it: %w", e.Name, err)
			}
		}
		if before, ok := l.Lookup(e.Name); ok {
			change.Before, change.After = &before, before
			return l, nil
		}
		change.Changed = true
		return l.With(e), nil
	})
	return change, err
}

// A loadReport has the images and names that the engine reports as loaded.
type loadReport struct {
	ids, names map[string]bool
	// cut says that the engine did not get the whole archive.
	cut bool
}

// id returns the ID of the only image.
func (r loadReport) id() string {
	for id := range r.ids {
		return id
	}
	return ""
}

// load gives the engine the rest of an archive. With an error it returns the report so far.
func (i importer) load(ctx context.Context, in *tar.Reader) (loadReport, error) {
	report := loadReport{ids: map[string]bool{}, names: map[string]bool{}}
	writeErr, loadErr := store.Pipe(ctx, func(_ context.Context, w io.Writer) error { return passImage(w, in) },
		func(r io.Reader) error { return i.loadTar(ctx, r, report) })
	report.cut = writeErr != nil
	switch {
	case ctx.Err() != nil:
		return report, ctx.Err()
	case report.cut:
		return report, bad(i.source, writeErr)
	case loadErr != nil:
		return report, i.bad("the engine does not take it: %w", loadErr)
	case len(report.names) > 0:
		return report, i.bad("the engine took names from it")
	case len(report.ids) != 1:
		return report, i.bad("the engine reports %d images, want 1", len(report.ids))
	}
	return report, nil
}

// maxLoadReport bounds the engine's report of a load.
const maxLoadReport = 16 << 20

// loaded matches the report of an image: its ID if it has no name.
var loaded = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`Loaded image(?: ID)?: (\S+)`) })

// loadTar loads an archive and adds the engine's messages to a report.
func (i importer) loadTar(ctx context.Context, in io.Reader, report loadReport) error {
	resp, err := i.eng.ImageLoad(ctx, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	messages := json.NewDecoder(io.LimitReader(resp.Body, maxLoadReport))
	for {
		var m jsonmessage.JSONMessage
		err := messages.Decode(&m)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case m.Error != nil:
			return store.StreamError(m.Error)
		}
		for _, found := range loaded().FindAllStringSubmatch(m.Stream, -1) {
			if strings.HasPrefix(found[1], "sha256:") {
				report.ids[found[1]] = true
			} else {
				report.names[found[1]] = true
			}
		}
	}
}

// An inventory has the IDs of all images of an engine, and the ID of each name.
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

// discardNew undoes a failed load, of which the engine may have reported nothing. Names that
// the engine took return to their former images. New images are removed, except those of
// others: images that have a name, were built, or are used by a container. Of a truncated
// archive without a report the engine has nothing.
func (i importer) discardNew(ctx context.Context, before inventory, report loadReport) error {
	if report.cut && len(report.ids)+len(report.names) == 0 {
		return nil
	}
	ctx, cancel := store.Cleanup(ctx)
	defer cancel()
	var errs []error
	for name := range report.names {
		if id := before.names[name]; id != "" {
			errs = append(errs, i.eng.ImageTag(ctx, id, name))
		} else {
			errs = append(errs, i.eng.Remove(ctx, name, image.RemoveOptions{}))
		}
	}
	all, err := i.eng.ImageList(ctx, image.ListOptions{All: true})
	errs = append(errs, err)
	for _, img := range all {
		if !before.ids[img.ID] && !store.Named(img) && img.ParentID == "" {
			errs = append(errs, i.eng.RemoveUnused(ctx, img.ID))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("removing what was loaded: %w", err)
	}
	return nil
}
