package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/evalbox/evalbox/internal/atend"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/hostpath"
	"github.com/evalbox/evalbox/sandbox/outcome"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/recover"
)

// Work makes a run the only one that is done for a job: if the controller of an
// earlier run with the same Key, the same Version and the same request died, that run is finished, see
// [Runner.Adopt], or its result is taken if somebody has finished it; the program does not
// run again. The request is the same without its ID and its trial labels; of the script its
// content counts. Any other run with the same Key whose controller died is killed, and gets its
// result.
//
// The run stays on record for that until [Runner.Run] returns or, in the context of a job of
// harness/trial, until the result of the job is on disk.
type Work struct {
	// Key names the job, such as by its directory. No two jobs with one Key may run at the same time.
	Key string
	// Version names everything else that the result depends on.
	Version string
}

func (w Work) apply(all *runOptions) { all.work = w }

// workNote says which run is done for a job.
type workNote struct {
	RunID string `json:"run_id"`
}

// readWork reads the note of a file; false if there is none, or a damaged one.
func readWork(file string) (note workNote, ok bool) {
	ok = file != "" && record.ReadJSON(file, &note) == nil && note.RunID != ""
	return note, ok
}

// workFile is the file of the state directory about a job; empty if the run is for none.
func (r *Runner) workFile(w Work, req Request) (string, error) {
	if w.Key == "" {
		return "", nil
	}
	req.ID, req.ScriptFrom = "", ""
	req.Labels = maps.Clone(req.Labels)
	maps.DeleteFunc(req.Labels, func(name, _ string) bool { return strings.HasPrefix(name, "trial.") })
	script := ""
	if req.Script != "" {
		text, err := fsx.Read(req.Script, hostpath.MaxScript)
		if err != nil {
			return "", nil //nolint:nilerr // the plan refuses it with the reason
		}
		sum := sha256.Sum256(text)
		script, req.Script = hex.EncodeToString(sum[:]), filepath.Base(req.Script)
	}
	text, err := json.Marshal([]any{w.Version, req, script})
	if err != nil {
		return "", fmt.Errorf("run for %q: %w", w.Key, err)
	}
	key, version := sha256.Sum256([]byte(w.Key)), sha256.Sum256(text)
	return filepath.Join(r.store.WorkDir(), hex.EncodeToString(key[:16])+"-"+hex.EncodeToString(version[:16])+".json"), nil
}

// endOthers ends the other runs that dead controllers began for the same job: nobody waits for their
// results, and their outputs come to its ./final. A run that cannot be ended stays in the way of the new run,
// which says so.
func (r *Runner) endOthers(ctx context.Context, file string) {
	if file == "" {
		return
	}
	key, _, _ := strings.Cut(filepath.Base(file), "-")
	entries, _ := os.ReadDir(filepath.Dir(file)) // there may be none
	for _, entry := range entries {
		other := filepath.Join(filepath.Dir(file), entry.Name())
		note, ok := readWork(other)
		if !strings.HasPrefix(entry.Name(), key+"-") || other == file || !ok {
			continue
		}
		found, err := r.store.Load(note.RunID)
		if err != nil || found.State == record.Running || !r.store.IsOpen(note.RunID) {
			continue
		}
		r.log.Debug("the run of a dead controller is ended: its job has another request now", logRun, note.RunID)
		if found.State == record.Lost {
			err = r.store.RequestStop(note.RunID, true)
		}
		if err == nil {
			_, err = r.adopt(ctx, found, runOptions{})
		}
		switch {
		case err != nil && !errors.Is(err, outcome.ErrOwnerDied):
			r.log.Debug("the run of a dead controller was not ended", logRun, note.RunID, logError, err)
		case found.State == record.Lost:
			_ = os.Remove(other) // a note that stays only costs a look
		}
	}
}

