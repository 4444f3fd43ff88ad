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

// lock waits until no other process makes this image.
func (m *maker) lock(ctx context.Context) (unlock func() error, err error) {
	unlock, err = lockFile(ctx, m.opts.LockDir, "image-"+m.entry.Name, func() {
		m.steps.line("lock", "another process is making this image, waiting for it")
	})
	if err != nil {
		return nil, m.failed(ctx, "lock", err)
	}
	return unlock, nil
}

// lockFile locks NAME.lock in dir, or in evalbox in the user's cache folder, and
// calls waiting once if another process has it. The file stays: a lock on a file
// that may be unlinked is none.
func lockFile(ctx context.Context, dir, name string, waiting func()) (unlock func() error, err error) {
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(cache, "evalbox")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	l := flock.New(filepath.Join(dir, name+".lock"))
	got, err := l.TryLock()
	if err == nil && !got {
		waiting()
		_, err = l.TryLockContext(ctx, lockRetry)
	}
	if err != nil {
		return nil, err
	}
	return l.Unlock, nil
}
