package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/owner"
)

// Journal is written before the container exists, so that another controller can clean up
// after the death of this one.
type Journal struct {
	Schema    string    `json:"schema"`
	ID        string    `json:"id"`
	Owner     string    `json:"owner"`
	Container string    `json:"container"`
	Created   time.Time `json:"created"`
	Deadline  time.Time `json:"deadline"`
	Final     Ownership `json:"final"`
	// Transfer is [spec.TransferCopy] if the run has a staging volume.
	Transfer string `json:"transfer"`
}

// Ownership says whose ./final was before the run.
type Ownership struct {
	Path    string `json:"path"`
	Granted bool   `json:"lent"`
	UID     int    `json:"uid"`
	GID     int    `json:"gid"`
	ToUID   int    `json:"to_uid"`
	ToGID   int    `json:"to_gid"`
}

// JournalSchema is the Schema of a [Journal].
const JournalSchema = "evalbox/journal/v1"

// Journal reads the journal of a record. A record whose owner died early has none: its
// journal only has an ID and the time of the directory.
func (s *Store) Journal(id string) (Journal, error) {
	dir := filepath.Join(s.RunsDir(), id)
	var note Journal
	err := ReadJSON(filepath.Join(dir, JournalFile), &note)
	if errors.Is(err, fs.ErrNotExist) {
		info, statErr := os.Stat(dir)
		if statErr != nil {
			return Journal{}, fmt.Errorf("run %q: %w", id, ErrNoRecord)
		}
		return Journal{ID: id, Created: info.ModTime().UTC()}, nil
	}
	if err != nil {
		return Journal{}, fmt.Errorf("record %s: %w", id, err)
	}
	return note, nil
}

// State returns the state of a run without a result. An owner that cannot be seen from here
// (another PID namespace, another system) counts as alive until the deadline of the run.
func (j Journal) State(now time.Time) State {
	by, err := owner.Parse(j.Owner)
	if err != nil {
		return Lost
	}
	switch by.Fate() {
	case owner.Alive:
		return Running
	case owner.Unknown:
		if now.Before(j.Deadline) {
			return Running
		}
	case owner.Dead:
	}
	return Lost
}

// State returns the state of one record, without reading its result.
func (s *Store) State(id string) (State, error) {
	if _, err := os.Stat(filepath.Join(s.RunsDir(), id, ResultFile)); err == nil {
		return Finished, nil
	}
	note, err := s.Journal(id)
	if err != nil {
		return "", err
	}
	return note.State(time.Now()), nil
}

// ReadJSON decodes a file.
func ReadJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return nil
}

// WriteJSON writes a file atomically, with mode 0600.
func WriteJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", filepath.Base(path), err)
	}
	// No need to survive a power cut: the container does not either.
	return fsx.WriteFile(path, append(text, '\n'), 0o600, false)
}
