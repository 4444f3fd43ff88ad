package evaluate

import (
	"context"
	_ "embed" // for the schema
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/strict"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

const (
	// Kind is the kind of jobs.
	Kind = "evaluate"
	// JobSchemaV1 names the wire form of [Document].
	JobSchemaV1 = "evalbox/evaluation-job/v1"
)

// JobSchemaJSON is the JSON Schema (draft 2020-12) of [Document]. Do not change it at run time.
//
//go:embed job.schema.json
var JobSchemaJSON []byte

// Document is a job as [trial.Job.Spec] has it. Name and seed are those of the [trial.Job].
type Document struct {
	Schema string `json:"schema"`
	// Script is the text of the program, or ScriptFile its path.
	Script     string `json:"script,omitempty"`
	ScriptFile string `json:"script_file,omitempty"`
	// Task is the task, or TaskFile the path of its YAML file.
	Task     *TaskDescription `json:"task,omitempty"`
	TaskFile string           `json:"task_file,omitempty"`
	// TimeoutSeconds is [Job.Timeout].
	TimeoutSeconds float64 `json:"timeout_seconds"`
	Repetition     int     `json:"repetition,omitempty"`
	// Resource is [Job.Resource].
	Resource  int    `json:"resource,omitempty"`
	Workspace string `json:"workspace,omitempty"`
}

// Trial returns the harness for a queue, a server or a log. The spec of a job is a [Document], the
// detail of a result a [Result].
func (h *Harness) Trial() trial.Harness { return trialHarness{h} }

type trialHarness struct{ h *Harness }

func (t trialHarness) Kind() string   { return Kind }
func (t trialHarness) Schema() []byte { return JobSchemaJSON }

func (t trialHarness) Plan(ctx context.Context, job trial.Job) (trial.Plan, error) {
	decoded, problems := decodeJob(job)
	if len(problems) > 0 {
		return trial.Plan{Problems: problems}, nil
	}
	return t.h.Plan(ctx, decoded)
}

func (t trialHarness) Run(ctx context.Context, job trial.Job, emit func(trial.Event)) (trial.Result, error) {
	decoded, problems := decodeJob(job)
	if len(problems) > 0 {
		return trial.Result{Job: job, Verdict: trial.Refused, Reason: "invalid", ExitCode: -1, Problems: problems}, nil
	}
	h := t.h.forJob(job, emit)
	res, err := h.Run(ctx, decoded)
	ended, encodeErr := h.trial(job, res)
	if err == nil {
		err = encodeErr
	}
	return ended, err
}

// trial completes [Result.Trial] with the files of the job, and with all runs of a harness of
// [Harness.forJob]: also graders and the scripts before a repair.
func (h *Harness) trial(job trial.Job, res Result) (trial.Result, error) {
	ended, err := res.Trial(job)
	if res.Run != nil && !res.Cached {
		if record, err := h.box.Store().Load(res.Run.ID); err == nil && record.Result != nil {
			for _, o := range record.Result.Outputs {
				ended.Files = append(ended.Files, trial.File{Path: o.Path, Size: o.SizeBytes, SHA256: o.SHA256})
			}
		}
	}
	// A cached run, and one whose outputs are only graded again, are of an earlier job.
	earlier := slices.DeleteFunc(ended.Runs, func(ref trial.RunRef) bool { return slices.Contains(h.spent.runs, ref) })
	ended.Runs, ended.Usage = slices.Concat(earlier, h.spent.runs), h.spent.usage
	return ended, err
}

// spent is the runs of one job and their usage. They are one after the other.
type spent struct {
	runs  []trial.RunRef
	usage trial.Usage
}

// note adds a run.
func (s *spent) note(res *result.Result, role string) {
	if s == nil || res == nil {
		return
	}
	s.runs = append(s.runs, trial.RunRef{ID: res.ID, Role: role})
	s.usage.Runs++
	s.usage.WallSeconds += res.DurationSeconds
	s.usage.CPUSeconds += res.Resources.CPUSeconds
	s.usage.GPUSeconds += res.DurationSeconds * float64(len(res.Enforced.GPUs))
}

// decodeJob reads the document of a job.
func decodeJob(job trial.Job) (Job, []trial.Problem) {
	var d Document
	var problems []trial.Problem
	refuse := func(field, rule string) { problems = append(problems, trial.Problem{Field: field, Rule: rule}) }
	for _, p := range strict.Decode(job.Spec, &d, strict.Options{Tag: "json", Schema: JobSchemaV1, Nullable: []string{"task.target_column", "task.baseline_value"}}) {
		problems = append(problems, trial.Problem{Line: p.Line, Field: p.Path, Rule: p.String()})
	}
	if len(problems) > 0 {
		return Job{}, problems
	}
	decoded := Job{Name: job.Name, Script: d.Script, Repetition: d.Repetition, Resource: d.Resource, Workspace: d.Workspace, Timeout: time.Duration(d.TimeoutSeconds * float64(time.Second))}
	var err error
	if (d.Script == "") == (d.ScriptFile == "") {
		refuse("script", "give script or script_file")
	} else if d.ScriptFile != "" {
		decoded.File = d.ScriptFile
		if decoded.Script, err = ReadScript(d.ScriptFile); err != nil {
			refuse("script_file", err.Error())
		}
	}
	switch {
	case (d.Task == nil) == (d.TaskFile == ""):
		refuse("task", "give task or task_file")
	case d.Task != nil:
		decoded.Task = *d.Task
		for _, err := range decoded.Task.problems() {
			refuse("task", err.Error())
		}
	default:
		if decoded.Task, err = LoadTask(d.TaskFile); err != nil {
			refuse("task_file", err.Error())
		}
	}
	if !(d.TimeoutSeconds > 0) || d.TimeoutSeconds > math.MaxInt64/float64(time.Second)/2 {
		refuse("timeout_seconds", "must be more than 0")
	}
	if d.Resource < 0 || d.Resource > maxResource {
		refuse("resource", fmt.Sprintf("must be from 0 to %d", maxResource))
	}
	if job.Seed != nil {
		if *job.Seed > math.MaxUint32 {
			refuse("seed", "must be from 0 to 4294967295: Python takes no more")
		}
		decoded.Seed = new(uint32(*job.Seed))
	}
	return decoded, problems
}

// with returns a copy of the harness with other options.
func (h *Harness) with(change func(*Options)) *Harness {
	other := *h
	change(&other.opts)
	return &other
}

// forJob returns a copy of the harness whose runs have the labels and the events of a job.
func (h *Harness) forJob(job trial.Job, emit func(trial.Event)) *Harness {
	waiting, started, grading := h.opts.Hooks.Waiting, h.opts.Hooks.Started, h.opts.Grading
	other := h.with(func(o *Options) {
		o.Hooks.Waiting = func(why string) {
			emit(trial.Event{Kind: trial.EventWaiting, Text: why})
			if waiting != nil {
				waiting(why)
			}
		}
		o.Hooks.Started = func() {
			emit(trial.Event{Kind: trial.EventStarted, Role: roleProgram})
			if started != nil {
				started()
			}
		}
		o.Grading = func(name string) {
			emit(trial.Event{Kind: trial.EventStarted, Role: roleGrader})
			if grading != nil {
				grading(name)
			}
		}
	})
	other.job, other.spent = job, &spent{}
	return other
}

const (
	roleProgram = "program"
	roleGrader  = "grader"
)

// label adds the labels of the job to a request.
func (h *Harness) label(req sandbox.Request, role string) sandbox.Request {
	labels := map[string]string{}
	maps.Copy(labels, req.Labels)
	maps.Copy(labels, h.job.Labels(role))
	req.Labels = labels
	return req
}

// Verdict is the result in the vocabulary of all harnesses.
func (r Result) Verdict() trial.Verdict {
	switch {
	case !r.Conclusive():
		return trial.Inconclusive
	case r.ErrorReason == ErrorReasonRejected:
		return trial.Refused
	case r.EndedWell() && (r.Submission == nil || r.Submission.OK):
		return trial.Passed
	}
	return trial.Failed
}

// Trial is the result in the shape that all harnesses share. A score that is not finite, which
// JSON cannot carry, is an error.
func (r Result) Trial(job trial.Job) (trial.Result, error) {
	out := trial.Result{Job: job, Verdict: r.Verdict(), Reason: string(r.ErrorReason), ExitCode: r.ExitCode, Score: r.BestScore(),
		Ranking: &trial.Ranking{Task: r.CompetitionID, Direction: string(r.MetricDirection), Valid: r.Valid(), Resource: r.Resource}}
	add := func(run *RunFacts, role string) {
		if run != nil {
			out.Runs = append(out.Runs, trial.RunRef{ID: run.ID, Role: role})
		}
	}
	refuse := func(code, rule string) {
		if rule != "" {
			out.Problems = append(out.Problems, trial.Problem{Code: code, Rule: rule})
		}
	}
	add(r.Run, roleProgram)
	if r.Run != nil {
		if out.Reason == "" || r.Run.Status != result.StatusExited {
			out.Reason = r.Run.Status.String()
		}
		if !r.Cached {
			out.Usage = trial.Usage{WallSeconds: r.DurationSeconds, GPUSeconds: r.DurationSeconds * float64(len(r.Run.GPUs))}
		}
	}
	refuse("failure", r.Failure)
	if r.refused != nil {
		for _, v := range r.refused.Violations {
			out.Problems = append(out.Problems, v.problem())
		}
	}
	if r.Submission != nil {
		refuse("submission", r.Submission.Failure)
		for _, problem := range r.Submission.Problems {
			refuse("submission", problem)
		}
	}
	if r.Grading != nil {
		add(r.Grading.Run, roleGrader)
		refuse("grading", r.Grading.Failure)
	}
	var err error
	if out.Detail, err = json.Marshal(r); err != nil {
		err = fmt.Errorf("evaluate: the result cannot be encoded: %w", err)
		out.Score, out.Verdict = nil, trial.Inconclusive
	}
	return out, err
}

// seed64 is the seed of a trial.
func (r Result) seed64() *uint64 {
	if r.Seed == nil {
		return nil
	}
	return new(uint64(*r.Seed))
}
