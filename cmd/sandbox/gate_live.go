package main

import (
	"context"
	"fmt"

	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/execute"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/terminal"
)

// gateLive is a gate while it runs: what is shown of it, and how long its commands take.
type gateLive struct {
	// seconds are those of the commands themselves, by index.
	seconds map[int]float64
	// ended is called when nothing runs any more.
	ended func()
}

// watchGate connects an engine with the terminal.
func (a *app) watchGate(ctx context.Context, e *gate.Engine, s settings.Settings, show bool) *gateLive {
	g := &gateLive{seconds: map[int]float64{}}
	e.Hooks.Kill = a.streams.Kill
	shown := s
	shown.Quiet = s.Quiet || !show
	live := a.connect(&e.IO, shown)
	waiting := a.tellWaiting(s)
	e.Hooks.Waiting = waiting.say
	announced := func() {}
	e.Progress = func(event gate.Event) {
		if event.Stage == execute.StageEnd && event.Set == "" && event.Result != nil {
			g.seconds[event.Gate] = event.Result.DurationSeconds
		}
		if text := render.GateStep(event); text != "" && a.errTerminal && !s.Quiet {
			fmt.Fprintf(live.err, "sandbox: %s\n", terminal.Line(text)) // a stderr that is gone is told of by the summary
		}
	}
	if !s.Quiet {
		announced = live.announceEnd(ctx)
	}
	g.ended = func() {
		waiting.end()
		announced()
		if a.streams.Ended != nil {
			a.streams.Ended()
		}
		_ = live.finish() // what could not be shown is in the evidence
	}
	return g
}
