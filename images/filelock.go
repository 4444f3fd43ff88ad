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
	unlock, err = lockName(ctx, m.opts.LockDir, "image-"+m.entry.Name, func() {
		m.steps.line("lock", "another process is making this image, waiting for it")
	})
	if err != nil {
		return nil, m.failed(ctx, "lock", err)
	}
	return unlock, nil
}

// lockName locks the file of this name in dir, or else in evalbox in the user's
// cache folder; see [lockFile].
func lockName(ctx context.Context, dir, name string, waiting func()) (unlock func() error, err error) {
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(cache, "evalbox")
	}
	return lockFile(ctx, filepath.Join(dir, name+".lock"), waiting)
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
