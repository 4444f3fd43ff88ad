package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/terminal"
)

// waitingEvery is how often what a run waits for is told at most: a busy queue
// changes many times in a second.
const waitingEvery = 5 * time.Second

// waiting tells what runs wait for. Its methods may be called concurrently.
type waiting struct {
	tell func(why string)

	mu    sync.Mutex
	last  time.Time
	next  string
	timer *time.Timer
}

// tellWaiting says on stderr what a run waits for. Who reads only the result wants
// to know as well.
func (a *app) tellWaiting(s settings.Settings) *waiting {
	if s.Quiet {
		return &waiting{tell: func(string) {}}
	}
	return &waiting{tell: func(why string) {
		fmt.Fprintf(a.streams.Err, "sandbox: waiting for GPUs, up to %v: %s\n", s.GPUWait, terminal.Line(why))
	}}
}

// say tells it now, or when it is time again; then only the latest counts.
func (w *waiting) say(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pause := waitingEvery - time.Since(w.last)
	switch {
	case w.timer != nil:
		w.next = why
	case pause <= 0:
		w.last = time.Now()
		w.tell(why)
	default:
		w.next = why
		w.timer = time.AfterFunc(pause, w.sayNext)
	}
}

func (w *waiting) sayNext() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		return // it has ended meanwhile
	}
	w.timer, w.last = nil, time.Now()
	w.tell(w.next)
}

// end forgets what has not been told: the wait is over.
func (w *waiting) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}
