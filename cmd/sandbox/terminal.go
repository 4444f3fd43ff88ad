package main

import (
	"os"

	"golang.org/x/term"
)

// isTerminal says whether a stream is an operator's terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// palette colours text for a terminal; without colours it changes nothing.
type palette bool

// palette is that of the stream for errors and summaries.
func (a *app) palette() palette {
	return palette(a.errTerminal && lookup(a.environ, "NO_COLOR") == "" && lookup(a.environ, "TERM") != "dumb")
}

func (p palette) paint(code, text string) string {
	if !p {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p palette) good(text string) string { return p.paint("32", text) }
func (p palette) bad(text string) string  { return p.paint("31", text) }
func (p palette) odd(text string) string  { return p.paint("33", text) }
