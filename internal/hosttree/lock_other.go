//go:build !unix

package hosttree

import (
	"io"
	"os"
)

// Lock does nothing: folders have no locks here.
func Lock(root *os.Root) (io.Closer, error) { return root.Open(".") }
