package trial

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
)

// Names in the directory of a log, and in that of a job.
const (
	indexFile  = "index.jsonl"
	jobsDir    = "jobs"
	jobFile    = "job.json"
	eventsFile = "events.jsonl"
	resultFile = "result.json"
)

// Bounds of a log.
const (
	maxSpec   = 16 << 20 // of job.json
	maxResult = 64 << 20 // of result.json
	maxEvents = 4 << 20  // of events.jsonl; later events are not kept
	maxText   = 4 << 10  // of the text of an event
)

var (
	// A line has a brief result: see Result.brief and Job.check. It need not survive a power
	// cut: the results do, and the index is completed from them.
	indexLines = fsx.Lines{Start: `{"schema":"` + ResultSchemaV1 + `"`, Max: 256 << 10}
	eventLines = fsx.Lines{Start: `{"schema":"` + EventSchemaV1 + `"`, Max: 64 << 10}
)

// MaxDetail bounds [Result.Detail] in a log, in bytes. A longer one is left out.
const MaxDetail = 32 << 20

// errDamaged means that the index cannot be read, and has to be made again from the results.
var errDamaged = errors.New(indexFile + " is damaged")

// ErrNoJob means that a log has no job with this ID.
var ErrNoJob = errors.New("no such job")

// A Log is the record of jobs in a directory:
//
//	index.jsonl                  one line for each result: job, verdict, reason, score, runs, usage
//	jobs/ID/job.json             the job as it was asked for
//	jobs/ID/events.jsonl         its events, as they happened
//	jobs/ID/result.json          the result, written atomically
//
// Methods may be called concurrently, and several processes may write one log. A torn last
// line of the index is left out. An index that is missing or lacks results is completed from
// the results. [Log.Expire] removes old jobs. Everything can be read without an engine.
type Log struct {
	dir string

	mu sync.Mutex
	// known has the ID of the job with the last conclusive result of a key. A hash stands for
	// the key, which may be longer.
	known map[[sha256.Size]byte]string
	read  int64       // how much of the index known has
	tail  []byte      // the end of that part
	seen  fs.FileInfo // the index when it was read
}

// OpenLog opens the log in dir, which is created if it is missing. Only the user may read
// it: results contain the output of untrusted programs.
func OpenLog(dir string) (*Log, error) {
	abs, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(filepath.Join(abs, jobsDir), 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("log %s: %w", dir, fsx.Cause(err))
	}
	return &Log{dir: abs}, nil
}

// Conclusive returns the last conclusive result of a key, also of one that another process
// added meanwhile. An empty key has none.
func (l *Log) Conclusive(key string) (Result, bool, error) {
	if key == "" {
		return Result{}, false, nil
	}
	l.mu.Lock()
	err := l.failed(l.follow())
	id, ok := l.known[sha256.Sum256([]byte(key))]
	l.mu.Unlock()
	if err != nil || !ok {
		return Result{}, false, err
	}
	found, err := l.Get(id)
	if errors.Is(err, ErrNoJob) { // it has just expired
		return Result{}, false, nil
	}
	return found, err == nil && found.Verdict.Conclusive(), err
}

// Known is a [Queue.Known]: the conclusive result with the ID of the job, or else the last
// one with its key. A result that cannot be read is not known, so its job runs again.
func (l *Log) Known(job Job) (Result, bool) {
	if job.ID != "" {
		if r, err := l.Get(job.ID); err == nil && r.Verdict.Conclusive() {
			return r, true
		}
	}
	r, ok, err := l.Conclusive(job.Key)
	return r, ok && err == nil
}

// List returns the results in the order in which they were written, without Detail, Files,
// Problems and the Spec of the job. A job that ran again after an inconclusive result is
// there more than once. An error is about one result, and others may follow it. Of each
// result the log holds its key and ID in memory, and nothing else.
func (l *Log) List() iter.Seq2[Result, error] {
	return func(yield func(Result, error) bool) {
		l.mu.Lock()
		err := l.follow()
		l.mu.Unlock()
		if err != nil && !yield(Result{}, l.failed(err)) {
			return
		}
		readLines[Result](indexLines, l.index(), ResultSchemaV1)(yield)
	}
}

