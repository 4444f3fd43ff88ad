package sandbox

import (
	"os"

	"github.com/evalbox/evalbox/internal/fsx"
)

// removeTree deletes a folder that a program may have filled.
func removeTree(dir string) error { return fsx.Remove(dir) }

// emptyTree deletes everything below root and keeps root (EX-002, resolution 31).
func emptyTree(root *os.Root) error { return fsx.Empty(root) }
