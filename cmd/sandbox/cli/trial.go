package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// TrialsDir is the log of trials of a state directory.
func TrialsDir(stateDir string) string { return filepath.Join(stateDir, "trials") }

// A Trial is the record of one job of a harness. It collects the runs of the job.
type Trial struct {
	session *Session
	job     trial.Job
	began   time.Time

	mu   sync.Mutex
	runs []*run
}

// run is a run of a trial.
type run struct {
	trial.RunRef
	began time.Time
	usage trial.Usage
	files []trial.File
}

type trialKey struct{}

// Trial begins the record of a job with the harness's own document; nil for none. Runs in
// the context belong to it.
func (x *Session) Trial(ctx context.Context, job trial.Job, document any) (context.Context, *Trial) {
	if spec, err := json.Marshal(document); err == nil && document != nil {
		job.Spec = spec
	}
	job.ID, job.Attempt, job.Name = trial.NewID(), 1, text.Short(job.Name, 256)
	t := &Trial{session: x, job: job, began: time.Now().UTC()}
	return context.WithValue(ctx, trialKey{}, t), t
}

// Job is the job without its own document.
func (t *Trial) Job() trial.Job { return t.job }

// Record adds the results of the job to the log of trials, with their runs and what these
// used. err says why we failed; a job that was interrupted before its first run is not
// recorded. Several results are those of repetitions, which get IDs of their own and the ID
// of the job as their parent. A log that cannot be written is a warning.
func (t *Trial) Record(ctx context.Context, err error, results ...trial.Result) {
	var log *trial.Log
	for i, r := range results {
		if len(results) > 1 {
			r.Job.ID, r.Job.Parent = trial.NewID(), t.job.ID
		}
		if i == len(results)-1 && err != nil && !r.Verdict.Conclusive() && len(r.Problems) == 0 {
			r.Problems = []trial.Problem{{Rule: err.Error()}}
		}
		r.Verdict = cmp.Or(r.Verdict, trial.Inconclusive)
		t.account(&r, len(results) == 1)
		if len(r.Runs) == 0 && ctx.Err() != nil && !r.Verdict.Conclusive() {
			continue
		}
		if log == nil {
			if log = t.session.Trials(); log == nil {
				return
			}
		}
		if err := log.Add(r); err != nil {
			t.session.LogFailed(err)
			return
		}
	}
}

// account gives a result its runs and their usage: those that it names or, for the only
// result, all. The result knows the roles better. Files are those of its program, unless the
// harness named others.
func (t *Trial) account(r *trial.Result, all bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	roles := map[string]string{}
	for _, ref := range r.Runs {
		roles[ref.ID] = ref.Role
	}
	r.Started, r.Usage = time.Time{}, trial.Usage{}
	var before []trial.RunRef
	for _, run := range t.runs {
		if roles[run.ID] == "" {
			if !all {
				continue
			}
			before = append(before, run.RunRef)
		}
		if r.Started.IsZero() {
			r.Started = run.began
		}
		if len(r.Files) == 0 && roles[run.ID] == "program" {
			r.Files = run.files
		}
		r.Usage.WallSeconds += run.usage.WallSeconds
		r.Usage.CPUSeconds += run.usage.CPUSeconds
		r.Usage.GPUSeconds += run.usage.GPUSeconds
		r.Usage.Runs++
	}
	if all || r.Started.IsZero() {
		r.Started = t.began
	}
	r.Runs = append(before, r.Runs...)
}

// label returns a request with the labels of the trial. A harness may have named the role.
func (t *Trial) label(req sandbox.Request) sandbox.Request {
	labels := t.job.Labels(cmp.Or(req.Labels[trial.LabelRole], "program"))
	maps.Copy(labels, req.Labels)
	req.Labels = labels
	return req
}

// note adds a run.
func (t *Trial) note(req sandbox.Request, began time.Time, res *result.Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var files []trial.File
	for _, o := range res.Outputs {
		files = append(files, trial.File{Path: o.Path, Size: o.SizeBytes, SHA256: o.SHA256})
	}
	t.runs = append(t.runs, &run{
		trial.RunRef{ID: res.ID, Role: req.Labels[trial.LabelRole]}, began,
		trial.Usage{WallSeconds: res.DurationSeconds, CPUSeconds: res.Resources.CPUSeconds, GPUSeconds: res.DurationSeconds * float64(len(res.Enforced.GPUs))},
		files,
	})
	slices.SortFunc(t.runs, func(a, b *run) int { return a.began.Compare(b.began) })
}

// Trials opens the log of trials, nil if it cannot be opened.
func (x *Session) Trials() *trial.Log {
	log, err := trial.OpenLog(TrialsDir(x.Runner.Store().Dir()))
	if err != nil {
		x.LogFailed(err)
		return nil
	}
	return log
}

// LogFailed warns that the log of trials cannot be written. The command goes on.
func (x *Session) LogFailed(err error) { x.Warn("the trial is not recorded: %v", err) }
