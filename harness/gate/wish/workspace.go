package wish

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/internal/fsx"
)

// ErrOutside says that the boundary leads out of the folder of the wish.
var ErrOutside = errors.New("leads out of the folder of the wish")

// Workspace is the folder that the gates may see, with every link resolved: the boundary
// below dir, the folder of the wish. An error is [fs.ErrNotExist] if there is nothing,
// and [ErrOutside] if a link leads out of dir.
func (w Wish) Workspace(dir string) (string, error) {
	if !isLocal(w.IOBoundary) {
		return "", fmt.Errorf("io_boundary %q: %w", w.IOBoundary, ErrOutside)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("io_boundary: %w", err)
	}
	outer, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", fmt.Errorf("io_boundary: %w", err)
	}
	inner, err := filepath.EvalSymlinks(filepath.Join(outer, filepath.FromSlash(w.IOBoundary)))
	if err != nil {
		return "", fmt.Errorf("io_boundary: %w", err)
	}
	if !fsx.Within(inner, outer) {
		return "", fmt.Errorf("io_boundary %q: %w", w.IOBoundary, ErrOutside)
	}
	info, err := os.Stat(inner)
	if err != nil {
		return "", fmt.Errorf("io_boundary: %w", err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("io_boundary %q: is not a folder", w.IOBoundary)
	}
	return inner, nil
}