// beginWork notes the run, before it has a record. The note is removed at the end of its job.
func (a *run) beginWork(ctx context.Context) error {
	if a.workFile == "" {
		return nil
	}
	if err := a.runner.store.Prepare(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(a.workFile), 0o700); err != nil {
		return record.StateError(a.workFile, "cannot be made", err)
	}
	if err := record.WriteJSON(a.workFile, workNote{a.spec.Job.RunID}); err != nil {
		return record.StateError(a.workFile, "cannot be written", err)
	}
	a.endWork = a.runner.endWork(ctx, a.workFile, a.spec.Job.RunID)
	return nil
}

// endWork leaves the removal of the note about a run for the end of the job of a context; without a job the
// caller removes it. Without a note nobody asks whether the result of the run was returned.
func (r *Runner) endWork(ctx context.Context, file, id string) func() {
	remove := func() {
		_ = os.Remove(file) // a note that stays only costs a look
		r.taken.Delete(id)
	}
	if atend.Leave(ctx, remove) {
		return func() {}
	}
	return remove
}

// tidyWork removes the notes that are damaged, and those about runs that have no record any more. A new
// note may be of a run that is about to have one.
func (r *Runner) tidyWork() {
	entries, _ := os.ReadDir(r.store.WorkDir()) // there may be none
	for _, entry := range entries {
		file := filepath.Join(r.store.WorkDir(), entry.Name())
		info, err := entry.Info()
		if err != nil {
			continue
		}
		note, ok := readWork(file)
		if ok {
			_, err = r.store.State(note.RunID)
		}
		if !ok || errors.Is(err, record.ErrNoRecord) && time.Since(info.ModTime()) >= reservePatience {
			_ = os.Remove(file) // as above
		}
	}
}

// reservePatience is how long a run may take between its note and its record.
const reservePatience = time.Minute

// workPoll is how often a run that another process finishes is looked at.
const workPoll = 50 * time.Millisecond

// resumeWork returns the result of the run that a dead controller began for the same job. ok is
// false if there is none: then the program has to run.
func (r *Runner) resumeWork(ctx context.Context, file string, o runOptions) (_ *result.Result, ok bool, _ error) {
	note, ok := readWork(file)
	if !ok {
		return nil, false, nil
	}
	for began := time.Now(); ; {
		found, noRecord := r.store.Load(note.RunID)
		journal, noJournal := r.store.Journal(note.RunID)
		if noRecord != nil || noJournal != nil && !errors.Is(noJournal, record.ErrUnreadable) {
			return nil, false, nil // without a record nothing is known of it
		}
		var res *result.Result
		var err error // of this look only
		orphaned := journal.State(time.Now()) == record.Lost
		switch _, again := r.taken.Load(note.RunID); {
		case again, !orphaned && !journal.Adopted:
			return nil, false, nil // it is, or was, a run of a living controller
		case found.State == record.Running, !orphaned && r.store.IsOpen(note.RunID) && time.Since(began) < removalPatience:
			select {
			case <-ctx.Done():
				return nil, false, outcome.Canceled(ctx)
			case <-time.After(workPoll):
				continue
			}
		case found.State == record.Finished:
			res = found.Result
		default:
			r.log.Debug("the run of a dead controller is finished instead of a new one", logRun, note.RunID)
			res, err = r.adopt(ctx, found, o)
		}
		switch {
		case errors.Is(err, record.ErrRunning):
			continue // somebody else was faster
		case neverRan(res, err):
			return nil, false, nil
		}
		if res != nil {
			r.taken.Store(note.RunID, true)
			defer r.endWork(ctx, file, note.RunID)()
		}
		return res, true, err
	}
}

// neverRan reports whether the program of a run that was to be finished never started, or cannot
// be known here.
func neverRan(res *result.Result, err error) bool {
	if res == nil {
		return errors.Is(err, outcome.ErrOwnerDied) || errors.Is(err, recover.ErrElsewhere)
	}
	return res.Recovered && res.Status == result.StatusStartFailed && res.ExitCode == -1
}
