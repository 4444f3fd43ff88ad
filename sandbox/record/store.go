// Package record keeps the records of runs on disk: one directory per run, with its plan, its
// journal, its output and its result. It needs no engine.
package record

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evalbox/evalbox/internal/brief"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Errors of records, for errors.Is.
var (
	// ErrRunning means that the run of a record has not finished, or was not cleaned up.
	ErrRunning = errors.New("is not over")
	// ErrNoSpace means that the disk of the state directory is full or nearly so.
	ErrNoSpace = errors.New("not enough disk space")
	// ErrNoRecord means that no run with this ID is recorded.
	ErrNoRecord = errors.New("no such run")
	// ErrUnreadable means that a file of a record is damaged. Processes replace these files as a whole,
	// so the power failed, or the disk did.
	ErrUnreadable = errors.New("cannot be read")
)

// Files of a record directory.
const (
	SpecFile    = "spec.json"
	JournalFile = "journal.json"
	ResultFile  = "result.json"
	StdoutFile  = "stdout.log"
	StderrFile  = "stderr.log"
	// NetworkFile is the log of the requests of a run with a proxy.
	NetworkFile = "network.jsonl"
	ReserveFile = "reserve"
	// StopFile asks the owner of the run to end it, and KillFile to end it at once; see
	// [Store.RequestStop]. They are empty: a full disk does not keep them from being made.
	StopFile   = "stop"
	KillFile   = "kill"
	ProgramDir = "program"
	EmptyInput = "input"
	OwnFinal   = "final"
	EmptyFile  = "empty"
	// LiveTrees are the working copies with their initial state; KeptTrees are the
	// changes that are kept.
	LiveTrees = "live"
	KeptTrees = "trees"
	// DiskImage is the file system of a run whose disk limit it enforces, DiskDir where it is
	// mounted.
	DiskImage = "disk.img"
	DiskDir   = "disk"
	// AccountsDir, EgressDir, HoldDir and WatchDir are mounted during a run; the last three in a
	// run with a proxy, or in an observed one. No program can write there.
	AccountsDir = "accounts"
	EgressDir   = "egress"
	HoldDir     = "hold"
	WatchDir    = "watch"
)

// MountedDirs are directories that only exist during their run.
var MountedDirs = []string{AccountsDir, EgressDir, HoldDir, WatchDir}

// Store is the records of runs: one directory per run below runs/ of the state directory.
// Methods may be called concurrently, also by several processes.
type Store struct{ dir string }

// State says how far a recorded run is.
type State string

// States of a record.
const (
	// Running means that there is no result yet, and that the owner lives.
	Running State = "running"
	// Finished means that there is a result.
	Finished State = "finished"
	// Lost means that there is no result, and that the owner is dead or cannot be seen.
	Lost State = "lost"
	// Unreadable means that the result is damaged, or that there is none and nobody can get it: the
	// owner is dead or cannot be seen, and the plan or the journal is damaged.
	Unreadable State = "unreadable"
)

// Abandoned reports whether the result cannot be read and no owner can still write it.
func (s State) Abandoned() bool { return s == Lost || s == Unreadable }

// Record is one run on disk.
type Record struct {
	ID, Dir string
	State   State
	Created time.Time
	// Spec is the zero Spec if the run ended before its plan was written, or if the plan is damaged.
	Spec spec.Spec
	// Result is nil until the run is finished, and if the result is damaged.
	Result *result.Result
	// Damage is an [ErrUnreadable] that names a damaged file; nil if there is none.
	Damage error
}

// StdoutPath returns the file of stdout.
func (r Record) StdoutPath() string { return filepath.Join(r.Dir, StdoutFile) }

// StderrPath returns the file of stderr.
func (r Record) StderrPath() string { return filepath.Join(r.Dir, StderrFile) }

