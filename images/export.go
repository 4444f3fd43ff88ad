package images

import (
	"context"
	"fmt"
	"io"

	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
)

// Archiver is the part of the engine's API that archives of images need. The
// client of github.com/docker/docker has it.
type Archiver interface {
	Reader
	ImageSave(ctx context.Context, refs []string, opts ...client.ImageSaveOption) (io.ReadCloser, error)
	ImageLoad(ctx context.Context, input io.Reader, opts ...client.ImageLoadOption) (image.LoadResponse, error)
	ImageTag(ctx context.Context, source, target string) error
	ImageList(ctx context.Context, opts image.ListOptions) ([]image.Summary, error)
	ImageRemove(ctx context.Context, ref string, opts image.RemoveOptions) ([]image.DeleteResponse, error)
}

var _ Archiver = (*client.Client)(nil)

// Export writes a locked image with its lock entry as one tar archive, for
// [Import]; `docker load` understands it too. An image that is not the locked one
// is an [*UnlockedError] or a [*NotLockedError]. One that is known by its digest
// only is refused: an engine cannot give it that name.
func Export(ctx context.Context, eng Archiver, cat Catalog, lock Lock, name string, w io.Writer) error {
	r, err := Resolve(ctx, eng, cat, name)
	if err != nil {
		return err
	}
	e, ok := lock.Lookup(r.Name)
	if !ok {
		return &NotLockedError{Name: r.Name, Source: lock.Source}
	}
	if !e.Is(r) {
		return &notExportedError{&UnlockedError{
			Name: r.Name, ID: r.ID, LockedID: e.ID, Source: lock.Source, CatalogName: r.CatalogName,
		}}
	}
	if isPinned(r.Reference) {
		return &hintedError{
			fmt.Errorf("image %s: an engine that imports it cannot name it by a digest", r.Name),
			fmt.Sprintf("give it a name, and lock and export that: docker tag %s NAME:TAG", r.Reference),
		}
	}
	text, err := Lock{}.With(e).Encode()
	if err != nil {
		return err
	}
	saved, err := eng.ImageSave(ctx, []string{r.Reference})
	if err != nil {
		return fmt.Errorf("image %s: saving it: %w", r.Name, err)
	}
	defer saved.Close()
	if err := writeArchive(w, text, saved); err != nil {
		return fmt.Errorf("image %s: saving it: %w", r.Name, err)
	}
	return nil
}

// A notExportedError is an UnlockedError where no run is asked for.
type notExportedError struct{ refused *UnlockedError }

func (e *notExportedError) Error() string { return e.refused.Error() }

func (e *notExportedError) Unwrap() error { return e.refused }

// Hint says what to do about it.
func (e *notExportedError) Hint() string {
	return "see what differs with: sandbox image verify " + e.refused.Name + "; accept it with: sandbox image lock " + e.refused.Name
}
