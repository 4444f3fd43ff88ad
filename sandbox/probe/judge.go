package probe

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/ends"
)

// Verdict is the answer to one probe.
type Verdict struct {
	Group string `json:"group"`
	Name  string `json:"name"`
	// Differs lists what was not as expected; empty is well.
	Differs []string `json:"differs"`
}

// Judge compares a result with what a run must have. It is pure.
func (r Run) Judge(m Machine, res *result.Result) Verdict {
	differs := r.want(m).differences(res)
	if r.Or != nil && len(r.Or.differences(res)) == 0 {
		differs = nil
	}
	return Verdict{Group: r.Group, Name: r.Name, Differs: differs}
}

// Judge compares the result of a batch with the expected answers. Every question has a verdict.
func (b Batch) Judge(m Machine, res *result.Result) []Verdict {
	got := answers(res.Stdout)
	all := make([]Verdict, 0, len(b.Questions))
	for _, q := range b.Questions {
		v := Verdict{Group: q.Group, Name: q.Name}
		answer, ok := got[q.Name]
		switch want := q.want(m); {
		case !ok:
			v.Differs = []string{fmt.Sprintf("no answer; the container ended as %s: %s", res.Status, tail(res.Explanation+" "+res.Stderr))}
		case !ends.Fits(want, answer):
			v.Differs = []string{fmt.Sprintf("the answer is %q, not %q", answer, want)}
		}
		all = append(all, v)
	}
	return all
}

// A comparison collects differences.
type comparison []string

func compare[T comparable](c *comparison, what string, want, got T) {
	if want != got {
		*c = append(*c, fmt.Sprintf("%s is %v, not %v", what, got, want))
	}
}

func (c *comparison) text(what, want, got string) {
	if !ends.Fits(want, got) {
		*c = append(*c, fmt.Sprintf("%s is %q, not %q", what, tail(got), tail(want)))
	}
}

func (c *comparison) texts(what string, want, got []string) {
	if !slices.EqualFunc(want, got, ends.Fits) {
		*c = append(*c, fmt.Sprintf("%s: %q, not %q", what, got, want))
	}
}

// differences lists where a result is not the expected one.
func (w Want) differences(res *result.Result) []string {
	w = w.complete()
	var c comparison
	compare(&c, "status", w.Status, res.Status)
	compare(&c, "fault", w.Fault, res.Fault)
	compare(&c, "exit_code", w.Code, res.ExitCode)
	compare(&c, "signal", w.Signal, res.Signal)
	compare(&c, "timed_out", w.Status == result.StatusTimedOut, res.TimedOut)
	compare(&c, "deadline", w.Deadline, res.Deadline)
	compare(&c, "oom_killed", w.OOM, res.OOMKilled)
	compare(&c, "output_complete", !w.Incomplete, res.OutputComplete)
	compare(&c, "is_error", w.Error != result.ErrorReasonNone, res.IsError)
	compare(&c, "error_reason", w.Error, res.ErrorReason)
	score, traceback := "", ""
	if res.Score != nil {
		score = strconv.FormatFloat(*res.Score, 'g', -1, 64)
		if math.IsNaN(*res.Score) || math.IsInf(*res.Score, 0) {
			c = append(c, "the score is not finite")
		}
	}
	if res.ErrorTraceback != nil {
		traceback = *res.ErrorTraceback
	}
	c.text("score", w.Score, score)
	itself := w.Status == result.StatusExited || w.Status == result.StatusSignaled && w.Fault != result.FaultOperator
	compare(&c, "score_unfinished", w.Score != "" && !itself, res.ScoreUnfinished)
	c.text("error_traceback", w.Traceback, traceback)
	if w.Summary != "" {
		c.text("error_summary", w.Summary, res.ErrorSummary)
	}
	if w.Explanation != "" {
		c.text("explanation", w.Explanation, res.Explanation)
	}
	c.text("stdout", w.Stdout, res.Stdout)
	c.text("stderr", w.Stderr, res.Stderr)
	w.compareBytes(&c, res)
	var outputs, skipped []string
	for _, o := range res.Outputs {
		outputs = append(outputs, fmt.Sprintf("%s %s %d", o.Path, o.Mode, o.SizeBytes))
	}
	for _, s := range res.OutputsSkipped {
		skipped = append(skipped, fmt.Sprintf("%s %s: %s", s.Path, s.Kind, s.Reason))
	}
	c.texts("outputs", w.Outputs, outputs)
	c.texts("outputs_skipped", w.Skipped, skipped)
	if w.Incomplete {
		w.Warnings = append([]string{"output may be incomplete: its end was not seen"}, w.Warnings...)
	}
	c.texts("warnings", w.Warnings, res.Warnings)
	if w.CPU > 0 && res.Resources.CPUSeconds > w.CPU {
		c = append(c, fmt.Sprintf("it used %.2f s of the processors, more than %.2f s", res.Resources.CPUSeconds, w.CPU))
	}
	if res.DurationSeconds > w.Seconds {
		c = append(c, fmt.Sprintf("it took %.1f s, more than %.0f s", res.DurationSeconds, w.Seconds))
	}
	return c
}

// compareBytes compares the counts of the streams. A stream that was not cut has as many bytes
// as its text, unless some were not UTF-8.
func (w Want) compareBytes(c *comparison, res *result.Result) {
	for _, s := range []struct {
		name  string
		want  int64
		got   int64
		text  string
		isCut bool
	}{{"stdout", w.StdoutBytes, res.StdoutBytes, res.Stdout, res.StdoutTruncated}, {"stderr", w.StderrBytes, res.StderrBytes, res.Stderr, res.StderrTruncated}} {
		switch {
		case s.want == Any:
		case s.want == Cut:
			compare(c, s.name+"_truncated", true, s.isCut)
		case s.want > 0:
			compare(c, s.name+"_bytes", s.want, s.got)
			compare(c, s.name+"_truncated", s.want > int64(len(s.text)) && !strings.ContainsRune(s.text, '\uFFFD'), s.isCut)
		default:
			compare(c, s.name+"_bytes", int64(len(s.text)), s.got)
			compare(c, s.name+"_truncated", false, s.isCut)
		}
	}
}

// complete fills what follows from the rest.
func (w Want) complete() Want {
	if w.Status == 0 {
		w.Status = result.StatusExited
	}
	switch w.Status {
	case result.StatusTimedOut:
		w.Code, w.Deadline = -1, cmp.Or(w.Deadline, result.DeadlineHard)
	case result.StatusOutOfMemory:
		w.Code, w.Signal, w.OOM = 137, 9, true
	case result.StatusSignaled:
		w.Code = 128 + w.Signal
	default:
	}
	if w.Fault == 0 {
		w.Fault = result.FaultProgram
		if w.Status == result.StatusExited && w.Code == 0 && w.Error != result.ErrorReasonTraceback {
			w.Fault = result.FaultNone
		}
	}
	if w.Error == "" {
		switch {
		case w.Status == result.StatusTimedOut:
			w.Error = result.ErrorReasonTimedOut
		case w.Code != 0:
			w.Error = result.ErrorReasonExitCode
		case w.Traceback != "":
			w.Error = result.ErrorReasonTraceback
		}
	}
	if w.Seconds == 0 {
		w.Seconds = 60
	}
	return w
}

// tail keeps a text short enough for a message.
func tail(text string) string {
	const most = 600
	if len(text) > most {
		return text[:most/2] + "…" + text[len(text)-most/2:]
	}
	return text
}
