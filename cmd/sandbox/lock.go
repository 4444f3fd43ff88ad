package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/images/lock"
)

const lockName = "images.lock"

// lockPath is the file of the image lock: the one that the settings name, or that
// which lies beside a catalog that they name, or else the user's. It need not be
// there. It is empty for an account without a folder for configuration. The
// folder that a command happens to run in has no say in it.
func (a *app) lockPath(s settings) string {
	if s.Lock != "" {
		return s.Lock
	}
	if s.Catalog != "" {
		beside := filepath.Join(filepath.Dir(s.Catalog), lockName)
		if _, err := os.Lstat(beside); err == nil {
			return beside
		}
	}
	return a.userLock()
}

// userLock is the user's own lock, which need not be there. It is empty for an
// account without a folder for configuration.
func (a *app) userLock() string {
	dir := a.sources().userDir
	if dir == "" {
		return ""
	}
	return filepath.Join(filepath.Dir(userFile(dir)), lockName)
}

// lockToWrite is the file of the image lock, which there must be a place for.
func (a *app) lockToWrite(s settings) (string, error) {
	if path := a.lockPath(s); path != "" {
		return path, nil
	}
	return "", &hintedError{
		errors.New("image lock: this account has no folder for configuration"),
		"set HOME, or name a file with --lock",
	}
}

// placeOfLock is the file of an image lock that is about to be written. Its folder
// must be there, except the user's own: a typing mistake would make one.
func (a *app) placeOfLock(s settings) (string, error) {
	path, err := a.lockToWrite(s)
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(path)
	if path == a.userLock() {
		err = os.MkdirAll(dir, 0o700)
	} else {
		_, err = os.Stat(dir)
	}
	if err != nil {
		return "", &hintedError{
			fmt.Errorf("image lock %s: its folder cannot be used: %w", path, err), "make the folder, or name another file with --lock",
		}
	}
	return path, nil
}

// lock reads the image lock, if there is one. One that was named must be there: a
// typing mistake would silently lift the rule.
func (a *app) lock(s settings) (held lock.Lock, there bool, err error) {
	path := a.lockPath(s)
	if path == "" {
		return lock.Lock{}, false, nil
	}
	held, err = lock.Read(path)
	if errors.Is(err, fs.ErrNotExist) && s.Lock == "" {
		return lock.Lock{}, false, nil
	}
	return held, err == nil, err
}

// allLocks are the image lock and the user's own, as far as they are there: what
// either holds is needed.
func (a *app) allLocks(s settings) ([]lock.Lock, error) {
	held, _, err := a.lock(s)
	if err != nil {
		return nil, err
	}
	own := a.userLock()
	if own == "" || own == a.lockPath(s) {
		return []lock.Lock{held}, nil
	}
	more, err := lock.Read(own)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return []lock.Lock{held, more}, nil
}
