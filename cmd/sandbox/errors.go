package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"

	"github.com/evalbox/evalbox/cmd/sandbox/internal/terminal"
)

// A usageError is a command line that does not exist.
type usageError struct {
	text, hint string
}

func (e *usageError) Error() string { return e.text }

func (e *usageError) Hint() string { return e.hint }

// usagef makes a usageError whose hint is the help of the command.
func usagef(command, format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...), fmt.Sprintf("run '%s --help'", command)}
}

// errReaderGone means that nobody reads our output any more, as with `| head`. It
// is the end of the command and no failure.
var errReaderGone = errors.New("the reader of the output is gone")

// readerGone gives a broken pipe its class.
func readerGone(err error) error {
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		return errReaderGone
	}
	return err
}

// report prints an error, one line for each thing that is wrong, and what to try.
func (a *app) report(err error) {
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "sandbox: ")
		if line != "" {
			fmt.Fprintf(a.streams.Err, "sandbox: %s\n", terminal.Text(line))
		}
	}
	for _, hint := range hints(err) {
		fmt.Fprintf(a.streams.Err, "sandbox: hint: %s\n", terminal.Text(hint))
	}
}

// cause is the reason of a path error without its path, for messages that name
// the path already.
func cause(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}
