package evaluate

import (
	"cmp"
	"context"
	"errors"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/harness/evaluate/mlestar"
	"github.com/evalbox/evalbox/harness/trial"
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
func showEvaluations(ctx context.Context, a *cli.App, r evaluate.Repetition, err error, view evaluationView, s settings.Settings) error {
	// The error already says why the last one never ran.
	if n := len(r.Results); n > 0 && err != nil && r.Results[n-1].Run == nil {
		r.Results = r.Results[:n-1]
	}
	code, open := 0, false
	for _, e := range r.Results {
		code = max(code, cli.ExitCode(ended(e), nil))
		open = open || !e.Conclusive()
	}
	if ctx.Err() != nil && (open || err != nil) {
		err = cmp.Or(err, context.Cause(ctx))
		code = cli.ExitCode(nil, context.Cause(ctx))
	} else if err != nil {
		code = cli.ExitCode(nil, err)
	}
	a.Code = code
	switch {
	case len(r.Results) == 0:
		return err
	case s.JSON && view.runs > 1:
		return errors.Join(a.PrintJSON(r), err)
	case s.JSON:
		return errors.Join(a.PrintJSON(r.Results[0]), err)
	case s.Quiet:
		return err
	}
	for i, e := range r.Results {
		for _, warning := range e.Warnings {
			a.Warn("%s", warning)
		}
		if printErr := a.Print("%s", render.Evaluation(e, r.Workspaces[i], view.live)); printErr != nil {
			return printErr
		}
	}
	if view.runs > 1 && r.Results[0].Run != nil {
		return errors.Join(a.Print("%s", render.Statistics(r.Statistics, len(r.Results))), err)
	}
	return err
}

// ended is how an evaluation ended, as the exit code sees it: as its run, unless anything
// else is wrong.
func ended(e evaluate.Result) *trial.Result {
	if e.Run == nil {
		return &trial.Result{Verdict: trial.Failed}
	}
	end := cli.OfRun(&result.Result{Status: e.Run.Status, ExitCode: e.ExitCode})
	if end.Verdict == trial.Passed && e.Verdict() != trial.Passed {
		end.Verdict = trial.Failed
	}
	return end
}

// sayingRetries reports each repair; most is their maximum. A debug command may be silent for
// minutes.
func sayingRetries(say func(format string, args ...any), debug evaluate.DebugFunc, most int) evaluate.DebugFunc {
	n := 0
	return func(ctx context.Context, solution mlestar.SolutionScript, failure evaluate.Failure) (mlestar.SolutionScript, error) {
		n++
		say("retry %d of %d: asking the debug command", n, most)
		repaired, err := debug(ctx, solution, failure)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			say("retry %d of %d: the debug command failed", n, most)
		default:
			say("retry %d of %d: running the repaired script", n, most)
		}
		return repaired, err
	}
}
