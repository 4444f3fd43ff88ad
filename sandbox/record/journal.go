package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/result"
)

// Journal is what another process needs to finish a run whose own controller died. It is
// written before the container exists, and again right before the job is handed over.
type Journal struct {
	Schema string `json:"schema"`
	ID     string `json:"id"`
	// Owner is the process that carries the run out; empty if it gave the run up.
	Owner string `json:"owner"`
	// Adopted says that it is not the process that began the run.
	Adopted   bool      `json:"adopted,omitempty"`
	Container string    `json:"container"`
	Created   time.Time `json:"created"`
	Deadline  time.Time `json:"deadline"`
	// Engine is the ID of the engine that has the container.
	Engine string `json:"engine"`
	// Ref finds the container and the end of its output. Without an ID no program has run:
	// it is written before the job is handed over.
	Ref Ref `json:"ref"`
	// Transfer is [spec.TransferCopy] if the run has a staging volume.
	Transfer string `json:"transfer"`
	// Stop, unless 0, is the outcome.StopReason for which the owner asked the program to end.
	Stop int `json:"stop,omitempty"`
	// StoppedBy is the stop rule, if that is the reason.
	StoppedBy *result.StoppedBy `json:"stopped_by,omitempty"`
	// Started is the time right before the program started, by the wall clock; zero before.
	Started time.Time `json:"started,omitzero"`
	// Warnings are those of the time before the program started.
	Warnings []string `json:"warnings"`
}

// Ref is an engine.Ref: the container of a run and the end mark of its output. A process that knows
// it can forge the end of that run, so only the owner of the record may read it.
type Ref struct {
	ID    string `json:"id"`
	Nonce string `json:"nonce"`
}

// beginLimit is how long a process that cannot be seen from here may take before the run has its journal.
const beginLimit = time.Hour

// ErrNoJournal means that the owner of a run died before it wrote the journal, which is the
// first thing of a run; or that it is about to write it.
var ErrNoJournal = errors.New("has no journal")

// JournalSchema is the Schema of a [Journal].
const JournalSchema = "evalbox/journal/v1"

// Journal reads the journal of a record. A record whose owner died early has none, and that of
// another may have been deleted: it then only has an ID, the time of the directory and, until
// the run is settled, the owner that began the run. So has a damaged journal, with an [ErrUnreadable].
func (s *Store) Journal(id string) (Journal, error) {
	dir := s.RecordDir(id)
	var note Journal
	text, err := os.ReadFile(filepath.Join(dir, JournalFile))
	if err == nil {
		if json.Unmarshal(text, &note) == nil && note.Schema == JournalSchema {
			return note, nil
		}
		err = damaged(id, JournalFile, text)
	}
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrUnreadable) {
		return Journal{}, fmt.Errorf("record %s: %w", id, err)
	}
	by := s.begunBy(id) // before the time: the directory of a waiting container is old
	info, statErr := os.Stat(dir)
	if statErr != nil {
		return Journal{}, fmt.Errorf("run %q: %w", id, ErrNoRecord)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	created := info.ModTime().UTC()
	return Journal{ID: id, Created: created, Owner: by, Deadline: created.Add(beginLimit)}, err
}

// State returns the state of a run without a result; see [owner.Gone].
func (j Journal) State(now time.Time) State {
	gone, _ := owner.Gone(j.Owner, j.Deadline, now)
	if gone || j.Owner == "" {
		return Lost
	}
	return Running
}

// State returns the state of one record.
func (s *Store) State(id string) (State, error) {
	_, state, err := s.Look(id)
	return state, err
}

// Look returns the journal and the state of one record as of one moment: another process may
// claim the run at any time. A damaged journal has only the fields that [Store.Journal] names.
func (s *Store) Look(id string) (Journal, State, error) {
	r, note, err := s.read(id, briefForms)
	return note, r.State, err
}

