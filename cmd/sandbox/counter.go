package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/harness/evaluate/mlestar"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/text"
)

// counter shows the progress of many runs on stderr: a bar at a terminal, and otherwise a
// line for each run that has ended.
type counter struct {
	mu      sync.Mutex
	app     *app
	quiet   bool
	more    func() string
	all     int
	ended   int
	running int
	todo    int
	began   time.Time
	said    map[string]bool
	bar     *progressbar.ProgressBar
	ticking chan struct{}
}

// refresh is how often the bar is drawn anew while nothing ends.
const refresh = time.Second

// start begins to count: todo of all runs are left; unit is their noun. more, called with
// p.mu held, is further text for the bar.
func (p *counter) start(a *app, quiet bool, unit string, all, todo int, more func() string) {
	p.app, p.quiet, p.more, p.all, p.ended = a, quiet, more, all, all-todo
	p.todo, p.began, p.said = todo, time.Now(), map[string]bool{}
	if quiet || todo == 0 || !a.errTerminal || lookup(a.environ, "TERM") == "dumb" {
		return
	}
	p.bar = progressbar.NewOptions(todo,
		progressbar.OptionSetWriter(a.streams.Err), progressbar.OptionShowCount(), progressbar.OptionShowIts(),
		progressbar.OptionSetItsString(unit), progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false),
		progressbar.OptionSetWidth(20), progressbar.OptionClearOnFinish(), progressbar.OptionUseANSICodes(true))
	p.ticking = make(chan struct{})
	go p.tick()
}

func (p *counter) tick() {
	ticker := time.NewTicker(refresh)
	defer ticker.Stop()
	for {
		select {
		case <-p.ticking:
			return
		case <-ticker.C:
			p.mu.Lock()
			p.draw()
			p.mu.Unlock()
		}
	}
}

// stop takes the bar away.
func (p *counter) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		close(p.ticking)
		_ = p.bar.Clear() // a terminal that is gone takes no bar
		p.bar = nil
	}
}

// draw shows the bar. p.mu is held.
func (p *counter) draw() {
	if p.bar == nil {
		return
	}
	p.bar.Describe(p.describe() + " · " + p.times(time.Since(p.began)))
	_ = p.bar.RenderBlank() // a terminal that is gone takes no bar
}

// describe is the text before the bar.
func (p *counter) describe() string { return strconv.Itoa(p.running) + " running" + p.more() }

// times are the elapsed time, and the time that the rest takes at the same rate.
func (p *counter) times(elapsed time.Duration) string {
	text := elapsed.Round(time.Second).String()
	left := p.all - p.ended
	if done := p.todo - left; done > 0 {
		text += fmt.Sprintf(", %v left", (elapsed / time.Duration(done) * time.Duration(left)).Round(time.Second))
	}
	return text
}

// count counts programs that start (1) and have ended (-1).
func (p *counter) count(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running += n
	p.draw()
}

// skip counts runs that need not be done.
func (p *counter) skip(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended += n
	p.todo -= n
	if p.bar != nil {
		p.bar.ChangeMax(p.todo)
	}
	p.draw()
}

// end counts a run that has ended. Without a bar it prints the text.
func (p *counter) end(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(text)
}

// add is end with p.mu held.
func (p *counter) add(text string) {
	p.ended++
	switch {
	case p.bar != nil:
		p.bar.Describe(p.describe() + " · " + p.times(time.Since(p.began)))
		_ = p.bar.Add(1) // a terminal that is gone takes no bar
	case !p.quiet:
		p.app.say(fmt.Sprintf("%d/%d %s", p.ended, p.all, text))
	}
}

// say prints a line, above the bar if there is one.
func (p *counter) say(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line(text)
}

// line is say with p.mu held.
func (p *counter) line(text string) {
	if p.quiet {
		return
	}
	if p.bar != nil {
		_ = p.bar.Clear() // a terminal that is gone takes no bar
	}
	p.app.say(text)
	p.draw()
}

// once says something the first time only.
func (p *counter) once(text string) {
	topic, _, _ := strings.Cut(text, ":")
	p.mu.Lock()
	again := p.said[topic]
	p.said[topic] = true
	p.mu.Unlock()
	if !again {
		p.say(text)
	}
}

// progress is the [counter] of a batch, which also shows the best score.
type progress struct {
	counter
	direction evaluate.MetricDirection
	repairing int
	// debugFailures counts the debug commands that failed.
	debugFailures atomic.Int64
	graded        bool
	best          *float64
}

func (p *progress) start(a *app, quiet bool, direction evaluate.MetricDirection, all, todo int) {
	p.direction = direction
	p.counter.start(a, quiet, "scripts", all, todo, p.more)
}

// more is further text before the bar.
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
		p.repair(1)
		defer p.repair(-1)
		repaired, err := debug(ctx, solution, failure)
		if err != nil && ctx.Err() == nil {
			p.debugFailures.Add(1)
		}
		return repaired, err
	}
}

func (p *progress) repair(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.repairing += n
	p.draw()
}

// known takes the score of an evaluation into account.
func (p *progress) known(e evaluate.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note(e)
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

// end shows how a script ended.
func (p *progress) end(e evaluate.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note(e)
	p.add(render.EvaluationEnd(e))
	if text := render.EvaluationWarning(e); text != "" {
		p.line("warning: " + text)
	}
}
