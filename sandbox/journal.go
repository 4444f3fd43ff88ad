package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
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
