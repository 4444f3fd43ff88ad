package evaluate

import (
	"errors"
	"io"
	"os"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/evalbox/evalbox/sandbox"
)

// lockFolder takes the lock that a run holds on its ./final, as long as the answer
// is open. It does not wait. A file system without locks gives none.
func lockFolder(folder *os.Root) (io.Closer, error) {
	lock, err := fsx.Lock(folder)
	if errors.Is(err, fsx.ErrLocked) {
		err = sandbox.ErrBusy
	}
	return lock, err
}
