package render

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/harness/evaluate/submission"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/result"
)

// Statistics is a line on repeated runs.
func Statistics(s evaluate.Statistics, runs int) string {
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

// Evaluation lists the problems of an evaluation in a workspace, and then says in one line
// how it ended. live means that the output of the script has been shown already.
func Evaluation(e evaluate.Result, workspace string, live bool) string {
	shown := ""
	if e.IsError && (!live || e.Cached || e.Run == nil || e.ErrorTraceback == nil) {
		shown += evaluate.Failure{Traceback: e.ErrorTraceback, Result: e}.Text() + "\n"
	}
	shown += comparison(e.Submission)
	if why := notGraded(e); why != "" {
		shown += "not graded: " + why + "\n"
	}
	parts := append([]string{e.Name, evaluationStatus(e)}, scoreParts(e, text.Number, " (self-reported)")...)
	if e.Run != nil {
		parts = append(parts, text.Seconds(e.DurationSeconds))
		if !e.Cached {
			parts = append(parts, "outputs in "+filepath.Join(workspace, "final"))
		}
		parts = append(parts, "id "+e.Run.ID)
	}
	return shown + strings.Join(parts, " · ") + "\n"
}

// scoreParts are the parts of a line on score and seed, with number's digits. selfReported comes after a
// score that the script reported itself.
func scoreParts(e evaluate.Result, number func(float64) string, selfReported string) []string {
	var parts []string
	if e.GradedScore != nil {
		parts = append(parts, "graded "+number(*e.GradedScore))
	}
	switch {
	case e.Score != nil:
		score := "score " + number(*e.Score) + selfReported
		if e.ScoreUnfinished {
			score = Unfinished + score
		}
		parts = append(parts, score)
	case e.Run != nil && e.Valid():
		parts = append(parts, "no score")
	}
	if e.Seed != nil {
		parts = append(parts, "seed "+strconv.FormatUint(uint64(*e.Seed), 10))
	}
	return parts
}

// notGraded says why there is no graded score; empty when there is one, or no grader.
func notGraded(e evaluate.Result) string {
	switch {
	case e.Grading == nil || e.Grading.Failure == "":
		return ""
	case e.Grading.Canceled:
		return "interrupted while the grader ran"
	}
	return e.Grading.Failure
}

// EvaluationEnd is a line on an evaluation.
func EvaluationEnd(e evaluate.Result) string {
	parts := append([]string{e.Name, tableStatus(e)}, scoreParts(e, scoreDigits, "")...)
	unscored := e.Valid() && e.Grading == nil && e.Score == nil && e.Submission == nil // said by the score's part
	if why := e.Explain(); why != "" && !unscored && !e.Overstated(e.MetricDirection) {
		parts = append(parts, why)
	}
	return strings.Join(append(parts, text.Seconds(e.DurationSeconds)), " · ")
}

// EvaluationWarning is a line on the warnings of an evaluation; empty without one.
func EvaluationWarning(e evaluate.Result) string {
	switch n := len(e.Warnings) - 1; {
	case n < 0:
		return ""
	case n == 0:
		return e.Name + ": " + text.Brief(e.Warnings[0])
	default:
		return fmt.Sprintf("%s: %s (and %d more)", e.Name, text.Brief(e.Warnings[0]), n)
	}
}

// evaluationStatus says in a few words how an evaluation ended.
func evaluationStatus(e evaluate.Result) string {
	status := ""
	switch {
	case strings.HasPrefix(e.Failure, "canceled"):
		status = e.Failure // the caller's doing
	case e.Failure != "":
		status = "failed: " + e.Failure
	case e.ErrorReason == evaluate.ErrorReasonRejected:
		status = "refused"
	case e.Run != nil && e.Run.Status == result.StatusExited:
		status = "exited " + strconv.Itoa(e.ExitCode)
		if e.ExitCode == 0 && e.IsError {
			status += " with a traceback"
		}
	case e.Run != nil:
		status = strings.ReplaceAll(e.Run.Status.String(), "_", " ")
	}
	var notes []string
	if e.Run != nil && e.Run.Deadline == result.DeadlineSoft {
		notes = append(notes, "asked to finish")
	}
	if e.Cached {
		notes = append(notes, "cached")
	}
	switch {
	case e.Repairs == 1:
		notes = append(notes, "repaired")
	case e.Repairs > 1:
		notes = append(notes, fmt.Sprintf("repaired %d times", e.Repairs))
	}
	if len(notes) > 0 {
		status += " (" + strings.Join(notes, ", ") + ")"
	}
	return status
}

// tableStatus is [evaluationStatus] without the reason of our failure, which is in a column of its
// own.
func tableStatus(e evaluate.Result) string {
	switch {
	case strings.HasPrefix(e.Failure, "not started"):
		return "not started"
	case strings.HasPrefix(e.Failure, "canceled"):
		return "canceled"
	case e.Failure != "":
		return "failed"
	}
	return evaluationStatus(e)
}

// Submission describes a submission, and its comparison with a sample; check is nil without
// one.
func Submission(info submission.File, check *submission.Check) string {
	shown := info.Path + ": missing\n"
	switch {
	case info.Exists && info.RowCount != nil:
		shown = fmt.Sprintf("%s: %s, %s\n", info.Path, text.Size(info.SizeBytes), text.Count(int(*info.RowCount), "row"))
	case info.Problem != "" && check == nil: // otherwise the check says it
		shown = info.Path + ": " + info.Problem + "\n"
	}
	if check != nil && info.RowCount != nil && check.OK && check.Rows != *info.RowCount {
		shown += fmt.Sprintf("note: these rows are lines; they hold %d records, of which some have several lines or blank ones\n", check.Rows)
	}
	return shown + comparison(check)
}

// comparison are the lines on a comparison with a sample.
func comparison(check *submission.Check) string {
	if check == nil {
		return ""
	}
	text := ""
	for _, problem := range check.Problems {
		text += "problem: " + problem + "\n"
	}
	for _, note := range check.Notes {
		text += "note: " + note + "\n"
	}
	if check.Failure != "" {
		text += "submission not checked: " + check.Failure + "\n"
	}
	if check.OK {
		text += "as the sample\n"
	}
	return text
}

// Resumption says how much of a batch an earlier one has done already; empty for nothing.
func Resumption(r evaluate.Resumption, all int) string {
	var again []string
	for _, p := range []struct {
		count int
		text  string
	}{
		{r.Inconclusive, "that were interrupted"}, {r.Changed, "that changed"}, {r.Setup, "that were evaluated in another way"},
		{r.Limited, "that a lower limit may have ended"}, {r.Asked, "as --rerun says"},
	} {
		if p.count == 1 {
			p.text = strings.Replace(p.text, "that were", "that was", 1)
		}
		if p.count > 0 {
			again = append(again, fmt.Sprintf("%d %s", p.count, p.text))
		}
	}
	if r.Done == 0 && len(again) == 0 {
		return ""
	}
	shown := fmt.Sprintf("%d of %d done", r.Done, all)
	if len(again) > 0 {
		shown += "; re-running " + strings.Join(again, ", ")
	}
	switch {
	case r.New > 0 && len(again) > 0:
		shown += fmt.Sprintf(", %d new", r.New)
	case r.New > 0:
		shown += fmt.Sprintf("; %d new", r.New)
	}
	return shown
}

// Round says that a round of a halving begins.
func Round(r evaluate.Round) string {
	shown := fmt.Sprintf("round %d of %d: %s with resource %d", r.Number, r.Of, text.Count(r.Scripts, "script"), r.Resource)
	if r.Runs != r.Scripts {
		shown += ", " + text.Count(r.Runs, "run")
	}
	return shown
}

// Halving is a line on what a halving took, or on what is left of it.
func Halving(r evaluate.HalvingReport) string {
	c := r.Cost
	shown := fmt.Sprintf("halving: resource %d of %d spent (%.0f %% saved) · runs took %s", c.Spent, c.Full, 100*c.Saved(), text.Seconds(c.Seconds))
	if c.FullSeconds > 0 {
		shown += fmt.Sprintf(", all with the full resource about %s", text.Seconds(c.FullSeconds))
	}
	if c.GPUSeconds > 0 {
		shown += " · GPU time " + text.Seconds(c.GPUSeconds)
	}
	if c.FullGPUSeconds > 0 {
		shown += " instead of about " + text.Seconds(c.FullGPUSeconds)
	}
	if r.Waiting > 0 {
		shown += " · not complete: the same command continues from there"
	}
	return shown
}

// A Sum counts the results of a batch.
//
// Stopped counts those of Failed that a stop rule ended, Starved those of Inconclusive that their time
// limit ended while other work had starved them.
type Sum struct{ All, EndedWell, Failed, Stopped, Inconclusive, Starved, NotStarted int }

// BatchSum counts results; nil is a script that did not begin.
func BatchSum(results []*evaluate.Result) Sum {
	s := Sum{All: len(results)}
	for _, r := range results {
		switch {
		case r == nil:
			s.NotStarted++
		case !r.Conclusive():
			s.Inconclusive++
			if r.Run != nil && r.Run.Status == result.StatusTimedOut && r.Run.Fault == result.FaultEnvironment {
				s.Starved++
			}
		case r.EndedWell():
			s.EndedWell++
		default:
			s.Failed++
			if r.Run != nil && r.Run.Status == result.StatusStoppedByRule {
				s.Stopped++
			}
		}
	}
	return s
}

// Text is the last line on a batch.
func (s Sum) Text(results string, debugFailures int64) string {
	shown := fmt.Sprintf("batch of %d: %d ended well, %d failed", s.All, s.EndedWell, s.Failed)
	if s.Stopped > 0 {
		shown += fmt.Sprintf(" (%d by a stop rule)", s.Stopped)
	}
	if s.Inconclusive > 0 {
		shown += fmt.Sprintf(", %d without a conclusive result", s.Inconclusive)
	}
	if s.Starved > 0 {
		shown += fmt.Sprintf(" (%d timed out because other work had starved them)", s.Starved)
	}
	if s.NotStarted > 0 {
		shown += fmt.Sprintf(", %d not started", s.NotStarted)
	}
	if debugFailures > 0 {
		shown += " · " + text.Count(debugFailures, "debug command") + " failed"
	}
	shown += " · results in " + results
	switch {
	case s.Starved > 0:
		shown += "; the same command runs those again: give it when the machine has less to do, or with a lower -j"
	case s.Inconclusive+s.NotStarted > 0:
		shown += "; the same command continues from there"
	}
	return shown
}
