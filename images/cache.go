package images

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
)

// cacheDir returns the directory of times of use and lock files: evalbox in the user's
// cache directory.
func cacheDir() (string, error) {
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "evalbox"), err
}

// lockRetry is the pause between two attempts to take a held lock.
const lockRetry = 200 * time.Millisecond

// WaitLock waits until no other process of this user holds the lock of this name, such as
// "image-debian", and takes it; waiting is called once if it has to wait. The file of the
// lock stays: a lock on a file that may be unlinked protects nothing.
func WaitLock(ctx context.Context, name string, waiting func()) (unlock func() error, err error) {
	dir, err := cacheDir()
	if err != nil {
		return nil, err
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

// DefaultUsageDir returns the directory of the times of the last use of images, in the user's
// cache directory. It has an empty file per image.
func DefaultUsageDir() (string, error) {
	dir, err := cacheDir()
	return filepath.Join(dir, "images"), err
}

// MarkUsed notes in a directory, see [DefaultUsageDir], that an image is used now. It costs
// a system call or two. A malformed ID is ignored.
func MarkUsed(dir, id string, now time.Time) error {
	file := usageFile(dir, id)
	if file == "" {
		return nil
	}
	err := os.Chtimes(file, now, now)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return err
	}
	return os.Chtimes(file, now, now)
}

// LastUse returns the time of the last [MarkUsed] of an image; zero for never.
func LastUse(dir, id string) time.Time {
	info, err := os.Stat(usageFile(dir, id))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

var sha256Pattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{64}$`) })

// usageFile is the file of an image; empty for a malformed ID.
func usageFile(dir, id string) string {
	hex, ok := strings.CutPrefix(id, "sha256:")
	if !ok || !sha256Pattern().MatchString(hex) {
		return ""
	}
	return filepath.Join(dir, hex)
}
