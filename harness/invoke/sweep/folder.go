package sweep

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox"
)

// folder is the folder of a sweep, open and locked.
type folder struct {
	path string // absolute
	root *os.Root
	lock *flock.Flock
}

// openFolder makes the folder of a sweep, which must not exist (MI-10), or, to go on,
// opens the one of the same definition. resumed says that there may be runs in it.
func openFolder(dir string, definition []byte, resume bool) (f *folder, resumed bool, err error) {
	path, there, err := look(dir, definition, resume)
	if err != nil {
		return nil, false, err
	}
	if there {
		return take(path, definition)
	}
	if err := makeFolder(path); err != nil {
		return nil, false, err
	}
	f, resumed, err = take(path, definition)
	if err != nil && !errors.Is(err, sandbox.ErrBusy) {
		err = errors.Join(err, remove(filepath.Join(path, DefinitionName)), remove(path))
	}
	return f, resumed, err
}

func makeFolder(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return &FolderError{Path: path, Rule: "cannot be made", Err: err}
	}
	err := os.Mkdir(path, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return existing(path)
	}
	if err != nil {
		return &FolderError{Path: path, Rule: "cannot be made", Err: err}
	}
	return nil
}

// remove deletes a file or an empty folder that may be gone.
func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// take takes a folder for this process, and completes it if its making was cut short.
func take(path string, definition []byte) (f *folder, resumed bool, err error) {
	lock := flock.New(filepath.Join(path, DefinitionName), flock.SetPermissions(0o644))
	got, err := lock.TryLock()
	if err == nil && !got {
		return nil, false, &FolderError{Path: path, Rule: "is in use by another sweep", Err: sandbox.ErrBusy, hint: "wait for its end"}
	}
	if err != nil {
		return nil, false, &FolderError{Path: path, Rule: "cannot be locked", Err: err}
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, false, errors.Join(&FolderError{Path: path, Rule: "cannot be opened", Err: err}, lock.Close())
	}
	f = &folder{path, root, lock}
	resumed, err = f.complete(definition)
	if err != nil {
		return nil, false, errors.Join(err, f.close())
	}
	return f, resumed, nil
}

// complete writes what is not there yet: nothing, or all.
func (f *folder) complete(definition []byte) (resumed bool, err error) {
	resumed, err = recognize(f.path, f.root, definition)
	if err != nil {
		return false, err
	}
	if !resumed {
		// Not by another file in its place: this one is locked.
		if err := overwrite(f.root, DefinitionName, definition); err != nil {
			return false, &FolderError{Path: f.path, Rule: "cannot be written", Err: err}
		}
	}
	return resumed, f.makeRuns()
}

func overwrite(root *os.Root, name string, text []byte) error {
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Sync(), file.Close())
}

// makeRuns makes the folder of the runs, unless it is there and ours.
func (f *folder) makeRuns() error {
	if err := f.root.Mkdir(RunsName, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return &FolderError{Path: f.path, Rule: "cannot be written", Err: err}
	}
	inside, err := Inside(f.path, filepath.Join(f.path, RunsName))
	if err != nil || !inside {
		return &FolderError{Path: f.path, Rule: RunsName + " leads out of it", Err: err}
	}
	return nil
}

func (f *folder) close() error { return errors.Join(f.root.Close(), f.lock.Close()) }

// forgetManifest takes away the manifest of what is not the case any more.
func (f *folder) forgetManifest() error {
	if err := f.root.Remove(ManifestName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &FolderError{Path: f.path, Rule: "its former manifest cannot be deleted", Err: err}
	}
	return nil
}

func (f *folder) writeManifest(text []byte) (string, error) {
	if err := fsx.WriteIn(f.root, ManifestName, text, 0o644, true); err != nil {
		return "", &FolderError{Path: f.path, Rule: "its manifest cannot be written", Err: err}
	}
	return filepath.Join(f.path, ManifestName), nil
}