// Script returns the path under which people know the script that ran; empty for a run of a command.
func (r Record) Script() string { return cmp.Or(r.Spec.Job.ScriptFrom, r.Spec.Job.Script) }

// Command returns the command line of the program. A script has the path under which people know it,
// if the container has a copy of another name.
func (r Record) Command() []string {
	job := r.Spec.Job
	if job.ScriptFrom == "" {
		return job.Command
	}
	command := slices.Clone(job.Command)
	if at := slices.Index(command, path.Join(spec.WorkDir, filepath.Base(job.Script))); at >= 0 {
		command[at] = job.ScriptFrom
	}
	return command
}

// ProgramPath returns the copy of the script that ran; empty for a run of a command.
func (r Record) ProgramPath() string {
	if r.Spec.Job.Script == "" {
		return ""
	}
	return filepath.Join(r.Dir, ProgramDir, filepath.Base(r.Spec.Job.Script))
}

// DefaultDir returns the default state directory: $XDG_STATE_HOME/evalbox, or else
// /var/lib/evalbox for root and ~/.local/state/evalbox for other users.
func DefaultDir() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "evalbox"), nil
	}
	if os.Geteuid() == 0 {
		return "/var/lib/evalbox", nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("finding the state directory: %w", err)
	}
	return filepath.Join(home, ".local", "state", "evalbox"), nil
}

// Open opens the records below a state directory, which need not exist yet. It refuses one of
// another version with a [*VersionError].
func Open(dir string) (*Store, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, &spec.PathError{Field: "state directory", Path: dir, Rule: "cannot be used", Err: fsx.Cause(err)}
	}
	s := &Store{dir: abs}
	var other *VersionError
	if _, err := s.hasVersion(); errors.As(err, &other) {
		return nil, other
	}
	return s, nil // each use reports what cannot be read
}

// Dir returns the state directory.
func (s *Store) Dir() string { return s.dir }

// RunsDir returns the directory of the records, and LocksDir that of the locks.
func (s *Store) RunsDir() string  { return filepath.Join(s.dir, "runs") }
func (s *Store) LocksDir() string { return filepath.Join(s.dir, "locks") }

// WorkDir returns the directory of notes about the jobs that runs are done for.
func (s *Store) WorkDir() string { return filepath.Join(s.dir, "work") }

// PoolDir returns the directory of the containers that wait for their runs: a directory for each,
// with the ID that the run gets.
func (s *Store) PoolDir() string { return filepath.Join(s.dir, "pool") }

// openDir has a file for each run of which something may still have to be done. It names the
// process that began the run.
func (s *Store) openDir() string { return filepath.Join(s.dir, "open") }

// Prepare makes the directories of the store, and gives a new one its version. Only the owner may
// read them: they contain the output of untrusted programs. It refuses a directory that is not
// [Store.Trusted], one whose file system cannot lock files, and one of another version.
func (s *Store) Prepare() error {
	if err := s.Trusted(); err != nil {
		return err
	}
	for _, dir := range []string{s.dir, s.RunsDir(), s.LocksDir(), s.openDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return StateError(dir, "cannot be made", err)
		}
	}
	if err := s.checkLocks(); err != nil {
		return err
	}
	return s.setVersion()
}

// StateError names a path of the state directory. A full disk becomes an [ErrNoSpace].
func StateError(path, rule string, err error) error {
	if fsx.IsNoSpace(err) {
		return fmt.Errorf("state directory %q: %w: %w", path, ErrNoSpace, fsx.Cause(err))
	}
	return &spec.PathError{Field: "state directory", Path: path, Rule: rule, Err: fsx.Cause(err)}
}

// Create makes the directory of a new record. An ID that exists is an error.
func (s *Store) Create(id string) (string, error) {
	if err := s.Prepare(); err != nil {
		return "", err
	}
	dir := filepath.Join(s.RunsDir(), id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return "", &policy.FieldError{Field: "id", Value: fmt.Sprintf("%q", id), Rule: "a run with this ID is recorded already"}
		}
		return "", StateError(dir, "cannot be made", err)
	}
	return dir, s.begin(id, dir)
}

// begin notes that this process has begun a run. After an error there is no record.
func (s *Store) begin(id, dir string) error {
	// The file arrives whole under its name: [Store.Orphans] takes every other name in that
	// directory for a run that has no record, and deletes it.
	open, aside := filepath.Join(s.openDir(), id), filepath.Join(dir, "open")
	err := os.WriteFile(aside, []byte(owner.This().String()), 0o600)
	if err == nil {
		err = os.Rename(aside, open)
	}
	if err != nil {
		return errors.Join(StateError(open, "cannot be made", err), os.RemoveAll(dir))
	}
	return nil
}

// begunBy returns the owner that began a run that is not settled; otherwise it is empty.
func (s *Store) begunBy(id string) string {
	by, err := os.ReadFile(filepath.Join(s.openDir(), id))
	if err != nil {
		by, err = os.ReadFile(filepath.Join(s.RecordDir(id), poolOwner)) // it is being taken
	}
	if err != nil {
		return ""
	}
	return string(by)
}

// IsOpen reports whether something may still have to be done for a run; see [Store.Settle].
func (s *Store) IsOpen(id string) bool {
	_, err := os.Lstat(filepath.Join(s.openDir(), id))
	return err == nil
}

// Settle notes that nothing more has to be done for a run: it has its result, or no record,
// and nothing of it is on an engine. It is for the owner of the run.
func (s *Store) Settle(id string) error {
	if err := os.Remove(filepath.Join(s.openDir(), id)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// IDs lists the IDs of all records.
func (s *Store) IDs() ([]string, error) {
	entries, err := os.ReadDir(s.RunsDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, StateError(s.RunsDir(), "cannot be read", err)
	}
	var ids []string
	for _, entry := range entries {
		if entry.IsDir() {
			ids = append(ids, entry.Name())
		}
	}
	return ids, nil
}

// List returns all records, oldest first, without the texts of their streams, which can have
// megabytes. A damaged record is one of them; see [Unreadable]. The error names the records whose files
// the system does not let this process read; the others are returned nevertheless.
func (s *Store) List() ([]Record, error) {
	return s.list(wholeForms, func(r *Record) {
		if r.Result != nil {
			r.Result.Stdout, r.Result.Stderr = "", ""
		}
	})
}

// ListBrief is List for lists of many runs. It is several times as fast, and leaves out what
// only a report of one run shows: of Spec everything but the ID, name, labels, command and
// script of its job; of Result everything but how the run ended, and what was enforced.
func (s *Store) ListBrief() ([]Record, error) { return s.list(briefForms, func(*Record) {}) }

// LoadBrief reads the record with exactly this ID as [Store.ListBrief] does.
func (s *Store) LoadBrief(id string) (Record, error) { return s.load(id, briefForms) }

func (s *Store) list(as forms, each func(*Record)) ([]Record, error) {
	ids, err := s.IDs()
	if err != nil {
		return nil, err
	}
	all := make([]Record, len(ids))
	errs := make([]error, len(ids))
	var next atomic.Int64
	var readers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), maxReaders, len(ids)) {
		readers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(ids); i = int(next.Add(1)) - 1 {
				all[i], errs[i] = s.load(ids[i], as)
				each(&all[i])
			}
		})
	}
	readers.Wait()
	records := slices.DeleteFunc(all, func(r Record) bool { return r.ID == "" })
	slices.SortFunc(records, func(a, b Record) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
	})
	return records, errors.Join(errs...)
}

// maxReaders bounds the records that are read at the same time.
const maxReaders = 8

// Get returns the record of the run that a handle names; see [Resolve].
func (s *Store) Get(handle string) (Record, error) {
	id, err := s.Find(handle)
	if err != nil {
		return Record{}, err
	}
	return s.Load(id)
}

// Load reads the record with exactly this ID.
func (s *Store) Load(id string) (Record, error) { return s.load(id, wholeForms) }

// forms decode the files of a record. Without a function for the result it is not read, and the
// state is not looked at.
type forms struct {
	spec   func(text []byte) (spec.Spec, error)
	result func(text []byte) (result.Result, error)
}

var wholeForms = forms{result: result.Decode, spec: func(text []byte) (spec.Spec, error) {
	var whole spec.Spec
	err := json.Unmarshal(text, &whole)
	return whole, err
}}

var briefForms = forms{
	spec: func(text []byte) (spec.Spec, error) {
		var some struct {
			Schema string `json:"schema"`
			Job    struct {
				RunID   string            `json:"run_id"`
				Name    string            `json:"name"`
				Labels  map[string]string `json:"labels"`
				Command []string          `json:"command"`
				Script  string            `json:"script"`
				From    string            `json:"script_from"`
			} `json:"job"`
		}
		text, err := brief.Members(text, func(key string) bool { return key == "schema" || key == "job" })
		if err == nil {
			err = json.Unmarshal(text, &some)
		}
		job := some.Job
		return spec.Spec{Schema: some.Schema, Job: spec.Job{RunID: job.RunID, Name: job.Name, Labels: job.Labels, Command: job.Command, Script: job.Script, ScriptFrom: job.From}}, err
	},
	result: func(text []byte) (result.Result, error) {
		text, err := brief.Members(text, func(key string) bool { return endMembers[key] })
		if err != nil {
			return result.Result{}, err
		}
		return result.Decode(text)
	},
}

// endMembers are the members of a result that [Store.ListBrief] reads.
var endMembers = map[string]bool{
	"schema": true, "id": true, "name": true, "status": true, "fault": true, "exit_code": true, "signal": true,
	"timed_out": true, "oom_killed": true, "explanation": true, "is_error": true, "error_reason": true, "score": true,
	"started_at": true, "finished_at": true, "duration_seconds": true, "enforced": true,
}

func (s *Store) load(id string, as forms) (Record, error) {
	record, _, err := s.read(id, as)
	return record, err
}

// read reads a record and its journal, as of one moment.
func (s *Store) read(id string, as forms) (Record, Journal, error) {
	if id == "" { // the directory of all records
		return Record{}, Journal{}, fmt.Errorf("run %q: %w", id, ErrNoRecord)
	}
	record := Record{ID: id, Dir: s.RecordDir(id), State: Lost}
	note, err := s.Journal(id)
	switch {
	case errors.Is(err, ErrUnreadable):
		record.Damage = err
	case err != nil:
		return Record{}, Journal{}, err
	}
	record.Created = note.Created
	if err := record.readSpec(as, note.Container != ""); err != nil {
		return Record{}, Journal{}, err
	}
	if as.result == nil {
		return record, note, nil
	}
	text, err := record.readFile(ResultFile)
	switch {
	case err != nil:
		return Record{}, Journal{}, err
	case text != nil:
		decoded, err := as.result(text)
		if err != nil {
			record.State, record.Damage = Unreadable, damaged(id, ResultFile, text)
			break
		}
		record.Result, record.State = &decoded, Finished
	default:
		record.State = note.State(time.Now())
		if record.State == Lost && record.Damage != nil {
			record.State = Unreadable
		}
	}
	return record, note, nil
}

// readSpec reads the plan. planned says that there must be one: it is written before the journal that
// names a container.
func (r *Record) readSpec(as forms, planned bool) error {
	text, err := r.readFile(SpecFile)
	if err != nil {
		return err
	}
	if text == nil && !planned {
		return nil
	}
	if read, err := as.spec(text); err == nil && read.Schema == spec.SchemaV1 {
		r.Spec = read
	} else if r.Damage == nil {
		r.Damage = damaged(r.ID, SpecFile, text)
	}
	return nil
}

