package main

import (
	"errors"
	"io"

	"github.com/evalbox/evalbox/cmd/sandbox/internal/terminal"
	"github.com/evalbox/evalbox/sandbox"
)

// live shows the output of a program while it runs.
type live struct {
	cursor terminal.Cursor
	flush  []*terminal.Writer
	err    io.Writer
}

// connect makes the program's streams ours, unless only the result is asked for.
// A pipe or a file gets the very bytes; a terminal gets them made harmless.
func (a *app) connect(req *sandbox.Request, s settings) *live {
	l := &live{err: a.streams.Err}
	if s.Quiet || s.JSON {
		return l
	}
	req.Stdout = l.show(a.streams.Out, a.outTerminal, s.Raw)
	req.Stderr = l.show(a.streams.Err, a.errTerminal, s.Raw)
	return l
}

func (l *live) show(out io.Writer, isTerminal, raw bool) io.Writer {
	if !isTerminal {
		return out
	}
	out = l.cursor.Follow(out)
	if raw {
		return out
	}
	harmless := terminal.NewWriter(out)
	l.flush = append(l.flush, harmless)
	return harmless
}

// finish shows what is left and ends an unfinished line, so that what we say
// begins on its own.
func (l *live) finish() error {
	var errs []error
	for _, w := range l.flush {
		errs = append(errs, w.Flush())
	}
	if l.cursor.MidLine() {
		_, err := io.WriteString(l.err, "\n")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
