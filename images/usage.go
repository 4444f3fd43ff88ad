package images

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// DefaultUsageDir is where the times of the last use of images are kept: a folder
// in the user's cache folder, with an empty file per image.
func DefaultUsageDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "evalbox", "images"), nil
}

// MarkUsed notes in a folder, see [DefaultUsageDir], that an image is used now,
// for [Prune]. It costs a system call or two. An ID that is none is ignored.
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

// lastUse is when an image was used; zero for never, as far as is known here.
func lastUse(dir, id string) time.Time {
	file := usageFile(dir, id)
	if file == "" {
		return time.Time{}
	}
	info, err := os.Stat(file)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// usageFile is the file of an image; empty for an ID that is none.
func usageFile(dir, id string) string {
	hex, ok := strings.CutPrefix(id, "sha256:")
	if !ok || !sha256Pattern.MatchString(hex) {
		return ""
	}
	return filepath.Join(dir, hex)
}
