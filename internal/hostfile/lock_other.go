//go:build !unix

package hostfile

import (
	"io"
	"os"
)

// LockFolder does nothing: folders have no locks here.
func LockFolder(folder *os.Root) (io.Closer, error) { return folder.Open(".") }
