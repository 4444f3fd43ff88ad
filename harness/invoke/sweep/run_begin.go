package sweep

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/internal/fsx"
)

// runFolder is the name of the folder of a run, below the root.
func runFolder(name string) string { return filepath.Join(RunsName, name) }

// begin makes the folder of a run, whose former one is deleted on request, with its spec.
func (f *folder) begin(name string, spec []byte, again bool) (Job, error) {
	dir := runFolder(name)
	if again {
		if err := fsx.Remove(filepath.Join(f.path, dir)); err != nil {
			return Job{}, fmt.Errorf("run %s: its former folder cannot be deleted: %w", name, err)
		}
	}
	if err := f.root.Mkdir(dir, 0o755); err != nil {
		return Job{}, fmt.Errorf("run %s: its folder cannot be made: %w", name, err)
	}
	if err := f.root.Mkdir(filepath.Join(dir, OutputName), 0o755); err != nil {
		return Job{}, fmt.Errorf("run %s: its folder cannot be made: %w", name, err)
	}
	if err := writeNew(f.root, filepath.Join(dir, SpecName), spec); err != nil {
		return Job{}, fmt.Errorf("run %s: its spec cannot be written: %w", name, err)
	}
	return Job{
		Name: name, Config: filepath.Join(f.path, dir, SpecName), OutputDir: filepath.Join(f.path, dir, OutputName),
	}, nil
}

// writeNew writes a file that must not exist. So no link is followed, and no pipe that a
// tool has put there is waited for.
func writeNew(root *os.Root, name string, text []byte) error {
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}
