package main

import (
	"os"

	"golang.org/x/term"

	"github.com/evalbox/evalbox/internal/render"
)

// isTerminal says whether a stream is an operator's terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// palette is that of the stream for errors and summaries.
func (a *app) palette() render.Palette {
	return render.Palette(a.errTerminal && lookup(a.environ, "NO_COLOR") == "" && lookup(a.environ, "TERM") != "dumb")
}
