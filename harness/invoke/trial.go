package invoke

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	strictjson "github.com/go-json-experiment/json"

	"github.com/evalbox/evalbox/harness/trial"
)

// JobSchemaV1 names the document of a job of [Harness.Trial].
const JobSchemaV1 = "evalbox/invoke/v1"

// jobSchema is its JSON Schema.
//
//go:embed job.schema.json
var jobSchema []byte

// jobSpec is the document: an invocation on the machine of the harness.
type jobSpec struct {
	Schema    string  `json:"schema"`
	Config    string  `json:"config"`
	OutputDir string  `json:"output_dir"`
	Adapter   *string `json:"adapter,omitempty"`
	Seed      *Seed   `json:"seed,omitempty"`
}

// Trial is the harness in the shape that all harnesses share. The document of a job is an
// invocation, the detail of a result a [Result]. Its jobs have no key: the result of a call
// is the files that it leaves, so an earlier result cannot replace a call.
func (h *Harness) Trial() trial.Harness { return trialHarness{h} }

type trialHarness struct{ h *Harness }

func (trialHarness) Kind() string { return "invoke" }

func (trialHarness) Schema() []byte { return jobSchema }

// decode reads the document of a job. A wrong one is a problem.
func decode(job trial.Job) (Invocation, []trial.Problem) {
	var s jobSpec
	if err := strictjson.Unmarshal(job.Spec, &s, strictjson.RejectUnknownMembers(true)); err != nil {
		return Invocation{}, []trial.Problem{{Source: "job", Rule: strings.TrimPrefix(err.Error(), "json: ")}}
	}
	if s.Schema != JobSchemaV1 {
		return Invocation{}, []trial.Problem{{Source: "job", Field: "schema", Rule: fmt.Sprintf("want %q, have %.100q", JobSchemaV1, s.Schema)}}
	}
	inv, err := Invocation{s.Config, s.OutputDir, s.Adapter, s.Seed}.absolute()
	if err != nil {
		return Invocation{}, []trial.Problem{{Source: "job", Rule: err.Error()}}
	}
	return inv, nil
}

func (t trialHarness) Plan(ctx context.Context, job trial.Job) (trial.Plan, error) {
	inv, problems := decode(job)
	if problems != nil {
		return trial.Plan{Problems: problems}, nil
	}
	plan, err := t.h.Plan(ctx, inv)
	switch {
	case err == nil:
		detail, err := json.Marshal(plan)
		return trial.Plan{Problems: []trial.Problem{}, Detail: detail}, err
	case reasonOf(ctx, err) == ReasonRefused:
		return trial.Plan{Problems: []trial.Problem{{Rule: err.Error()}}}, nil
	}
	return trial.Plan{Problems: []trial.Problem{}}, err
}

func (t trialHarness) Run(ctx context.Context, job trial.Job, emit func(trial.Event)) (trial.Result, error) {
	inv, problems := decode(job)
	if problems != nil {
		res := newResult()
		res.Reason = ReasonRefused
		wire, err := res.Trial(job)
		wire.Problems = problems
		return wire, err
	}
	h := *t.h
	h.o.Request.Labels = map[string]string{}
	maps.Copy(h.o.Request.Labels, t.h.o.Request.Labels)
	maps.Copy(h.o.Request.Labels, job.Labels(roleProgram))
	h.o.Hooks.Waiting = func(why string) {
		emit(trial.Event{Kind: trial.EventWaiting, Text: why})
		if t.h.o.Hooks.Waiting != nil {
			t.h.o.Hooks.Waiting(why)
		}
	}
	res, err := h.Run(ctx, inv)
	wire, wireErr := res.Trial(job)
	return wire, cmp.Or(err, wireErr)
}

const (
	// wrongArtifacts is the reason of a trial whose artifacts are wrong.
	wrongArtifacts = "wrong_artifacts"
	// roleProgram is the role of the run in its trial.
	roleProgram = "program"
)

// Trial is the result in the shape that all harnesses share.
func (r Result) Trial(job trial.Job) (trial.Result, error) {
	t := trial.Result{
		Schema: trial.ResultSchemaV1, Job: job, Verdict: trial.Failed, Reason: string(r.Reason), ExitCode: -1,
		Runs: []trial.RunRef{}, Problems: []trial.Problem{}, Files: []trial.File{},
	}
	switch {
	case r.OK:
		t.Verdict = trial.Passed
	case r.Reason == ReasonRefused:
		t.Verdict = trial.Refused
	case r.Reason.ours():
		t.Verdict = trial.Inconclusive
	case r.Reason == "":
		t.Reason = wrongArtifacts
	}
	switch {
	case r.ExitCode != nil:
		t.ExitCode = *r.ExitCode
	case r.Reason == ReasonCannotExecute:
		t.ExitCode = 126 // as shells have it
	case r.Reason == ReasonNotFound:
		t.ExitCode = 127
	}
	if r.RunID != "" {
		t.Runs = []trial.RunRef{{ID: r.RunID, Role: roleProgram}}
		t.Usage = trial.Usage{WallSeconds: r.DurationSeconds, CPUSeconds: r.CPUSeconds, GPUSeconds: r.DurationSeconds * float64(len(r.GPUs)), Runs: 1}
	}
	if r.Error != "" {
		t.Problems = append(t.Problems, trial.Problem{Code: string(r.Reason), Rule: r.Error})
	}
	if v := r.Verification; v != nil {
		for _, a := range v.Artifacts {
			t.Files = append(t.Files, trial.File{Path: a.Path, Size: a.SizeBytes, SHA256: a.SHA256})
		}
		for _, p := range v.Problems {
			t.Problems = append(t.Problems, trial.Problem{Code: string(p.Kind), Source: p.Path, Line: int(p.Line), Rule: p.Text})
		}
	}
	detail, err := json.Marshal(r)
	t.Detail = detail
	return t, err
}

// JobSpec is the document of the job of an invocation, with absolute paths.
func JobSpec(inv Invocation) (json.RawMessage, error) {
	if abs, err := inv.absolute(); err == nil { // otherwise it is refused
		inv = abs
	}
	return json.Marshal(jobSpec{JobSchemaV1, inv.Config, inv.OutputDir, inv.Adapter, inv.Seed})
}
