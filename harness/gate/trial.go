package gate

import (
	"context"
	_ "embed" // the schema
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/strict"
	"github.com/evalbox/evalbox/internal/treehash"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

//go:embed document.schema.json
var documentSchema []byte

// Trial returns the harness for a queue: the document of a job is a [Document].
func (h *Harness) Trial() trial.Harness { return trials{h} }

type trials struct{ *Harness }

func (trials) Kind() string { return "gate" }

func (trials) Schema() []byte { return documentSchema }

// load decodes the document of a job. The problems say why it is refused.
func (t trials) load(ctx context.Context, job trial.Job) (Job, []trial.Problem, error) {
	var d Document
	var problems []trial.Problem
	for _, p := range strict.Decode(job.Spec, &d, strict.Options{Tag: "json"}) {
		problems = append(problems, trial.Problem{Line: p.Line, Field: p.Path, Rule: p.String()})
	}
	switch {
	case len(problems) > 0:
		return Job{}, problems, nil
	case (d.Wish == "") == (d.Command == nil):
		return Job{}, []trial.Problem{{Field: "wish", Rule: "give either a wish or a command"}}, nil
	case d.Out == "":
		return Job{}, []trial.Problem{{Field: "out", Rule: "is missing: it names the gate directory"}}, nil
	}
	j, err := t.Load(ctx, d)
	var hint interface{ Hint() string }
	if err != nil && ctx.Err() == nil && !errors.Is(err, sandbox.ErrEngineUnavailable) {
		problem := trial.Problem{Rule: err.Error()}
		if errors.As(err, &hint) {
			problem.Hint = hint.Hint()
		}
		return j, []trial.Problem{problem}, nil
	}
	return j, nil, err
}

// Plan implements [trial.Harness]. The key covers the manifest and the files of the workspace.
func (t trials) Plan(ctx context.Context, job trial.Job) (trial.Plan, error) {
	j, problems, err := t.load(ctx, job)
	if err != nil || len(problems) > 0 {
		return trial.Plan{Problems: problems}, err
	}
	plan, err := t.Harness.Plan(ctx, j)
	if err != nil {
		return trial.Plan{}, err
	}
	p := trial.Plan{Problems: findingProblems(plan.Findings)}
	if p.Detail, err = evidence.Canonical(plan); err != nil || len(p.Problems) > 0 {
		return p, err
	}
	files := plan.Manifest.Repo.Commit
	if !plan.Manifest.Mode.Strict {
		digest, err := treehash.Of(ctx, plan.Manifest.Workspace, treehash.Options{Exclude: append(plan.Manifest.Exclude, ".git")})
		if err != nil {
			return p, err
		}
		files = digest.Sum
	}
	key, err := evidence.Canonical([]any{plan, files, j.Baseline, t.o.Request.User, t.o.Request.Runtime})
	p.Key = sum(key)
	return p, err
}

// Run implements [trial.Harness]. A gate that passes has passed; one of which nothing ran is
// refused; one with a run that is not conclusive is inconclusive, see
// [result.Result.Conclusive]; every other one has failed.
func (t trials) Run(ctx context.Context, job trial.Job, emit func(trial.Event)) (trial.Result, error) {
	res := trial.Result{
		Schema: trial.ResultSchemaV1, Job: job, Verdict: trial.Inconclusive, ExitCode: -1, Started: time.Now(),
		Runs: []trial.RunRef{}, Problems: []trial.Problem{}, Files: []trial.File{},
	}
	j, problems, err := t.load(ctx, job)
	if err != nil {
		return res, err
	}
	if len(problems) > 0 {
		res.Verdict, res.Problems = trial.Refused, problems
		return res, nil
	}
	box := &countedBox{Box: t.box, job: job.ID, emit: emit, res: &res}
	report, runErr := (&Harness{box, t.o}).Run(ctx, j)
	ended, err := report.Trial(job, runErr)
	ended.Started, ended.Runs, ended.Usage = res.Started, res.Runs, res.Usage
	ended.Usage.WallSeconds = time.Since(res.Started).Seconds()
	return ended, err
}

// Trial is the report in the shape that all harnesses share, without its runs and their usage.
// err is the error of [Harness.Run], and is returned unless it is a refusal.
func (r Report) Trial(job trial.Job, err error) (trial.Result, error) {
	res := trial.Result{
		Schema: trial.ResultSchemaV1, Job: job, Verdict: trial.Inconclusive, ExitCode: -1,
		Runs: []trial.RunRef{}, Problems: []trial.Problem{}, Files: []trial.File{},
	}
	if r.Verdict.Schema != "" {
		res.Reason, res.Problems = string(r.Verdict.StopReason), findingProblems(r.Verdict.Findings)
		for _, f := range r.Gates.Artifacts {
			file := trial.File{Path: f.FilePath, SHA256: f.SHA256}
			if info, err := os.Lstat(filepath.Join(r.Dir, f.FilePath)); err == nil {
				file.Size = info.Size()
			}
			res.Files = append(res.Files, file)
		}
		detail, encodeErr := evidence.Canonical(r.Verdict)
		res.Detail, err = detail, errors.Join(err, encodeErr)
	}
	var directory *DirectoryError
	switch {
	case errors.As(err, &directory) && r.Verdict.Schema == "":
		res.Verdict, res.Problems = trial.Refused, []trial.Problem{{Field: "out", Rule: err.Error(), Hint: directory.Hint()}}
		return res, nil
	case err != nil:
		return res, err
	case r.Verdict.Status == evidence.Pass:
		res.Verdict = trial.Passed
	case len(r.Tests.Commands) == 0:
		res.Verdict = trial.Refused
	case r.inconclusive: // it is run again
	default:
		res.Verdict = trial.Failed
	}
	for _, c := range r.Tests.Commands { // the program that decided
		if c.ExitCode != nil && (res.ExitCode <= 0 || *c.ExitCode != 0) {
			res.ExitCode = *c.ExitCode
		}
	}
	return res, nil
}

func findingProblems(findings []evidence.Finding) []trial.Problem {
	problems := []trial.Problem{}
	for _, f := range findings {
		problems = append(problems, trial.Problem{Code: string(f.Reason), Field: f.Subject, Rule: f.Detail, Hint: f.Reason.Hint()})
	}
	return problems
}

// countedBox lists the runs of a job and what they used.
type countedBox struct {
	sandbox.Box
	mu   sync.Mutex
	job  string
	emit func(trial.Event)
	res  *trial.Result
}

func (b *countedBox) Run(ctx context.Context, req sandbox.Request, opts ...sandbox.RunOption) (*result.Result, error) {
	role := req.Labels[trial.LabelRole]
	b.emit(trial.Event{Time: time.Now(), Job: b.job, Kind: trial.EventStarted, Run: req.ID, Role: role})
	res, err := b.Box.Run(ctx, req, opts...)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.res.Runs = append(b.res.Runs, trial.RunRef{ID: req.ID, Role: role})
	b.res.Usage.Runs++
	if res != nil {
		b.res.Usage.CPUSeconds += res.Resources.CPUSeconds
	}
	return res, err
}
