package main

import (
	"context"
	"fmt"

	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// watchedRunner is a runner that counts its runs, which heed Kill.
type watchedRunner struct {
	*sandbox.Runner
	runs *runsInFlight
}

func (a *app) watched(runner *sandbox.Runner) watchedRunner {
	return watchedRunner{runner, a.streams.runs}
}

func (w watchedRunner) Run(ctx context.Context, req sandbox.Request, opts ...sandbox.RunOption) (*result.Result, error) {
	defer w.runs.begin()()
	return w.Runner.Run(ctx, req, opts...)
}

// steps tell a terminal what an evaluation does besides running the script: both a
// debug command and a grader may be silent for minutes.
type steps struct{ say func(text string) }

func (a *app) tellSteps(s settings) steps {
	if !a.errTerminal || s.Quiet {
		return steps{func(string) {}}
	}
	return steps{a.say}
}

func (s steps) grading(string) { s.say("grading") }

// debugging tells of each repair, of which there are most.
func (s steps) debugging(debug evaluate.DebugFunc, most int) evaluate.DebugFunc {
	n := 0
	return func(ctx context.Context, solution evaluate.SolutionScript, failure evaluate.Failure) (evaluate.SolutionScript, error) {
		n++
		s.say(fmt.Sprintf("retry %d of %d: asking the debug command", n, most))
		repaired, err := debug(ctx, solution, failure)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			s.say(fmt.Sprintf("retry %d of %d: the debug command failed", n, most))
		default:
			s.say(fmt.Sprintf("retry %d of %d: running the repaired script", n, most))
		}
		return repaired, err
	}
}
