//go:build unix

package invoke

import (
	"errors"
	"syscall"
)

// isNotDir says that a name cannot exist because a part of its path is a file.
func isNotDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }
