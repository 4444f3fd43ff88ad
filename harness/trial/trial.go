// Package trial is one job of any harness: how it is asked for, run, recorded and queued.
//
// A [Harness] carries out jobs of one kind. A [Queue] runs many of them: several at a time,
// within a budget, with retries, and without those that are known already. A [Log] is the
// record of all of them on disk; it can be read without an engine.
package trial

import (
	"context"
	_ "embed" // for the schemas
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
)

// Schemas of the wire forms.
const (
	JobSchemaV1    = "evalbox/job/v1"
	ResultSchemaV1 = "evalbox/trial/v1"
	EventSchemaV1  = "evalbox/event/v1"
)

// JobSchemaJSON, ResultSchemaJSON and EventSchemaJSON are the JSON Schemas (draft 2020-12) of
// [Job], [Result] and [Event], for readers in other languages. Do not change them at run time.
var (
	//go:embed job.schema.json
	JobSchemaJSON []byte
	//go:embed result.schema.json
	ResultSchemaJSON []byte
	//go:embed event.schema.json
	EventSchemaJSON []byte
)

// A Job is one thing that a harness is asked to do.
type Job struct {
	Schema string `json:"schema"`
	// ID is unique in a [Log]. A [Queue] gives one to a job that has none. It is 1 to 64
	// letters, digits, '.', '_' or '-', and does not start with '.' or '-'.
	ID string `json:"id"`
	// Kind is the harness: "evaluate", "contract", "invoke" or "gate".
	Kind string `json:"kind"`
	// Name is the caller's name of the job. It may be empty.
	Name string `json:"name,omitempty"`
	// Parent is the ID of the batch, sweep, gate or agent session that the job belongs to.
	Parent string `json:"parent,omitempty"`
	// Key is a digest of everything that the result depends on: two jobs with the same key
	// have the same result. A job without a key is never known by it.
	Key string `json:"key,omitempty"`
	// Seed is the seed of the job, if it has one.
	Seed *uint64 `json:"seed,omitempty"`
	// Attempt counts the tries of the job, from 1.
	Attempt int `json:"attempt,omitempty"`
	// Spec is the harness's own document, a JSON object.
	Spec json.RawMessage `json:"spec,omitempty"`
}

// NewID returns an ID of a job that is unique on any number of machines. IDs sort by time;
// those of one process sort in the order in which they were made.
func NewID() string {
	lastID.Lock()
	now := time.Now().UTC().Truncate(time.Microsecond)
	if !now.After(lastID.time) {
		now = lastID.time.Add(time.Microsecond)
	}
	lastID.time = now
	lastID.Unlock()
	return now.Format("20060102t150405") + fmt.Sprintf("-%06d%08x", now.Nanosecond()/1000, rand.Uint32()) //nolint:gosec // unique, and no secret
}

var lastID struct {
	sync.Mutex
	time time.Time
}

// LabelRole labels a run with its part in a job: [RunRef.Role].
const LabelRole = "trial.role"

// Labels returns the labels of a run that belongs to the job: trial.id, trial.kind,
// trial.parent and trial.role, those that are known. A job without an ID has none.
func (j Job) Labels(role string) map[string]string {
	labels := map[string]string{}
	if j.ID == "" {
		return labels
	}
	for name, value := range map[string]string{"id": j.ID, "kind": j.Kind, "parent": j.Parent, "role": role} {
		if value != "" {
			labels["trial."+name] = value
		}
	}
	return labels
}

// check reports whether a job can be recorded.
func (j Job) check() error {
	err := policy.CheckName("id", j.ID)
	for name, value := range map[string]string{"kind": j.Kind, "name": j.Name, "parent": j.Parent, "key": j.Key} {
		if len(value) > maxField {
			err = errors.Join(err, &policy.FieldError{Field: name, Value: text.Quote(value, 80), Rule: fmt.Sprintf("must not be longer than %d bytes", maxField)})
		}
	}
	return err
}

// maxField bounds a text field of a job.
const maxField = 512

// Verdict says how a job ended, in one vocabulary for all harnesses.
type Verdict string

const (
	// Passed: it did as asked.
	Passed Verdict = "passed"
	// Failed: it ran, and did not.
	Failed Verdict = "failed"
	// Refused: the job itself is not acceptable, and nothing ran.
	Refused Verdict = "refused"
	// Inconclusive: the answer is unknown, because the job was interrupted or because we
	// failed. It may be tried again.
	Inconclusive Verdict = "inconclusive"
)

// Conclusive reports whether running the same job again would say nothing new.
func (v Verdict) Conclusive() bool { return v == Passed || v == Failed || v == Refused }

