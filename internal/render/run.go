// Package render turns values into lines for people: results, records, outcomes of
// contracts, evaluations, gates, calls. It does no I/O.
//
// [Run], [Outcome], [Violations], [Gate], [Replay] and [Call] return lines that are harmless
// for a terminal. The other functions return untrusted text as it is.
package render

import (
	"github.com/evalbox/evalbox/internal/terminal"
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
		lines = append(lines, "the engine does not see the directories of this machine: files were copied there and back")
	}
	return append(lines, res.Summary(terminal.Line(final), p.of(res)))
}

// of colours the parts of the summary of a run.
func (p Palette) of(res *result.Result) func(text string, well bool) string {
	return func(text string, well bool) string {
		switch {
		case well:
			return p.Good(text)
		case res.Status == result.StatusCanceled:
			return p.Odd(text)
		}
		return p.Bad(text)
	}
}

// Unfinished comes before a score of a program that did not end by itself.
const Unfinished = "unfinished "
