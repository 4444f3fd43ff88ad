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

// Reserve makes the directory of a container that waits for its run, which will have this ID. It
// becomes a record with [Store.Take].
func (s *Store) Reserve(id string) (string, error) {
	if err := s.Prepare(); err != nil {
		return "", err
	}
	if err := os.MkdirAll(s.PoolDir(), 0o700); err != nil {
		return "", StateError(s.PoolDir(), "cannot be made", err)
	}
	dir := filepath.Join(s.PoolDir(), id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", StateError(dir, "cannot be made", err)
	}
	if err := os.WriteFile(filepath.Join(dir, poolOwner), []byte(owner.This().String()), 0o600); err != nil {
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
// begun. Its files stay where the container has them mounted. Of several calls one succeeds. It refuses
// a directory that is not [Store.Trusted].
func (s *Store) Take(id string) (string, error) {
	if err := s.Trusted(); err != nil {
		return "", err
	}
	dir := s.RecordDir(id)
	if err := os.Rename(filepath.Join(s.PoolDir(), id), dir); err != nil {
		return "", StateError(dir, "cannot be made", err)
	}
	// The note of the owner becomes that of a run which is open, as [Store.begin] writes it.
	if err := os.Rename(filepath.Join(dir, poolOwner), filepath.Join(s.openDir(), id)); err != nil {
		return "", errors.Join(StateError(dir, "cannot be written", err), os.RemoveAll(dir))
	}
	return dir, nil
}

// IsHalfTaken reports whether the process died in [Store.Take]: the record has nothing of a run.
func (s *Store) IsHalfTaken(id string) bool {
	_, err := os.Lstat(filepath.Join(s.RecordDir(id), poolOwner))
	return err == nil
}

// Unreserve deletes the directory of a waiting container that gets no run.
func (s *Store) Unreserve(id string) error {
	if err := fsx.Remove(filepath.Join(s.PoolDir(), id)); err != nil {
		return fmt.Errorf("removing waiting container %s: %w", id, err)
	}
	return nil
}

// PoolOwner is the process that has the container that waits for the run with this ID; empty if none
// waits.
func (s *Store) PoolOwner(id string) string {
	text, _ := os.ReadFile(filepath.Join(s.PoolDir(), id, poolOwner)) // a run may have just taken it
	return string(text)
}

// IsWaiting reports whether the run with this ID is a container that waits for it.
func (s *Store) IsWaiting(id string) bool {
	_, err := os.Lstat(filepath.Join(s.PoolDir(), id))
	return err == nil
}

// Abandoned lists the containers that wait for a run although the process that has them is dead.
// unseen are those of processes that cannot be seen from here, as [owner.Owner.Fate] says.
func (s *Store) Abandoned() (dead, unseen []string, err error) {
	entries, err := os.ReadDir(s.PoolDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, StateError(s.PoolDir(), "cannot be read", err)
	}
	for _, entry := range entries {
		text, _ := os.ReadFile(filepath.Join(s.PoolDir(), entry.Name(), poolOwner)) // no text is no owner
		info, err := entry.Info()
		if err != nil {
			continue // it was just taken
		}
		recent := time.Since(info.ModTime()) < reservePatience
		by, err := owner.Parse(string(text))
		switch {
		case err != nil && recent: // it is being made
		case err != nil, by.Fate() == owner.Dead:
			dead = append(dead, entry.Name())
		case by.Fate() == owner.Unknown && !recent:
			unseen = append(unseen, entry.Name())
		}
	}
	return dead, unseen, nil
}

// reservePatience is how long a process may take between a directory and the note of its owner.
const reservePatience = time.Minute
