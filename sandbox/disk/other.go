//go:build !linux

package disk

import (
	"context"
	"os"
)

// CanLoop is always an [ErrImpossible].
func CanLoop() error { return impossible("file systems in files take Linux") }

// Image is a file system in a file; there is none on this system.
type Image struct{ File, Dir string }

// Create is always an [ErrImpossible].
func (i Image) Create(context.Context, Limit) error { return CanLoop() }

// Mounted is always false.
func (i Image) Mounted() (bool, error) { return false, nil }

// Open is always an [ErrImpossible].
func (i Image) Open(context.Context) error { return CanLoop() }

// Usage is always an [ErrImpossible].
func (i Image) Usage() (Usage, error) { return Usage{}, CanLoop() }

// Remove has nothing to do.
func (i Image) Remove() error { return nil }

// Unmount has nothing to do.
func (i Image) Unmount() error { return nil }

// CopyOut is always an [ErrImpossible].
func CopyOut(context.Context, *os.Root, *os.Root) error { return CanLoop() }