// readFile reads a file of a record; nil if there is none.
func (r *Record) readFile(name string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(r.Dir, name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("record %s: %w", r.ID, err)
	}
	return text, nil
}

// damaged is an [ErrUnreadable] of a file of a record, which has this text; nil if the file is missing.
func damaged(id, file string, text []byte) error {
	switch {
	case text == nil:
		return &damageError{id, file, "it is missing"}
	case len(text) == 0:
		return &damageError{id, file, "it is empty"}
	}
	return &damageError{id, file, "its content is damaged"}
}

type damageError struct{ id, file, why string }

func (e *damageError) Error() string {
	return fmt.Sprintf("run %s: its %s %v: %s", e.id, e.file, ErrUnreadable, e.why)
}

func (e *damageError) Hint() string {
	return "end the run and delete its record, logs and outputs with: sandbox rm " + e.id
}

func (e *damageError) Is(target error) bool { return target == ErrUnreadable }

// RequestStop asks the owner of a run to end it as if its caller had canceled it, with now set
// without the grace period. It does not wait. An owner that dies first leaves the request to the
// process that adopts the run.
func (s *Store) RequestStop(id string, now bool) error {
	names := []string{StopFile}
	if now {
		names = append(names, KillFile)
	}
	for _, name := range names {
		path := filepath.Join(s.RecordDir(id), name)
		file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|fsx.OpenFlags, 0o600)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("run %q: %w", id, ErrNoRecord)
		case err != nil:
			return StateError(path, "cannot be made", err)
		}
		_ = file.Close() // nothing was written
	}
	return nil
}

// StopRequested reports whether another process asked to end a run, and whether at once.
func (s *Store) StopRequested(id string) (stop, now bool) {
	_, err := os.Lstat(filepath.Join(s.RecordDir(id), StopFile))
	if stop = err == nil; stop {
		_, err = os.Lstat(filepath.Join(s.RecordDir(id), KillFile))
		now = err == nil
	}
	return stop, now
}

// Remove deletes a record with everything in it, also a damaged one. It refuses the record of
// a running program, and one whose outputs have still to come to their ./final, with an
// [ErrRunning]. The run may be named by any handle; see [Resolve].
func (s *Store) Remove(handle string) error {
	id, err := s.Find(handle)
	if err != nil {
		return err
	}
	state, err := s.State(id)
	if err == nil && state == Running {
		return fmt.Errorf("run %s: %w", id, ErrRunning)
	}
	if dir, final := s.Unpublished(id); err == nil && (state == Lost || s.IsOpen(id)) && dir != "" {
		return fmt.Errorf("run %s: %w: its outputs in %s have still to come to its final %q", id, ErrRunning, dir, final)
	}
	return s.Discard(id)
}

// Discard deletes the record of a run that this process owns, and of which nothing is on an
// engine.
func (s *Store) Discard(id string) error {
	if id == "" { // the directory of all records
		return fmt.Errorf("run %q: %w", id, ErrNoRecord)
	}
	dirs := []string{s.RecordDir(id)}
	if found, err := s.Load(id); err == nil {
		dirs = append(dirs, OutputDirs(found.Dir, found.Spec.Job.Final, id)[1:]...)
	}
	for i, dir := range slices.Backward(dirs) { // the record, which names the others, comes last
		if i > 0 && !fsx.IsRealDir(dir) {
			continue
		}
		if err := fsx.Remove(dir); err != nil {
			return fmt.Errorf("removing record %s: %w", id, err)
		}
	}
	return s.Settle(id)
}

// Unpublished returns the directory with the outputs of a run that have not come to its ./final; empty
// for none.
func (s *Store) Unpublished(id string) (dir, final string) {
	found, err := s.Load(id)
	if err != nil || found.Spec.Job.Final == "" {
		return "", ""
	}
	for _, dir := range OutputDirs(s.RecordDir(id), found.Spec.Job.Final, id) {
		if names, err := os.ReadDir(dir); err == nil && len(names) > 0 {
			return dir, found.Spec.Job.Final
		}
	}
	return "", ""
}

