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
	dir := m.opts.LockDir
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, m.failed(ctx, "lock", err)
		}
		dir = filepath.Join(cache, "evalbox")
	}
	unlock, err = lockFile(ctx, filepath.Join(dir, "image-"+m.entry.Name+".lock"), func() {
		m.steps.line("lock", "another process is making this image, waiting for it")
	})
	if err != nil {
		return nil, m.failed(ctx, "lock", err)
	}
	return unlock, nil
}

// lockFile waits until no other process holds this file, whose folder it makes;
// waiting is called when it has to. The file stays: a lock on a file that may be
// unlinked is none.
func lockFile(ctx context.Context, path string, waiting func()) (unlock func() error, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	l := flock.New(path)
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
