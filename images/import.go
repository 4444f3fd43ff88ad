package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/distribution/reference"
)

// Import loads an archive that [Export] wrote and locks the image; source is the
// name of the archive in messages. The archive is not trusted: the image gets its
// name only after its layers, its configuration and its packages were found to be
// those of the entry that came with it. If the lock in the file has an entry of
// the name, the image must be that one. An image that is refused is removed again
// unless the engine had it before.
//
// The errors are [*ArchiveError], [*UnlockedError], or say what failed.
func Import(ctx context.Context, eng Archiver, cat Catalog, lockPath string, r io.Reader, source string) (LockChange, error) {
	in, e, err := openArchive(r, source)
	if err != nil {
		return LockChange{}, &ArchiveError{source, err}
	}
	i := importer{eng: eng, cat: cat, lockPath: lockPath, source: source, entry: e}
	if err := i.check(ctx); err != nil {
		return LockChange{}, err
	}
	before, err := i.present(ctx)
	if err != nil {
		return LockChange{}, err
	}
	report, err := i.load(ctx, func(w io.Writer) error { return passImage(w, in) })
	if err != nil {
		return LockChange{}, errors.Join(err, i.discardNew(ctx, before, report))
	}
	id := report.id()
	change, err := i.accept(ctx, id)
	if err != nil && !before.ids[id] {
		err = errors.Join(err, i.discard(ctx, id))
	}
	return change, err
}

// An importer loads one archive once.
type importer struct {
	eng              Archiver
	cat              Catalog
	lockPath, source string
	// entry is what the archive says of itself.
	entry LockEntry
}

// check compares what the archive says of itself with what is known here, so that
// most of what will be refused is not loaded. It is no proof: see accept.
func (i importer) check(ctx context.Context) error {
	if err := i.checkName(); err != nil {
		return err
	}
	lock, err := ReadLock(i.lockPath)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	offered := Resolved{ID: i.entry.ID, Content: i.entry.Content, Platform: i.entry.Platform}
	return i.allowed(ctx, lock, offered)
}

// checkName refuses an archive whose name could become that of another image. One
// name of the engine has several spellings; only the shortest is taken.
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
	if ref != name || strings.HasPrefix(ref, repository) {
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

// allowed says whether an image may get the name: when the lock has an entry of
// it, the image must be that one; without, the name must not be another image's.
func (i importer) allowed(ctx context.Context, lock Lock, offered Resolved) error {
	name := i.entry.Name
	if locked, ok := lock.Lookup(name); ok {
		if !locked.Is(offered) {
			return i.other("the lock decides; to take this one all the same, import it with a lock of its own: --lock FILE",
				"it holds %s %s, the lock %s holds %s", name, offered.ID, i.lockPath, locked.ID)
		}
		return nil
	}
	have, err := Resolve(ctx, i.eng, i.cat, name)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return err
	case have.Content != offered.Content:
		return i.other(fmt.Sprintf("keep the engine's with: sandbox image lock %s; or take the name off it with: docker rmi %s", name, have.Reference),
			"the engine has another image %s (%s), which is not locked", name, have.ID)
	}
	return nil
}

// bad is what is wrong with the archive.
func (i importer) bad(format string, args ...any) error {
	return &ArchiveError{i.source, fmt.Errorf(format, args...)}
}

// other is an archive that is well made, but of another image than is known here.
func (i importer) other(hint, format string, args ...any) error {
	return &ArchiveError{i.source, &hintedError{fmt.Errorf(format, args...), hint}}
}

// accept checks what was loaded, names it and locks it. From here on only what
// the engine says of the image counts.
func (i importer) accept(ctx context.Context, id string) (LockChange, error) {
	r, found, err := resolve(ctx, i.eng, Catalog{}, id)
	if err != nil {
		return LockChange{}, err
	}
	e := i.entry
	if r.Content != e.Content {
		return LockChange{}, i.bad("its image has the content %s, its lock entry says %s", r.Content, e.Content)
	}
	in, err := readImage(ctx, i.eng, id)
	if err != nil {
		return LockChange{}, fmt.Errorf("image %s: listing its packages: %w", e.Name, err)
	}
	if diff := DiffPackages(e.Packages, in.Packages); !diff.Empty() {
		return LockChange{}, i.bad("its image does not hold the packages of its lock entry; the first difference: %s", diff.Lines()[0])
	}
	e.ID, e.Platform, e.System, e.Created = r.ID, r.Platform, in.System, imageTime(found)
	change := LockChange{After: e}
	err = UpdateLock(ctx, i.lockPath, func(l Lock) (Lock, error) {
		if err := i.allowed(ctx, l, r); err != nil {
			return l, err
		}
		if err := i.name(ctx, id); err != nil {
			return l, err
		}
		if change.Before = former(l, e.Name); change.Before != nil {
			change.After = *change.Before
			return l, nil
		}
		change.Changed = true
		return l.With(e), nil
	})
	return change, err
}

// name gives the image its name in the engine. An image that is only known by its
// ID has none.
func (i importer) name(ctx context.Context, id string) error {
	if strings.HasPrefix(i.entry.Reference, "sha256:") {
		return nil
	}
	if err := i.eng.ImageTag(ctx, id, i.entry.Reference); err != nil {
		return fmt.Errorf("image %s: naming it: %w", i.entry.Name, err)
	}
	return nil
}