// Names of the directories of a run beside its ./final, and in it if there is no room beside it.
const (
	partialBeside = ".partial-"
	// PartialIn is the beginning of the names in ./final.
	PartialIn = ".evalbox-partial-"
)

// OutputDir is the directory that has the outputs of the run at the moment: a directory of the run, until
// they come to its ./final.
func (r Record) OutputDir() string {
	dirs := OutputDirs(r.Dir, r.Spec.Job.Final, r.ID)
	for _, dir := range dirs {
		if fsx.IsRealDir(dir) {
			return dir
		}
	}
	return cmp.Or(r.Spec.Job.Final, dirs[0])
}

// OutputDirs are the directories that a run may have its outputs in until they come to its ./final: one in
// its record; one beside ./final, if entries cannot be moved there from the record; and one in ./final, if
// there is no room beside it. A run without a ./final has only the first.
func OutputDirs(recordDir, final, id string) []string {
	all := []string{filepath.Join(recordDir, OwnFinal)}
	if final != "" {
		all = append(all, final+partialBeside+id, filepath.Join(final, PartialIn+id))
	}
	return all
}

// RecordDir returns the directory of a run's record, which need not exist.
func (s *Store) RecordDir(id string) string { return filepath.Join(s.RunsDir(), id) }

// TreeDir returns the directory with the files that a program created or changed in the i-th
// tree of its Spec, under their paths in the tree.
func (s *Store) TreeDir(id string, i int) string { return KeptTree(s.RecordDir(id), i) }

// Size returns the number of bytes that the record of a run takes on the disk. It looks at no more
// than most entries, and returns how many it looked at; whole is false if there are more, or if some
// cannot be looked at. Files of other file systems, which are mounted while the run goes on, do not
// count.
func (s *Store) Size(id string, most int) (bytes int64, seen int, whole bool) {
	root, err := fsx.OpenRoot(s.RecordDir(id))
	if err != nil {
		return 0, 1, false
	}
	defer root.Close()
	const block = 512 // of Stat_t.Blocks, whatever that of the file system is
	err = fsx.Visit(root, func() bool { return seen < most }, func(v fsx.Visited) error {
		seen++
		if v.OtherDevice() {
			return fs.SkipDir
		}
		bytes += v.Stat.Blocks * block
		return nil
	})
	return bytes, seen, err == nil && seen < most
}

// NewID returns an ID of a run that is unique on any number of hosts and sorts by time.
func NewID(now time.Time) string {
	return now.UTC().Format("20060102t150405") + fmt.Sprintf("-%010x", rand.Uint64N(1<<40)) //nolint:gosec // unique, and no secret
}

// LiveTree returns the directory of a record with the i-th working copy.
func LiveTree(record string, i int) string {
	return filepath.Join(record, LiveTrees, strconv.Itoa(i))
}

// KeptTree returns the directory of a record with the changes of the i-th working copy.
func KeptTree(record string, i int) string {
	return filepath.Join(record, KeptTrees, strconv.Itoa(i))
}

// LeftFile returns the file of a record with what the i-th working copy left out.
func LeftFile(record string, i int) string {
	return filepath.Join(record, KeptTrees, strconv.Itoa(i)+".left.json")
}

// ChangesFile returns the file of a record with the changes of the i-th working copy, while
// they are moved.
func ChangesFile(record string, i int) string {
	return filepath.Join(record, KeptTrees, strconv.Itoa(i)+".changes.json")
}

// BaseFile returns the file of a record with the initial state of the i-th working copy.
func BaseFile(record string, i int) string {
	return filepath.Join(record, KeptTrees, strconv.Itoa(i)+".jsonl")
}
