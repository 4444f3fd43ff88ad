package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/internal/format"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/result"
)

// evaluationView says how evaluations of one script are shown.
type evaluationView struct {
	// runs are how many there should have been.
	runs int
	// live says that what the script printed has been shown already.
	live bool
}

// showEvaluations shows the evaluations of one script, which ended with err, and sets
// the exit code. A script that was refused is an evaluation and no failure.
func (a *app) showEvaluations(ctx context.Context, r evaluate.Repetition, err error, view evaluationView, s settings.Settings) error {
	if refused := new(evaluate.ScriptError); errors.As(err, &refused) {
		err = nil
	}
	// What never ran because of an error is nothing to show: the error says it.
	if n := len(r.Evaluations); n > 0 && err != nil && r.Evaluations[n-1].Run == nil {
		r.Evaluations = r.Evaluations[:n-1]
	}
	code, open := 0, false
	for _, e := range r.Evaluations {
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
	case len(r.Evaluations) == 0:
		return err
	case s.JSON && view.runs > 1:
		return errors.Join(a.printRepetition(r), err)
	case s.JSON:
		return errors.Join(a.printJSON(r.Evaluations[0]), err)
	case s.Quiet:
		return err
	}
	for i, e := range r.Evaluations {
		if printErr := a.printEvaluation(e, r.Workspaces[i], view.live); printErr != nil {
			return printErr
		}
	}
	if view.runs > 1 && r.Evaluations[0].Run != nil {
		return errors.Join(a.print("%s", statisticsText(r.Statistics, len(r.Evaluations))), err)
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

// statisticsText is a line on repeated runs.
func statisticsText(s evaluate.Statistics, runs int) string {
	text := strconv.Itoa(s.Count) + " scores"
	switch {
	case s.Count == 0:
		return fmt.Sprintf("none of %d runs has a score\n", runs)
	case s.Count == 1 && runs > 1:
		text = fmt.Sprintf("1 of %d runs has a score", runs)
	case s.Count < runs:
		text = fmt.Sprintf("%d of %d runs have a score", s.Count, runs)
	}
	switch {
	case s.Count == 1 && s.Mean != nil:
		text += fmt.Sprintf(" · %.6g", *s.Mean)
	case s.Mean != nil:
		text += fmt.Sprintf(" · mean %.6g", *s.Mean)
	}
	if s.Deviation != nil && s.Low != nil && s.High != nil {
		text += fmt.Sprintf(" · deviation %.3g · 95 %% interval %.6g to %.6g", *s.Deviation, *s.Low, *s.High)
	}
	return text + "\n"
}

// printEvaluation prints what is wrong with an evaluation, and then one line. live says
// that what the script printed has been shown already.
func (a *app) printEvaluation(e evaluate.Evaluation, workspace string, live bool) error {
	for _, warning := range e.Warnings {
		a.warn(warning)
	}
	text := ""
	if e.IsError && (!live || e.Cached || e.Run == nil || e.ErrorTraceback == nil) {
		text += evaluate.Failure{Traceback: e.ErrorTraceback, Evaluation: e}.Text() + "\n"
	}
	text += checkText(e.Submission)
	if why := notGraded(e); why != "" {
		text += "not graded: " + why + "\n"
	}
	parts := append([]string{e.Name, evaluationStatus(e)}, scoreParts(e, " (its own word)")...)
	if e.Run != nil {
		parts = append(parts, format.Seconds(e.DurationSeconds))
		if !e.Cached {
			parts = append(parts, "outputs in "+filepath.Join(workspace, "final"))
		}
		parts = append(parts, "id "+e.Run.ID)
	}
	return a.print("%s%s\n", text, strings.Join(parts, " · "))
}

// scoreParts are what a line says on score and seed. ownWord comes after a score that
// the script reported itself.
func scoreParts(e evaluate.Evaluation, ownWord string) []string {
	var parts []string
	if e.GradedScore != nil {
		parts = append(parts, "graded "+format.Number(*e.GradedScore))
	}
	switch {
	case e.Score != nil:
		parts = append(parts, "score "+format.Number(*e.Score)+ownWord)
	case e.Run != nil && e.Valid():
		parts = append(parts, "no score")
	}
	if e.Seed != nil {
		parts = append(parts, "seed "+strconv.FormatUint(uint64(*e.Seed), 10))
	}
	return parts
}

// notGraded says why there is no graded score; empty when there is one, or no grader.
func notGraded(e evaluate.Evaluation) string {
	switch {
	case e.Grading == nil || e.Grading.Failure == "":
		return ""
	case e.Grading.Canceled:
		return "interrupted while the grader ran"
	}
	return e.Grading.Failure
}

// evaluationCode is the exit code of an evaluation: the script's with the
// exceptions of a run, and 1 for whatever else is wrong with it.
func evaluationCode(e evaluate.Evaluation) int {
	if e.Run == nil {
		return exitProblem
	}
	code := resultCode(&result.Result{Status: e.Run.Status, ExitCode: e.ExitCode})
	if code == 0 && (!e.Valid() || e.Submission != nil && !e.Submission.OK || e.Grading != nil && e.Grading.Failure != "") {
		return exitProblem
	}
	return code
}

// warn prints a warning. A stderr that cannot be written to takes none.
func (a *app) warn(text string) {
	fmt.Fprintf(a.streams.Err, "sandbox: warning: %s\n", terminal.Line(text))
}
