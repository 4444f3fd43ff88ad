package images

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/moby/sys/atomicwriter"
)

// UpdateLock changes the lock in a file, which may not be there yet, so that no
// change of another process is lost and no reader sees a half-written file.
// change gets what the file holds; a lock that it leaves as it was is not
// written. What change reports is reported.
func UpdateLock(ctx context.Context, path string, change func(Lock) (Lock, error)) (err error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // the file that is meant, not the link to it
	}
	unlock, err := lockFile(ctx, filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".busy"), func() {})
	if err != nil {
		return &LockFileError{path, err}
	}
	defer func() { err = errors.Join(err, unlock()) }()
	before, err := ReadLock(path)
	missing := errors.Is(err, fs.ErrNotExist)
	if missing {
		before, err = Lock{Source: path}, nil
	}
	if err != nil {
		return err
	}
	after, err := change(before)
	if err != nil {
		return err
	}
	text, err := after.Encode()
	if err != nil {
		return err
	}
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, text) {
		return nil
	}
	if missing && len(after.entries) == 0 {
		return nil
	}
	if err := atomicwriter.WriteFile(path, text, 0o644); err != nil {
		return &LockFileError{path, err}
	}
	return nil
}
