package images

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// lockRetry is how often a held lock is tried again.
const lockRetry = 200 * time.Millisecond

// lock waits until no other process makes this image. The lock file stays: a
// lock on a file that may be unlinked is none.
func (m *maker) lock(ctx context.Context) (unlock func() error, err error) {
	dir := m.opts.LockDir
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, m.failed(ctx, "lock", err)
		}
		dir = filepath.Join(cache, "evalbox")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, m.failed(ctx, "lock", err)
	}
	l := flock.New(filepath.Join(dir, "image-"+m.entry.Name+".lock"))
	got, err := l.TryLock()
	if err == nil && !got {
		m.steps.line("lock", "another process is making this image, waiting for it")
		_, err = l.TryLockContext(ctx, lockRetry)
	}
	if err != nil {
		return nil, m.failed(ctx, "lock", err)
	}
	return l.Unlock, nil
}
