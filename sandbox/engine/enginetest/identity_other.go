//go:build !linux

package enginetest

import (
	"os"
	"syscall"

	"github.com/evalbox/evalbox/sandbox/engine/wire"
)

// identify is not supported: containers run on another system.
func identify(string) wire.Stat { return wire.Stat{Errno: syscall.ENOSYS} }

func openWitness(name string) syscall.Errno {
	if _, err := os.ReadFile(name); err != nil {
		return syscall.ENOENT
	}
	return 0
}