// Get returns the whole result of a job; of a job without one, the job with the verdict
// Inconclusive. A job that the log does not have is [ErrNoJob].
func (l *Log) Get(id string) (Result, error) {
	if err := policy.CheckName("id", id); err != nil {
		return Result{}, err
	}
	r, err := l.result(id)
	if errors.Is(err, fs.ErrNotExist) {
		var content []byte
		if content, err = fsx.Read(l.jobPath(id, jobFile), maxSpec+1); err == nil {
			r = Result{Verdict: Inconclusive, ExitCode: -1}.complete()
			r.Job, err = decode[Job](content, JobSchemaV1)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Result{}, fmt.Errorf("job %s: %w", id, ErrNoJob)
	case err != nil:
		return Result{}, l.failed(fmt.Errorf("job %s: %w", id, fsx.Cause(err)))
	}
	return r, nil
}

// Unfinished returns the jobs that have no result, in the order of their IDs: they run, they wait,
// or the process that ran them has died.
func (l *Log) Unfinished() (jobs []Job, err error) {
	err = fsx.InRoot(l.dir, func(root *os.Root) error {
		return fsx.ReadDir(context.Background(), root, jobsDir, func(id string) error {
			if _, err := root.Lstat(filepath.Join(jobsDir, id, resultFile)); err == nil {
				return nil
			}
			content, err := fsx.Read(l.jobPath(id, jobFile), maxSpec+1)
			if errors.Is(err, fs.ErrNotExist) { // it is about to begin, or has just expired
				return nil
			}
			job, err := decode[Job](content, JobSchemaV1)
			if err != nil {
				return nil //nolint:nilerr // Get reports a job that cannot be read
			}
			job.Spec = nil
			jobs = append(jobs, job)
			return nil
		})
	})
	slices.SortFunc(jobs, func(a, b Job) int { return strings.Compare(a.ID, b.ID) })
	return jobs, l.failed(err)
}

// Events returns the events of a job, in their order. A torn last line is left out.
func (l *Log) Events(id string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := policy.CheckName("id", id); err != nil {
			yield(Event{}, err)
			return
		}
		readLines[Event](eventLines, l.jobPath(id, eventsFile), EventSchemaV1)(yield)
	}
}

// readLines decodes the lines of a file, except a torn one. The file may be missing.
func readLines[T any](form fsx.Lines, path, schema string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		file, err := fsx.Open(path)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				yield(*new(T), err)
			}
			return
		}
		defer file.Close()
		for line, err := range form.Read(file) {
			if line.Torn {
				return
			}
			var value T
			if err == nil {
				value, err = decode[T](line.Text, schema)
			}
			if err != nil {
				err = fmt.Errorf("%s:%d: %w", path, line.Number, err)
			}
			if !yield(value, err) {
				return
			}
		}
	}
}

// Add records the result of a job that no queue ran. A job without an ID gets one.
func (l *Log) Add(r Result) error {
	r.Job.ID = cmp.Or(r.Job.ID, NewID())
	lock, err := l.begin(r.Job)
	if err != nil {
		return err
	}
	defer lock.Close()
	return l.end(r)
}

