package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	unlock, err := lockUpdates(ctx, path)
	if err != nil {
		return err
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

// lockUpdates waits until no other process of this user changes the lock in a file.
// What it locks for that lies in the user's cache folder: a folder of a project is
// not to be littered.
func lockUpdates(ctx context.Context, path string) (unlock func() error, err error) {
	full, err := filepath.Abs(path)
	if err != nil {
		return nil, &LockFileError{path, err}
	}
	// The folder may be reached by a link while the file is not there yet.
	if dir, err := filepath.EvalSymlinks(filepath.Dir(full)); err == nil {
		full = filepath.Join(dir, filepath.Base(full))
	}
	unlock, err = lockName(ctx, "", "lock-"+sha256Hex(full)[:16], func() {})
	if err != nil {
		return nil, fmt.Errorf("image lock %s: waiting for others that change it: %w", path, err)
	}
	return unlock, nil
}
