package stage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/record"
)

// reclaimBudget bounds the copy out of the file system of a lost run.
const reclaimBudget = 30 * time.Minute

// Reclaim cleans up after a run that nobody can finish, or whose result could not be published, and
// whose container is gone: it publishes the outputs, and frees what the run had. It may be called
// again.
func Reclaim(ctx context.Context, store *record.Store, id string) error {
	journal, err := store.Journal(id)
	if errors.Is(err, record.ErrNoRecord) {
		return nil
	}
	damaged := errors.Is(err, record.ErrUnreadable)
	if damaged {
		err = nil
	}
	// The record says which files are moved where.
	if err = errors.Join(err, store.Trusted()); err != nil {
		return err
	}
	dir := store.RecordDir(id)
	for _, mounted := range append([]string{record.ReserveFile}, record.MountedDirs...) {
		if err := os.RemoveAll(filepath.Join(dir, mounted)); err != nil {
			return record.StateError(dir, "cannot be written", err)
		}
	}
	image := imageOf(dir)
	if journal.Schema != "" && journal.Ref.ID == "" {
		return errors.Join(image.Remove(), dropOutputs(store, id)) // no program ever had them
	}
	ctx, cancel := context.WithTimeout(ctx, reclaimBudget)
	defer cancel()
	return Publish(ctx, store, id)
}

// dropOutputs deletes the outputs of a run whose program never started.
func dropOutputs(store *record.Store, id string) error {
	f, err := reopenFinal(store, id, finalOf(store, id))
	if err == nil && f.root != nil && f.path != "" {
		err = f.drop()
	}
	return errors.Join(err, f.close())
}

// Publish moves the outputs of a run whose program is gone to the ./final of its caller, unless that was
// done. The record need not be readable.
func Publish(ctx context.Context, store *record.Store, id string) (err error) {
	path := finalOf(store, id)
	if path == "" { // it was published, or another run is next
		if found, err := store.Load(id); err == nil {
			path = found.Spec.Job.Final
		}
	}
	f, err := reopenFinal(store, id, path)
	defer func() { err = errors.Join(err, f.close()) }()
	if err != nil {
		return fmt.Errorf("the outputs of run %s: %w", id, err)
	}
	if err := reclaimImage(ctx, store.RecordDir(id), f); err != nil {
		return err
	}
	if f.root == nil {
		return nil // they were published, or are gone
	}
	handed, err := f.handBack()
	if err == nil {
		_, err = f.publish(ctx, handed.Identity)
	}
	var late *supersededError
	if err != nil && !errors.As(err, &late) {
		return &UnpublishedError{RunID: id, Out: f.out, Err: err}
	}
	return nil
}

// reclaimImage copies what the program of a lost run left in a file system of its own: the outputs, and
// the working copies to the record.
func reclaimImage(ctx context.Context, recordDir string, f *final) error {
	if f.root == nil {
		return imageOf(recordDir).Unmount() // one that is left has what could not be copied
	}
	image, err := openImage(ctx, recordDir)
	if err != nil || image == nil {
		return err
	}
	if f.state != moving {
		err = fsx.InRoot(filepath.Join(image.Dir, record.OwnFinal), func(from *os.Root) error { return copyOut(ctx, from, f.root) })
	}
	for i := 0; err == nil; i++ {
		inside, live := filepath.Join(image.Dir, strconv.Itoa(i)), record.LiveTree(recordDir, i)
		if _, gone := os.Lstat(inside); errors.Is(gone, fs.ErrNotExist) {
			return image.Remove()
		}
		if _, gone := os.Lstat(live); errors.Is(gone, fs.ErrNotExist) {
			continue // its changes are kept already
		}
		err = fsx.InRoot(inside, func(from *os.Root) error {
			return fsx.InRoot(live, func(to *os.Root) error { return copyOut(ctx, from, to) })
		})
	}
	return errors.Join(err, image.Unmount())
}
