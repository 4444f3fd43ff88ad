//go:build !linux

package images

import (
	"context"
	"io"
)

// Mmdebstrap needs Linux.
func Mmdebstrap(context.Context, Bootstrap, io.Writer, func(line string)) error {
	return &CannotMakeError{
		Reason: "a root file system is made on Linux only",
		hint:   "run `sandbox image ensure` on a Linux machine, then carry the image over: docker save | docker load",
	}
}
