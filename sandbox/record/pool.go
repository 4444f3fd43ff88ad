package record

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/owner"
)

// poolOwner is the file of a waiting container's directory that names the process that has it.
const poolOwner = "owner"

// Reserve makes the directory of a container that waits for its run, which will have this ID. It is
// no record until [Store.Take].
func (s *Store) Reserve(id string) (string, error) {
	if err := s.Prepare(); err != nil {
		return "", err
	}
	if err := os.MkdirAll(s.PoolDir(), 0o700); err != nil {
		return "", StateError(s.PoolDir(), "cannot be made", err)
	}
	dir := filepath.Join(s.PoolDir(), id)
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, poolOwner), []byte(owner.This().String()), 0o600)
	}
	if err != nil {
		return "", errors.Join(StateError(dir, "cannot be made", err), os.RemoveAll(dir))
	}
	return dir, nil
}

// Own makes this process the one that has a waiting container.
func (s *Store) Own(id string) error {
	file := filepath.Join(s.PoolDir(), id, poolOwner)
	if err := fsx.WriteFile(file, []byte(owner.This().String()), 0o600, false); err != nil {
		return StateError(file, "cannot be written", err)
	}
	return nil
}

// Take makes the directory of a waiting container the record of its run, which this process has
// begun. Its files stay where the container has them mounted. Of several calls one succeeds.
func (s *Store) Take(id string) (string, error) {
	dir := s.RecordDir(id)
	if err := os.Rename(filepath.Join(s.PoolDir(), id), dir); err != nil {
		return "", StateError(dir, "cannot be made", err)
	}
	if err := os.Remove(filepath.Join(dir, poolOwner)); err != nil {
		return "", errors.Join(StateError(dir, "cannot be written", err), os.RemoveAll(dir))
	}
	return dir, s.begin(id, dir)
}

// Unreserve deletes the directory of a waiting container that gets no run.
func (s *Store) Unreserve(id string) error {
	if err := fsx.Remove(filepath.Join(s.PoolDir(), id)); err != nil {
		return fmt.Errorf("removing waiting container %s: %w", id, err)
	}
	return nil
}

// Abandoned lists the containers that wait for a run although the process that has them is dead.
func (s *Store) Abandoned() ([]string, error) {
	entries, err := os.ReadDir(s.PoolDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, StateError(s.PoolDir(), "cannot be read", err)
	}
	var dead []string
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(s.PoolDir(), entry.Name(), poolOwner))
		if errors.Is(err, fs.ErrNotExist) {
			if info, err := entry.Info(); err != nil || time.Since(info.ModTime()) < reservePatience {
				continue // it is being made, or was just taken
			}
		}
		if by, err := owner.Parse(string(text)); err != nil || by.Fate() == owner.Dead {
			dead = append(dead, entry.Name())
		}
	}
	return dead, nil
}

// reservePatience is how long a process may take between a directory and the note of its owner.
const reservePatience = time.Minute
