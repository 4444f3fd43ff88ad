package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// checkMounted compares what the container's init sees at its mounts with the host's
// files: the engine mounts by name, and may have another file system. A runtime with its
// own kernel has its own inode numbers, but shows the time of a file's last change.
func (a *attempt) checkMounted(ctx context.Context) error {
	if a.copies() {
		return nil
	}
	if err := a.verified.Check(); err != nil {
		return err
	}
	ready := a.container.Ready()
	sameKernel := ready.BootID == owner.BootID()
	if !sameKernel && !spec.OwnKernel(a.spec.Class.Runtime) {
		return a.notShared(ctx, false, errors.New("it is on another machine"))
	}
	same := 0
	var differs error
	for _, bind := range a.spec.Class.Binds {
		inside, known := ready.Stats[bind.Target]
		if !known || inside.Errno != 0 {
			continue
		}
		source := a.work.paths[bind.Role]
		if info, err := os.Lstat(source); err == nil && sameFile(info, inside, sameKernel) {
			same++
			continue
		}
		if err := a.verified.CheckAt(source); err != nil {
			return err
		}
		differs = fmt.Errorf("%s is not %q of this machine", bind.Target, source)
	}
	if differs != nil {
		return a.notShared(ctx, same > 0, differs)
	}
	return nil
}