// Claim makes this process the owner of a run whose owner is dead, until the deadline if other
// processes cannot see this one. It returns the journal as it was.
// The run may have its result: something of it may be left on the engine. Of several
// processes, and of several calls in one process, exactly one succeeds. A run whose owner
// lives, or may live, is [ErrRunning].
func (s *Store) Claim(ctx context.Context, id string, deadline time.Time) (note Journal, err error) {
	if err := s.Trusted(); err != nil {
		return Journal{}, err
	}
	err = s.change(ctx, id, func(j *Journal) error {
		if j.State(time.Now()) == Running {
			return fmt.Errorf("run %s: %w: its owner, %s, lives", id, ErrRunning, j.by())
		}
		note = *j
		j.Owner, j.Adopted, j.Deadline = owner.This().String(), true, deadline.UTC()
		return nil
	})
	return note, err
}

// Disclaim ends the ownership of this process for a run that it did not finish, and sets the
// deadline that it had before. Anybody may claim the run at once.
func (s *Store) Disclaim(ctx context.Context, id string, deadline time.Time) error {
	err := s.change(ctx, id, func(j *Journal) error {
		if j.Owner == owner.This().String() {
			j.Owner, j.Deadline = "", deadline
		}
		return nil
	})
	if errors.Is(err, ErrNoRecord) || errors.Is(err, ErrUnreadable) {
		return nil // nobody owns it
	}
	return err
}

// change changes a journal while no other process changes it.
func (s *Store) change(ctx context.Context, id string, do func(*Journal) error) (err error) {
	dir := s.RecordDir(id)
	lock, err := fsx.LockWait(ctx, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("run %q: %w", id, ErrNoRecord)
	}
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("run %s: waiting for the lock of its record: %w", id, context.Cause(ctx))
	}
	if err != nil {
		return StateError(dir, "cannot be locked", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	note, err := s.Journal(id)
	if err != nil {
		return err
	}
	if err := do(&note); err != nil {
		return err
	}
	if note.Schema == "" {
		return fmt.Errorf("run %s: %w", id, ErrNoJournal)
	}
	if err := WriteJSON(filepath.Join(dir, JournalFile), note); err != nil {
		return StateError(dir, "cannot be written", err)
	}
	return nil
}

// by names the owner.
func (j Journal) by() string {
	by, err := owner.Parse(j.Owner)
	if err != nil {
		return "nobody"
	}
	return fmt.Sprintf("process %d", by.PID)
}

// Orphans lists the runs whose owners are dead and for which something has to be done: those
// without a result, and those that may have left something on an engine. Without any it costs
// one look into a directory that has only the runs that are not over.
func (s *Store) Orphans() ([]string, error) {
	entries, err := os.ReadDir(s.openDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, StateError(s.openDir(), "cannot be read", err)
	}
	var orphans []string
	var errs []error
	for _, entry := range entries {
		switch note, err := s.Journal(entry.Name()); {
		case errors.Is(err, ErrNoRecord):
			errs = append(errs, s.Settle(entry.Name()))
		case err != nil && !errors.Is(err, ErrUnreadable):
			errs = append(errs, err)
		case note.State(time.Now()) == Lost:
			orphans = append(orphans, entry.Name())
		}
	}
	return orphans, errors.Join(errs...)
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

// WriteJSON writes a file atomically, with mode 0600. A power cut may leave it empty or torn: without it a
// run has no result, and its record says so.
func WriteJSON(path string, value any) error { return writeJSON(path, value, false) }

// WriteDurableJSON is [WriteJSON] for facts that nobody can find out again after a power cut. Each call
// waits twice for the disk: for the file and for its directory. docs/performance.md has the costs.
func WriteDurableJSON(path string, value any) error { return writeJSON(path, value, true) }

func writeJSON(path string, value any, durable bool) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", filepath.Base(path), err)
	}
	return fsx.WriteFile(path, append(text, '\n'), 0o600, durable)
}
