package main

import (
	"fmt"

	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/text"
)

// progress tells on stderr how far a batch is, as [counter] does, and the best score.
type progress struct {
	counter
	direction evaluate.MetricDirection
	repairing int
	graded    bool
	best      *float64
}

func (p *progress) start(a *app, quiet bool, direction evaluate.MetricDirection, all, todo int) {
	p.direction = direction
	p.counter.start(a, quiet, "scripts", all, todo, p.more)
}

// more is what stands before the bar, behind the number of what runs.
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

// repair counts scripts that are being repaired.
func (p *progress) repair(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.repairing += n
	p.draw()
}

// known takes the score of an evaluation into account.
func (p *progress) known(e evaluate.Evaluation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note(e)
}

// note keeps the best score: of graded ones, as soon as there is one.
func (p *progress) note(e evaluate.Evaluation) {
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

// end tells how a script ended.
func (p *progress) end(e evaluate.Evaluation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note(e)
	p.add(render.EvaluationEnd(e))
	if text := render.EvaluationWarning(e); text != "" {
		p.line("warning: " + text)
	}
}
