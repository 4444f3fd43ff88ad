package main

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/evalbox/evalbox/cmd/sandbox/internal/terminal"
	"github.com/evalbox/evalbox/harness/evaluate"
)

// progress tells on stderr how far a batch is: a bar at a terminal, and else a line
// for each script that has ended.
type progress struct {
	mu        sync.Mutex
	app       *app
	quiet     bool
	direction evaluate.MetricDirection
	all       int
	ended     int
	running   int
	graded    bool
	best      *float64
	said      map[string]bool
	bar       *progressbar.ProgressBar
	ticking   chan struct{}
}

// refresh is how often the bar is drawn anew while nothing ends.
const refresh = time.Second

func (p *progress) start(a *app, quiet bool, direction evaluate.MetricDirection, all, todo int) {
	p.app, p.quiet, p.direction, p.all, p.ended = a, quiet, direction, all, all-todo
	p.said = map[string]bool{}
	if quiet || todo == 0 || !a.errTerminal || lookup(a.environ, "TERM") == "dumb" {
		return
	}
	p.bar = progressbar.NewOptions(todo,
		progressbar.OptionSetWriter(a.streams.Err), progressbar.OptionShowCount(), progressbar.OptionShowIts(),
		progressbar.OptionSetItsString("scripts"), progressbar.OptionSetPredictTime(true), progressbar.OptionSetElapsedTime(true),
		progressbar.OptionSetWidth(20), progressbar.OptionClearOnFinish(), progressbar.OptionUseANSICodes(true))
	p.ticking = make(chan struct{})
	go p.tick()
}

func (p *progress) tick() {
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
func (p *progress) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		close(p.ticking)
		_ = p.bar.Clear() // a terminal that is gone takes no bar
		p.bar = nil
	}
}

// draw shows the bar. p.mu is held.
func (p *progress) draw() {
	if p.bar == nil {
		return
	}
	p.bar.Describe(p.describe())
	_ = p.bar.RenderBlank() // a terminal that is gone takes no bar
}

// describe is what stands before the bar.
func (p *progress) describe() string {
	text := strconv.Itoa(p.running) + " running"
	if p.best != nil {
		text += " · best " + formatScore(*p.best)
	}
	return text
}

// admitted counts a program that may start, until it has ended.
func (p *progress) admitted(release func(), err error) (func(), error) {
	if err != nil {
		return nil, err
	}
	p.count(1)
	return func() {
		p.count(-1)
		release()
	}, nil
}

func (p *progress) count(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running += n
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
	p.ended++
	p.note(e)
	switch {
	case p.bar != nil:
		p.bar.Describe(p.describe())
		_ = p.bar.Add(1) // a terminal that is gone takes no bar
	case !p.quiet:
		p.app.say(fmt.Sprintf("%d/%d %s", p.ended, p.all, endText(e)))
	}
}

// endText is a line on an evaluation.
func endText(e evaluate.Evaluation) string {
	parts := []string{e.Name, evaluationStatus(e)}
	if e.GradedScore != nil {
		parts = append(parts, "graded "+formatScore(*e.GradedScore))
	}
	if e.Score != nil {
		parts = append(parts, "score "+formatScore(*e.Score))
	}
	if e.Seed != nil {
		parts = append(parts, "seed "+strconv.FormatUint(uint64(*e.Seed), 10))
	}
	return strings.Join(append(parts, formatSeconds(e.DurationSeconds)), " · ")
}

// say prints a line, above the bar if there is one.
func (p *progress) say(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
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
func (p *progress) once(text string) {
	topic, _, _ := strings.Cut(text, ":")
	p.mu.Lock()
	again := p.said[topic]
	p.said[topic] = true
	p.mu.Unlock()
	if !again {
		p.say(text)
	}
}

// say prints one line of ours on stderr. A stderr that cannot be written to takes none.
func (a *app) say(text string) {
	fmt.Fprintf(a.streams.Err, "sandbox: %s\n", terminal.Line(text))
}
