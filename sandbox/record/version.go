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
)

// StateSchema is the version of a state directory: of its records, and of what belongs to them.
const StateSchema = "evalbox/state/v1"

// StateFile is the file of a state directory that names its version.
const StateFile = "state.json"

// versioned are the entries of a state directory whose form is that of its version. The others, such
// as the log of trials, name their own.
var versioned = []string{"locks", "open", "pool", "pool.sock", "runs", StateFile, "work"}

// VersionError reports a state directory of another version. Its records cannot be used.
type VersionError struct {
	Dir string
	// Version is the version of the directory. It is empty for records from before there were versions,
	// and if [StateFile] is damaged.
	Version string
	Damaged bool
	// Records are the paths to delete for an empty directory of this version.
	Records []string
}

func (e *VersionError) Error() string {
	if e.Damaged {
		return fmt.Sprintf("state directory %q: its %s is damaged and names no version; this sandbox needs %s", e.Dir, StateFile, StateSchema)
	}
	if e.Version == "" {
		return fmt.Sprintf("state directory %q: has records of an older sandbox, without a version; this one needs %s", e.Dir, StateSchema)
	}
	return fmt.Sprintf("state directory %q: has version %q; this sandbox needs %s", e.Dir, e.Version, StateSchema)
}

// stateForm is the form of [StateFile].
type stateForm struct {
	Schema string `json:"schema"`
}

// maxState bounds [StateFile] in bytes.
const maxState = 4 << 10

// hasVersion reports whether the state directory has this version; it has none before its first
// run. Another version is a [*VersionError].
func (s *Store) hasVersion() (bool, error) {
	path := filepath.Join(s.dir, StateFile)
	text, err := fsx.Read(path, maxState)
	if errors.Is(err, fs.ErrNotExist) {
		if !s.hasJournals() {
			return false, nil
		}
		text, err = fsx.Read(path, maxState) // the first run may have just begun
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, StateError(path, "cannot be read", err)
	}
	var is stateForm
	_ = json.Unmarshal(text, &is) // no text, and no JSON, is no version
	if is.Schema == StateSchema {
		return true, nil
	}
	other := &VersionError{Dir: s.dir, Version: is.Schema, Damaged: err == nil && is.Schema == ""}
	for _, name := range versioned {
		entry := filepath.Join(s.dir, name)
		if _, err := os.Lstat(entry); err == nil {
			other.Records = append(other.Records, entry)
		}
	}
	return false, other
}

// hasJournals reports whether any run is recorded. A directory runs/ alone may be anybody's.
func (s *Store) hasJournals() bool {
	ids, _ := s.IDs() // what cannot be read has no journal
	for _, id := range ids {
		if _, err := os.Lstat(filepath.Join(s.RecordDir(id), JournalFile)); err == nil {
			return true
		}
	}
	return false
}

// versionPatience is how long to wait for a process that gives the directory its version: one write.
const versionPatience = 10 * time.Second

// setVersion gives a new state directory its version. Of several processes, the first one decides.
func (s *Store) setVersion() (err error) {
	if has, err := s.hasVersion(); has || err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), versionPatience, errors.New("another process keeps it locked"))
	defer cancel()
	lock, err := fsx.LockWait(ctx, s.LocksDir())
	if err != nil {
		return StateError(s.LocksDir(), "cannot be locked", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if has, err := s.hasVersion(); has || err != nil {
		return err
	}
	text, err := json.Marshal(stateForm{StateSchema})
	if err == nil {
		err = fsx.WriteFile(filepath.Join(s.dir, StateFile), append(text, '\n'), 0o600, true)
	}
	if err != nil {
		return StateError(filepath.Join(s.dir, StateFile), "cannot be written", err)
	}
	return nil
}
