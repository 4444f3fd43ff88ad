// Package render turns values into lines for people: results, records, outcomes of
// contracts, evaluations, gates, calls. It does no I/O.
//
// [Run], [Outcome], [Violations], [Gate], [Replay] and [Call] return lines that are harmless
// for a terminal. The other functions return untrusted text as it is.
package render

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Palette colours text for a terminal; without colours it changes nothing.
type Palette bool

// Good colours text that says that all is well.
func (p Palette) Good(text string) string { return p.paint("32", text) }

// Bad colours a failure.
func (p Palette) Bad(text string) string { return p.paint("31", text) }

// Odd colours text that says neither.
func (p Palette) Odd(text string) string { return p.paint("33", text) }

func (p Palette) paint(code, text string) string {
	if !p {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// harmless makes lines harmless for a terminal. Each stays one line.
func harmless(lines []string) []string {
	shown := make([]string, len(lines))
	for i, line := range lines {
		shown[i] = terminal.Line(line)
	}
	return shown
}

// Run says how a run of a request ended: its warnings, and a last line. final is the
// directory of its outputs; empty if it is gone.
func Run(res *result.Result, asked sandbox.Request, final string, p Palette) []string {
	lines := make([]string, 0, len(res.Warnings)+2)
	for _, warning := range res.Warnings {
		lines = append(lines, "warning: "+terminal.Line(warning))
	}
	if res.Enforced.Transfer == spec.TransferCopy && asked.Transfer != spec.TransferCopy {
		lines = append(lines, "the engine does not see the folders of this machine: files were copied there and back")
	}
	return append(lines, summary(res, final, p))
}

// summary is the last line on a run.
func summary(res *result.Result, final string, p Palette) string {
	parts := []string{status(res, p)}
	if res.Recovered {
		parts = append(parts, "recovered")
	}
	if res.Score != nil {
		parts = append(parts, scoreText(*res.Score, res.ScoreUnfinished))
	}
	parts = append(parts, text.Seconds(res.DurationSeconds))
	if peak := res.Resources.PeakMemoryBytes; peak > 0 {
		parts = append(parts, "peak "+text.Size(peak))
	}
	if n := res.Network; n != nil {
		text := text.Count(int(n.Requests), "request")
		if n.Refused > 0 {
			text += p.Bad(fmt.Sprintf(", %d refused", n.Refused))
		}
		parts = append(parts, text)
	}
	if text := outputsText(res, final); text != "" {
		parts = append(parts, text)
	}
	return strings.Join(append(parts, "id "+res.ID), " · ")
}

// Unfinished comes before a score of a program that did not end by itself.
const Unfinished = "unfinished "

func scoreText(score float64, unfinished bool) string {
	if unfinished {
		return Unfinished + "score " + text.Number(score)
	}
	return "score " + text.Number(score)
}

// status says how a run ended, in a few words.
func status(res *result.Result, p Palette) string {
	limits := res.Enforced
	switch res.Status {
	case result.StatusExited:
		ended := "exited " + strconv.Itoa(res.ExitCode)
		if res.Deadline == result.DeadlineSoft {
			ended += " · asked to finish after " + text.Seconds(limits.SoftTimeoutSeconds)
		}
		switch {
		case res.ExitCode == 0 && res.IsError:
			return p.Bad(ended + " · traceback in stderr")
		case res.ExitCode == 0:
			return p.Good(ended)
		}
		return p.Bad(ended)
	case result.StatusSignaled:
		return p.Bad(signalText(res))
	case result.StatusTimedOut:
		if res.Deadline == result.DeadlineSoft {
			return p.Bad("ended by " + limits.SoftSignal + ", the request to finish after " + text.Seconds(limits.SoftTimeoutSeconds))
		}
		return p.Bad("timed out after " + text.Seconds(limits.TimeoutSeconds))
	case result.StatusOutOfMemory:
		return p.Bad("out of memory (limit " + policy.Size(limits.MemoryBytes).String() + ")")
	case result.StatusDiskLimit:
		return p.Bad(diskText(res))
	case result.StatusOutputLimit:
		return p.Bad("printed too much (limit " + policy.Size(limits.OutputLimitBytes).String() + ")")
	case result.StatusCanceled:
		return p.Odd("canceled")
	case result.StatusStartFailed:
		return p.Bad(startText(res))
	case result.StatusEngineLost:
		return p.Bad("the engine was lost")
	}
	return p.Bad(res.Status.String())
}

// signalText names the signal that ended a program.
func signalText(res *result.Result) string {
	name := cmp.Or(result.SignalName(res.Signal), "signal "+strconv.Itoa(res.Signal))
	if res.Fault == result.FaultOperator {
		return "stopped by somebody else (" + name + ")"
	}
	return fmt.Sprintf("exit code %d (%s)", res.ExitCode, name)
}

// diskText takes the words of the explanation: the limit, or a disk that is full.
func diskText(res *result.Result) string {
	first, _, _ := strings.Cut(res.Explanation, ". ")
	return cmp.Or(strings.TrimSuffix(strings.TrimPrefix(first, "The program was "), "."), "stopped for what ./final holds")
}

// startText says why a program did not start, as far as its exit code shows.
func startText(res *result.Result) string {
	switch res.ExitCode {
	case 126:
		return "did not start: the command cannot be executed"
	case 127:
		return "did not start: the command is not in the image"
	}
	return "did not start"
}

func outputsText(res *result.Result, final string) string {
	shown := ""
	if n := len(res.Outputs); n > 0 {
		shown = text.Count(n, "output")
	}
	if shown != "" && final != "" {
		shown += " in " + terminal.Line(final)
	}
	if n := len(res.OutputsSkipped); n > 0 {
		shown = strings.TrimSpace(fmt.Sprintf("%s (%d left out)", shown, n))
	}
	return shown
}
