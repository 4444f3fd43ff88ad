// Package render says in lines for people what a value holds: a result, a record, an outcome
// of a contract, an evaluation, a gate, a call. It does no I/O.
//
// [Run], [Outcome], [Violations], [Gate], [Replay] and [Call] return lines that are harmless
// for a terminal. The other functions return untrusted text as it is.
package render

import "github.com/evalbox/evalbox/internal/terminal"

// Palette colours text for a terminal; without colours it changes nothing.
type Palette bool

// Good colours text that says that all is well.
func (p Palette) Good(text string) string { return p.paint("32", text) }

// Bad colours a failure.
func (p Palette) Bad(text string) string { return p.paint("31", text) }

// Odd colours what is neither.
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
