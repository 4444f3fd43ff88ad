//go:build !linux

package enginetest

import (
	"syscall"

	"github.com/evalbox/evalbox/sandbox/engine/wire"
)

// identify is not supported: containers run on another system.
func identify(string) wire.Stat { return wire.Stat{Errno: syscall.ENOSYS} }