// A Result is how a job ended. Its verdict holds a failure or a refusal: neither is an error.
type Result struct {
	Schema  string  `json:"schema"`
	Job     Job     `json:"job"`
	Verdict Verdict `json:"verdict"`
	// Reason is the harness's own word, such as "timed_out" or "GATE_FAILED".
	Reason   string   `json:"reason,omitempty"`
	ExitCode int      `json:"exit_code"` // of the program that decided; -1 for none
	Score    *float64 `json:"score,omitempty"`
	// Ranking is what the score means among others; nil for a harness without scores.
	Ranking *Ranking  `json:"ranking,omitempty"`
	Started time.Time `json:"started"`
	// Runs are the runs of the sandbox, of all tries, in their order.
	Runs     []RunRef  `json:"runs"`
	Problems []Problem `json:"problems"`
	// Files are the files that the job left, in the order of their paths.
	Files []File `json:"files"`
	Usage Usage  `json:"usage"` // of all tries
	// Detail is the harness's own result, in its own wire form, a JSON object.
	Detail json.RawMessage `json:"detail,omitempty"`
}

// Ranking is what orders a result among others of its task, besides the score.
type Ranking struct {
	// Task is the name of the task. Direction is "maximize" or "minimize", and says which scores are
	// better.
	Task      string `json:"task"`
	Direction string `json:"metric_direction"`
	// Valid says that the program ended well, so that its score counts.
	Valid bool `json:"valid"`
	// Resource is what the program was given in a round of a halving; 0 for none. Scores with more of it
	// come first.
	Resource int `json:"resource,omitempty"`
}

// complete returns the result with all that the wire form demands.
func (r Result) complete() Result {
	r.Schema, r.Job.Schema = ResultSchemaV1, JobSchemaV1
	r.Runs, r.Problems, r.Files = notNil(r.Runs), notNil(r.Problems), notNil(r.Files)
	return r
}

// brief returns the result as it is in the index of a log.
func (r Result) brief() Result {
	r.Job.Spec, r.Detail, r.Problems, r.Files = nil, nil, nil, nil
	r.Runs = r.Runs[:min(len(r.Runs), maxIndexedRuns)]
	r.Reason = text.Short(r.Reason, maxField)
	if r.Ranking != nil {
		ranking := *r.Ranking
		ranking.Task = text.Short(ranking.Task, maxField)
		r.Ranking = &ranking
	}
	return r.complete()
}

// maxIndexedRuns bounds the runs of a result in the index of a log.
const maxIndexedRuns = 100

// notNil returns a list that JSON does not write as null.
func notNil[T any](list []T) []T { return append(make([]T, 0, len(list)), list...) }

// A RunRef names a run of the sandbox and its part in a job.
type RunRef struct {
	ID string `json:"id"`
	// Role is "program", "grader", "probe", "baseline", "gate 1" and the like.
	Role string `json:"role"`
}

// A Problem is one thing that is wrong with a job or with its files.
type Problem struct {
	Code   string `json:"code,omitempty"`
	Source string `json:"source,omitempty"`
	Line   int    `json:"line,omitempty"`
	Field  string `json:"field,omitempty"`
	Rule   string `json:"rule"`
	Hint   string `json:"hint,omitempty"`
}

// A File is a file that a job left.
type File struct {
	Path   string `json:"path"`
	Size   int64  `json:"size_bytes"`
	SHA256 string `json:"sha256"`
}

// Usage is counted by budgets. GPUSeconds is the number of GPUs times the seconds of their lease.
type Usage struct {
	WallSeconds float64 `json:"wall_seconds"`
	CPUSeconds  float64 `json:"cpu_seconds"`
	GPUSeconds  float64 `json:"gpu_seconds"`
	Runs        int     `json:"runs"`
}

// EventKind names a step of a job.
type EventKind string

const (
	EventWaiting EventKind = "waiting" // for GPUs; Text says for which
	EventStarted EventKind = "started" // the job, or one of its runs if Run is set
	EventRetry   EventKind = "retry"   // Text says why
	EventKnown   EventKind = "known"   // the job does not run: Result is an earlier one
	EventEnded   EventKind = "ended"   // Result is how
	EventNote    EventKind = "note"    // Text is for people
)

// An Event is one step of a job. A harness sets Kind, Run, Role and Text; the queue adds the
// other fields.
type Event struct {
	Schema string    `json:"schema"`
	Time   time.Time `json:"time"`
	Job    string    `json:"job"`
	Kind   EventKind `json:"kind"`
	Run    string    `json:"run,omitempty"`
	Role   string    `json:"role,omitempty"`
	Text   string    `json:"text,omitempty"`
	Result *Result   `json:"-"`
}

// A Plan says what a job would do.
type Plan struct {
	// Key is the key of the job, as the harness computes it.
	Key string `json:"key,omitempty"`
	// Problems say why the job would be refused.
	Problems []Problem `json:"problems"`
	// Detail is the harness's own plan.
	Detail json.RawMessage `json:"detail,omitempty"`
}

// A Harness carries out jobs of one kind. Its methods may be called concurrently.
type Harness interface {
	Kind() string
	// Schema is the JSON Schema of [Job.Spec].
	Schema() []byte
	// Plan decides and starts nothing.
	Plan(ctx context.Context, job Job) (Plan, error)
	// Run returns a result for everything that the program or its author did, and an error
	// only when we failed; then the result has the facts that are known. emit is never nil
	// and may be called concurrently.
	Run(ctx context.Context, job Job, emit func(Event)) (Result, error)
}
