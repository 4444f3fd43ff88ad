package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/harness/evaluate/mlestar"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/result"
)

// evaluationView says how evaluations of one script are shown.
type evaluationView struct {
	// runs are how many there should have been.
	runs int
	// live says that the output of the script has been shown already.
	live bool
}

// showEvaluations shows the evaluations of one script, which ended with err, and sets
// the exit code.
func (a *app) showEvaluations(ctx context.Context, r evaluate.Repetition, err error, view evaluationView, s settings.Settings) error {
	// The error already says why the last one never ran.
	if n := len(r.Results); n > 0 && err != nil && r.Results[n-1].Run == nil {
		r.Results = r.Results[:n-1]
	}
	code, open := 0, false
	for _, e := range r.Results {
		code = max(code, evaluationCode(e))
		open = open || !e.Conclusive()
	}
	if ctx.Err() != nil && (open || err != nil) {
		err = cmp.Or(err, context.Cause(ctx))
		code = exitCode(nil, context.Cause(ctx))
	} else if err != nil {
		code = exitCode(nil, err)
	}
	a.code = code
	switch {
	case len(r.Results) == 0:
		return err
	case s.JSON && view.runs > 1:
		return errors.Join(a.printRepetition(r), err)
	case s.JSON:
		return errors.Join(a.printJSON(r.Results[0]), err)
	case s.Quiet:
		return err
	}
	for i, e := range r.Results {
		for _, warning := range e.Warnings {
			a.warn(warning)
		}
		if printErr := a.print("%s", render.Evaluation(e, r.Workspaces[i], view.live)); printErr != nil {
			return printErr
		}
	}
	if view.runs > 1 && r.Results[0].Run != nil {
		return errors.Join(a.print("%s", render.Statistics(r.Statistics, len(r.Results))), err)
	}
	return err
}

// printRepetition prints repeated evaluations as JSON. They are printed even when their
// statistics have no JSON.
func (a *app) printRepetition(r evaluate.Repetition) error {
	if unsupported := new(json.UnsupportedValueError); errors.As(encodable(r.Statistics), &unsupported) {
		a.warn("the scores are too large for their statistics")
		r.Statistics = evaluate.Statistics{Count: r.Statistics.Count}
	}
	return a.printJSON(r)
}

func encodable(v any) error {
	_, err := json.Marshal(v)
	return err
}

// evaluationCode is the exit code of an evaluation: the script's with the exceptions of a
// run, and 1 for any other problem.
func evaluationCode(e evaluate.Result) int {
	if e.Run == nil {
		return exitProblem
	}
	code := resultCode(&result.Result{Status: e.Run.Status, ExitCode: e.ExitCode})
	if code == 0 && (!e.Valid() || e.Submission != nil && !e.Submission.OK || e.Grading != nil && e.Grading.Failure != "") {
		return exitProblem
	}
	return code
}

// steps show the steps of an evaluation besides the run of the script at a terminal: a
// debug command and a grader may be silent for minutes.
type steps struct{ say func(text string) }

func (a *app) tellSteps(s settings.Settings) steps {
	if !a.errTerminal || s.Quiet {
		return steps{func(string) {}}
	}
	return steps{a.say}
}

func (s steps) grading(string) { s.say("grading") }

// debugging shows each repair; most is their maximum.
func (s steps) debugging(debug evaluate.DebugFunc, most int) evaluate.DebugFunc {
	n := 0
	return func(ctx context.Context, solution mlestar.SolutionScript, failure evaluate.Failure) (mlestar.SolutionScript, error) {
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
