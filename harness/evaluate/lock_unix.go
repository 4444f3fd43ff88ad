//go:build unix

package evaluate

import (
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/evalbox/evalbox/sandbox"
)

// lockFolder takes the lock that a run holds on its ./final, as long as the answer
// is open. It does not wait. A file system without locks gives none.
func lockFolder(folder *os.Root) (io.Closer, error) {
	dir, err := folder.Open(".")
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = sandbox.ErrBusy
	}
	if errors.Is(err, sandbox.ErrBusy) {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}