// begin writes a job, and takes the lock of its directory until the returned closer is
// closed. A job that is there already may begin again if it has no conclusive result.
func (l *Log) begin(job Job) (io.Closer, error) {
	if err := job.check(); err != nil {
		return nil, err
	}
	job.Schema = JobSchemaV1
	content, err := json.Marshal(job)
	if err == nil && len(content) > maxSpec {
		err = &policy.FieldError{Field: "spec", Rule: fmt.Sprintf("must not be longer than %d bytes", maxSpec)}
	}
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", job.ID, err)
	}
	var lock io.Closer
	err = l.locked(func() (err error) { // so that the job cannot expire in between
		if err = os.Mkdir(l.jobPath(job.ID, ""), 0o700); err == nil || errors.Is(err, fs.ErrExist) {
			lock, err = fsx.LockPath(l.jobPath(job.ID, ""))
		}
		return err
	})
	if err != nil {
		return nil, l.failed(fmt.Errorf("job %s: %w", job.ID, err))
	}
	earlier, err := l.result(job.ID)
	switch {
	case err == nil && earlier.Verdict.Conclusive():
		err = &policy.FieldError{Field: "id", Value: job.ID, Rule: "a job with this ID has a result already"}
	case err == nil || errors.Is(err, fs.ErrNotExist):
		err = fsx.WriteFile(l.jobPath(job.ID, jobFile), append(content, '\n'), 0o600, false)
	}
	if err != nil {
		return nil, errors.Join(l.failed(err), lock.Close())
	}
	return lock, nil
}

// event adds an event to those of its job.
func (l *Log) event(e Event) error {
	e.Text = text.Short(e.Text, maxText)
	line, err := json.Marshal(e)
	if err != nil {
		return l.failed(err)
	}
	file, err := fsx.OpenAppend(l.jobPath(e.Job, eventsFile), 0o600)
	if err != nil {
		return l.failed(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && info.Size() <= maxEvents {
		err = eventLines.Append(file, line)
	}
	return l.failed(err)
}

// end writes a result, and returns when it is on the disk. It writes both files under the
// lock: otherwise another process could add a line for the result in between.
func (l *Log) end(r Result) error {
	r = r.complete()
	if len(r.Detail) > MaxDetail {
		r.Problems = append(r.Problems, Problem{Field: "detail", Rule: fmt.Sprintf("%d bytes are too many for the log, and left out", len(r.Detail))})
		r.Detail = nil
	}
	content, err := json.Marshal(r)
	if err == nil && len(content) > maxResult {
		err = fmt.Errorf("a result of %d bytes is longer than %d bytes", len(content), maxResult)
	}
	var line []byte
	if err == nil {
		line, err = json.Marshal(r.brief())
	}
	if err == nil {
		err = l.locked(func() error {
			if err := fsx.WriteFile(l.jobPath(r.Job.ID, resultFile), append(content, '\n'), 0o600, true); err != nil {
				return err
			}
			return l.appendIndex(line)
		})
	}
	if err != nil {
		err = fmt.Errorf("job %s: %w", r.Job.ID, err)
	}
	return l.failed(err)
}

func (l *Log) result(id string) (Result, error) {
	content, err := fsx.Read(l.jobPath(id, resultFile), maxResult+1)
	if err != nil {
		return Result{}, err
	}
	r, err := decode[Result](content, ResultSchemaV1)
	if err == nil && r.Job.ID != id {
		err = fmt.Errorf("%s is the result of another job, %s", resultFile, text.Quote(r.Job.ID, 80))
	}
	return r, err
}

// decode reads a wire form. Fields that it does not know are left out.
func decode[T any](content []byte, schema string) (value T, err error) {
	var head struct {
		Schema string `json:"schema"`
	}
	if err = json.Unmarshal(content, &head); err == nil && head.Schema != schema {
		err = fmt.Errorf("schema is %s, want %q", text.Quote(head.Schema, 80), schema)
	}
	if err == nil {
		err = json.Unmarshal(content, &value)
	}
	return value, err
}

func (l *Log) index() string                  { return filepath.Join(l.dir, indexFile) }
func (l *Log) jobPath(id, name string) string { return filepath.Join(l.dir, jobsDir, id, name) }

// failed names the log in an error; nil for none.
func (l *Log) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("log %s: %w", l.dir, err)
}
