package sweep

import (
	"bytes"
	"fmt"
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
	if _, err := fsx.Create(f.root, filepath.Join(dir, SpecName), bytes.NewReader(spec), 0o644); err != nil {
		return Job{}, fmt.Errorf("run %s: its spec cannot be written: %w", name, err)
	}
	return Job{
		Name: name, Config: filepath.Join(f.path, dir, SpecName), OutputDir: filepath.Join(f.path, dir, OutputName),
	}, nil
}
