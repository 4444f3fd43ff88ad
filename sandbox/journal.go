package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/evalbox/evalbox/internal/owner"
)

// journal is what a controller writes down before the container exists, so that
// another can clean up after it.
type journal struct {
	Schema    string       `json:"schema"`
	ID        string       `json:"id"`
	Owner     string       `json:"owner"`
	Container string       `json:"container"`
	Created   time.Time    `json:"created"`
	Deadline  time.Time    `json:"deadline"`
	Final     finalJournal `json:"final"`
	// Transfer is [spec.TransferCopy] when the run has a depot.
	Transfer string `json:"transfer"`
}

// finalJournal says whose ./final was before the run.
type finalJournal struct {
	Path  string `json:"path"`
	Lent  bool   `json:"lent"`
	UID   int    `json:"uid"`
	GID   int    `json:"gid"`
	ToUID int    `json:"to_uid"`
	ToGID int    `json:"to_gid"`
}

const journalSchema = "evalbox/journal/v1"

// journal reads the journal of a record. A record that was being made when its
// owner died has none: the time of the folder stands in.
func (s *Store) journal(id string) (journal, error) {
	dir := filepath.Join(s.runsDir(), id)
	var note journal
	err := readJSON(filepath.Join(dir, journalFile), &note)
	if errors.Is(err, fs.ErrNotExist) {
		info, statErr := os.Stat(dir)
		if statErr != nil {
			return journal{}, fmt.Errorf("run %q: %w", id, ErrNoRecord)
		}
		return journal{ID: id, Created: info.ModTime().UTC()}, nil
	}
	if err != nil {
		return journal{}, fmt.Errorf("record %s: %w", id, err)
	}
	return note, nil
}

// state tells how far a run without a result is. An owner that cannot be seen
// from here (another PID namespace, another system) counts as alive until the
// run's deadline is over.
func (j journal) state(now time.Time) RecordState {
	by, err := owner.Parse(j.Owner)
	if err != nil {
		return RecordLost
	}
	switch by.Fate() {
	case owner.Alive:
		return RecordRunning
	case owner.Unknown:
		if now.Before(j.Deadline) {
			return RecordRunning
		}
	case owner.Dead:
	}
	return RecordLost
}

// state is the state of one record, without reading its result.
func (s *Store) state(id string) (RecordState, error) {
	if _, err := os.Stat(filepath.Join(s.runsDir(), id, resultFile)); err == nil {
		return RecordFinished, nil
	}
	note, err := s.journal(id)
	if err != nil {
		return "", err
	}
	return note.state(time.Now()), nil
}
