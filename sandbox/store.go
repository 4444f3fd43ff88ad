package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Files of a record folder.
const (
	specFile    = "spec.json"
	journalFile = "journal.json"
	resultFile  = "result.json"
	stdoutFile  = "stdout.log"
	stderrFile  = "stderr.log"
	reserveFile = "reserve"
	programDir  = "program"
	emptyInput  = "input"
	ownFinal    = "final"
	emptyFile   = "empty"
	// liveTrees are the copies that programs change, with what they began with;
	// keptTrees is what is kept of them.
	liveTrees = "live"
	keptTrees = "trees"
)

// Store holds the records of runs: one folder per run below runs/ of the state
// folder. Methods may be called concurrently, by several processes too.
type Store struct{ dir string }

// RecordState says how far a recorded run is.
type RecordState string

// States of a record.
const (
	// RecordRunning has no result yet, and its owner lives.
	RecordRunning RecordState = "running"
	// RecordFinished has a result.
	RecordFinished RecordState = "finished"
	// RecordLost has no result, and its owner is dead or cannot be seen.
	RecordLost RecordState = "lost"
)

// Record is one run on disk.
type Record struct {
	ID, Dir string
	State   RecordState
	Created time.Time
	// Spec is the zero Spec when the run never got that far.
	Spec spec.Spec
	// Result is nil until the run is finished.
	Result *result.Result
}

// StdoutPath and StderrPath are the files of the streams.
func (r Record) StdoutPath() string { return filepath.Join(r.Dir, stdoutFile) }

// StderrPath is the file of stderr; see [Record.StdoutPath].
func (r Record) StderrPath() string { return filepath.Join(r.Dir, stderrFile) }

// ProgramPath is the copy of the script that ran; empty for a run of a command.
func (r Record) ProgramPath() string {
	if r.Spec.Job.Script == "" {
		return ""
	}
	return filepath.Join(r.Dir, programDir, filepath.Base(r.Spec.Job.Script))
}

// DefaultStateDir is where records are kept when nobody says otherwise:
// /var/lib/evalbox for root, $XDG_STATE_HOME/evalbox or ~/.local/state/evalbox
// for others.
func DefaultStateDir() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "evalbox"), nil
	}
	if os.Geteuid() == 0 {
		return "/var/lib/evalbox", nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("finding the state folder: %w", err)
	}
	return filepath.Join(home, ".local", "state", "evalbox"), nil
}

// OpenStore opens the records below a state folder. The folder need not exist
// yet.
func OpenStore(dir string) (*Store, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, &PathError{Field: "state folder", Path: dir, Rule: "cannot be used", Err: cause(err)}
	}
	return &Store{dir: abs}, nil
}

// Dir is the state folder.
func (s *Store) Dir() string { return s.dir }

func (s *Store) runsDir() string  { return filepath.Join(s.dir, "runs") }
func (s *Store) locksDir() string { return filepath.Join(s.dir, "locks") }

// prepare makes the folders of the store. Only the owner may look into them: they
// hold what strangers' programs printed.
func (s *Store) prepare() error {
	for _, dir := range []string{s.dir, s.runsDir(), s.locksDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return stateError(dir, "cannot be made", err)
		}
	}
	return nil
}

// stateError names a path of the state folder and gives a full disk its class.
func stateError(path, rule string, err error) error {
	if isNoSpace(err) {
		return fmt.Errorf("state folder %q: %w: %w", path, ErrNoSpace, cause(err))
	}
	return &PathError{Field: "state folder", Path: path, Rule: rule, Err: cause(err)}
}

// create makes a new record folder; an ID that is taken is an error.
func (s *Store) create(id string) (string, error) {
	if err := s.prepare(); err != nil {
		return "", err
	}
	dir := filepath.Join(s.runsDir(), id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return "", &policy.FieldError{Field: "id", Value: fmt.Sprintf("%q", id), Rule: "a run with this ID is recorded already"}
		}
		return "", stateError(dir, "cannot be made", err)
	}
	return dir, nil
}

// ids lists the folders of the records.
func (s *Store) ids() ([]string, error) {
	entries, err := os.ReadDir(s.runsDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, stateError(s.runsDir(), "cannot be read", err)
	}
	var ids []string
	for _, entry := range entries {
		if entry.IsDir() {
			ids = append(ids, entry.Name())
		}
	}
	return ids, nil
}

// List returns all records, oldest first, without the texts of their streams,
// which would be megabytes each. A record that cannot be read is left out and
// named in the error; the others are returned all the same.
func (s *Store) List() ([]Record, error) {
	ids, err := s.ids()
	if err != nil {
		return nil, err
	}
	var records []Record
	var errs []error
	for _, id := range ids {
		record, err := s.load(id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if record.Result != nil {
			record.Result.Stdout, record.Result.Stderr = "", ""
		}
		records = append(records, record)
	}
	slices.SortFunc(records, func(a, b Record) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return records, errors.Join(errs...)
}

// Get returns the record with this ID, or the only one whose ID begins so.
func (s *Store) Get(id string) (Record, error) {
	full, err := s.find(id)
	if err != nil {
		return Record{}, err
	}
	return s.load(full)
}

func (s *Store) find(id string) (string, error) {
	if err := policy.CheckName("id", id); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(s.runsDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", stateError(s.runsDir(), "cannot be read", err)
	}
	var matches []string
	for _, entry := range entries {
		switch name := entry.Name(); {
		case name == id:
			return id, nil
		case strings.HasPrefix(name, id):
			matches = append(matches, name)
		}
	}
	switch len(matches) {
	case 0:
		return "", fmt.Errorf("run %q: %w", id, ErrNoRecord)
	case 1:
		return matches[0], nil
	}
	return "", &policy.FieldError{Field: "id", Value: fmt.Sprintf("%q", id),
		Rule: fmt.Sprintf("%d runs begin so, such as %s", len(matches), matches[0])}
}

// load reads one record folder.
func (s *Store) load(id string) (Record, error) {
	record := Record{ID: id, Dir: filepath.Join(s.runsDir(), id), State: RecordLost}
	note, err := s.journal(id)
	if err != nil {
		return Record{}, err
	}
	record.Created = note.Created
	if err := readJSON(filepath.Join(record.Dir, specFile), &record.Spec); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Record{}, fmt.Errorf("record %s: %w", id, err)
	}
	text, err := os.ReadFile(filepath.Join(record.Dir, resultFile))
	switch {
	case err == nil:
		decoded, err := result.Decode(text)
		if err != nil {
			return Record{}, fmt.Errorf("record %s: %w", id, err)
		}
		record.Result, record.State = &decoded, RecordFinished
	case !errors.Is(err, fs.ErrNotExist):
		return Record{}, fmt.Errorf("record %s: %w", id, err)
	default:
		record.State = note.state(time.Now())
	}
	return record, nil
}

// Remove deletes a record with everything in it, also a damaged one. The record
// of a running program is refused.
func (s *Store) Remove(id string) error {
	id, err := s.find(id)
	if err != nil {
		return err
	}
	state, err := s.state(id)
	if err == nil && state == RecordRunning {
		return fmt.Errorf("run %s: %w", id, ErrRunning)
	}
	if path, lent := s.lentBy(id); err == nil && state == RecordLost && lent {
		return fmt.Errorf("run %s: %w: its final %q is still lent to its program", id, ErrRunning, path)
	}
	if err := removeTree(filepath.Join(s.runsDir(), id)); err != nil {
		return fmt.Errorf("removing record %s: %w", id, err)
	}
	return nil
}
