package main

import (
	"context"
	"fmt"

	"github.com/evalbox/evalbox/cmd/sandbox/internal/terminal"
	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/execute"
)

// gateLive is a gate while it runs: what is shown of it, and how long its commands take.
type gateLive struct {
	// seconds are those of the commands themselves, by index.
	seconds map[int]float64
	// ended is called when nothing runs any more.
	ended func()
}

// watchGate connects an engine with the terminal.
func (a *app) watchGate(ctx context.Context, e *gate.Engine, s settings, show bool) *gateLive {
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
		if text := stepText(event); text != "" && a.errTerminal && !s.Quiet {
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

// stepText tells what begins; empty for what takes no time.
func stepText(e gate.Event) string {
	set := ""
	if e.Set != "" {
		set = e.Set + ", "
	}
	switch e.Stage {
	case execute.StageSnapshot:
		return "looking at image, workspace and tools"
	case execute.StageStart:
		return fmt.Sprintf("%sgate %d/%d · %s", set, e.Gate, e.Gates, short(oneLine(e.Cmd), maxReason))
	case execute.StageNormalize:
		return "normalizing, hashing and judging"
	case execute.StageEnd, execute.StageManifest, execute.StageHash, execute.StageJudge:
	}
	return ""
}
