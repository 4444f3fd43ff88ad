package cli

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

// Progress shows on stderr how far many jobs are: a bar at a terminal, and otherwise a line
// for each job that has ended. Its methods may be called concurrently.
type Progress struct {
	// Lines prints lines instead of a bar at a terminal, too.
	Lines bool
	// More, if set, is further text for the bar. It is called with the lock of the progress held.
	More func() string

	app     *App
	quiet   bool
	mu      sync.Mutex
	all     int // jobs
	todo    int // jobs that were not known before
	ended   int
	running int
	began   time.Time
	said    map[string]bool
	bar     *progressbar.ProgressBar
	done    chan struct{}
}

// redraw is how often the bar is drawn while nothing ends.
const redraw = time.Second

// Start begins to count: todo of all jobs are left. Stop removes the bar. It may be
// called again after Stop.
func (p *Progress) Start(a *App, quiet bool, all, todo int) {
	p.mu.Lock() // of an earlier bar, a tick may be left
	defer p.mu.Unlock()
	p.app, p.quiet, p.all, p.todo, p.ended = a, quiet, all, todo, all-todo
	p.began, p.said = time.Now(), map[string]bool{}
	if quiet || p.Lines || todo == 0 || !a.ErrTerminal || a.Getenv("TERM") == "dumb" {
		return
	}
	p.bar = progressbar.NewOptions(todo,
		progressbar.OptionSetWriter(a.Err), progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false),
		progressbar.OptionSetWidth(20), progressbar.OptionClearOnFinish(), progressbar.OptionUseANSICodes(true))
	p.done = make(chan struct{})
	go p.tick(p.done)
}

// tick draws the bar until done is closed.
func (p *Progress) tick(done <-chan struct{}) {
	ticker := time.NewTicker(redraw)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
			p.Update(func() {})
		}
	}
}

// Stop removes the bar.
func (p *Progress) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		close(p.done)
		_ = p.bar.Clear() // a terminal that is gone takes no bar
		p.bar = nil
	}
}

// Update calls change with the lock held, and draws the bar.
func (p *Progress) Update(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.draw()
}

// draw shows the bar. p.mu is held.
func (p *Progress) draw() {
	if p.bar != nil {
		p.bar.Describe(p.describe())
		_ = p.bar.RenderBlank() // a terminal that is gone takes no bar
	}
}

// describe is the text before the bar: what runs, and the times.
func (p *Progress) describe() string {
	text := fmt.Sprintf("%d running", p.running)
	if p.More != nil {
		text += p.More()
	}
	return text + " · " + p.times(time.Since(p.began))
}

// times are the elapsed time, and the time that the rest takes at the same rate.
func (p *Progress) times(elapsed time.Duration) string {
	text := elapsed.Round(time.Second).String()
	left := p.all - p.ended
	if done := p.todo - left; done > 0 {
		text += fmt.Sprintf(", %v left", (elapsed / time.Duration(done) * time.Duration(left)).Round(time.Second))
	}
	return text
}

// Running counts jobs that start, or end if n is negative.
func (p *Progress) Running(n int) { p.Update(func() { p.running += n }) }

// Skip counts jobs that need not run.
func (p *Progress) Skip(n int) {
	p.Update(func() {
		p.ended += n
		p.todo -= n
		if p.bar != nil {
			p.bar.ChangeMax(p.todo)
		}
	})
}

// End counts a job that has ended. Without a bar it prints the text.
func (p *Progress) End(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended++
	switch {
	case p.bar != nil:
		p.bar.Describe(p.describe())
		_ = p.bar.Add(1) // a terminal that is gone takes no bar
	case !p.quiet:
		p.app.Say("%d/%d %s", p.ended, p.all, text)
	}
}

// Say prints a line, above the bar if there is one.
func (p *Progress) Say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.quiet {
		return
	}
	if p.bar != nil {
		_ = p.bar.Clear() // a terminal that is gone takes no bar
	}
	p.app.Say(format, args...)
	p.draw()
}

// Once is Say for a text whose topic, up to a colon, was not said before.
func (p *Progress) Once(text string) {
	topic, _, _ := strings.Cut(text, ":")
	p.mu.Lock()
	again := p.said[topic]
	p.said[topic] = true
	p.mu.Unlock()
	if !again {
		p.Say("%s", text)
	}
}
