//go:build !linux

package sandbox

import (
	"context"
	"errors"
	"io/fs"
)

// waitProcess is not possible here: the containers are in a virtual machine.
func waitProcess(context.Context, int, func() bool) bool { return false }

// mountedIn is not possible here either.
func mountedIn(int, string) (fs.FileInfo, error) { return nil, errors.ErrUnsupported }
