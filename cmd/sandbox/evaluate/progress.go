package evaluate

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/harness/evaluate/mlestar"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/text"
)

// progress is the [cli.Progress] of a batch, which also shows the best score.
type progress struct {
	cli.Progress

	direction evaluate.MetricDirection
	repairing int
	// debugFailures counts the debug commands that failed.
	debugFailures atomic.Int64
	graded        bool
	best          *float64
}

// more is further text for the bar.
func (p *progress) more() string {
	shown := ""
	if p.repairing > 0 {
		shown += fmt.Sprintf(", %d in repair", p.repairing)
	}
	if p.best != nil {
		shown += " · best " + text.Number(*p.best)
	}
	return shown
}

// debugging counts the scripts that are being repaired, and the repairs that fail.
func (p *progress) debugging(debug evaluate.DebugFunc) evaluate.DebugFunc {
	return func(ctx context.Context, solution mlestar.SolutionScript, failure evaluate.Failure) (mlestar.SolutionScript, error) {
		p.Update(func() { p.repairing++ })
		defer p.Update(func() { p.repairing-- })
		repaired, err := debug(ctx, solution, failure)
		if err != nil && ctx.Err() == nil {
			p.debugFailures.Add(1)
		}
		return repaired, err
	}
}

// note keeps the best score: of graded ones, as soon as there is one.
func (p *progress) note(e evaluate.Result) {
	if e.Grading != nil && !p.graded {
		p.graded, p.best = true, nil
	}
	score := e.BestScore()
	if !e.Valid() || score == nil || p.graded && e.GradedScore == nil {
		return
	}
	if p.best == nil || evaluate.IsImprovement(*score, *p.best, p.direction) {
		p.best = score
	}
}

// ended shows how a script ended.
func (p *progress) ended(e evaluate.Result) {
	p.Update(func() { p.note(e) })
	p.End(render.EvaluationEnd(e))
	if text := render.EvaluationWarning(e); text != "" {
		p.Say("warning: %s", text)
	}
}
