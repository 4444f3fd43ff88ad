package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/internal/text"
)

// A UsageError is a command line that does not exist.
type UsageError struct{ text, hint string }

func (e *UsageError) Error() string { return e.text }

// Hint implements the interface of errors with hints.
func (e *UsageError) Hint() string { return e.hint }

// Usagef returns a [UsageError] whose hint is the help of a command, named by its path.
func Usagef(command, format string, args ...any) error {
	return &UsageError{fmt.Sprintf(format, args...), fmt.Sprintf("run '%s --help'", command)}
}

// Misuse is [Usagef] with a message that begins with the name of the command.
func Misuse(cmd *cobra.Command, format string, args ...any) error {
	return Usagef(cmd.CommandPath(), Subject(cmd)+": "+format, args...)
}

// UsageHint returns a [UsageError] with a hint of its own.
func UsageHint(hint, format string, args ...any) error {
	return &UsageError{fmt.Sprintf(format, args...), hint}
}

// Subject is the name of a command in a message, which begins with "sandbox: " already.
func Subject(cmd *cobra.Command) string { return strings.TrimPrefix(cmd.CommandPath(), "sandbox ") }

// FlagError is cobra's function for flags that cannot be read.
func FlagError(cmd *cobra.Command, err error) error { return Misuse(cmd, "%s", flagText(err)) }

// flagText is an error of a flag without the words of the library that read it.
func flagText(err error) string {
	var invalid *pflag.InvalidValueError
	var number *strconv.NumError
	if !errors.As(err, &invalid) {
		return err.Error()
	}
	reason := invalid.Unwrap()
	if errors.As(reason, &number) {
		reason = errors.New("must be a whole number")
		if number.Func == "ParseBool" {
			reason = errors.New("must be true or false")
		}
	}
	return fmt.Sprintf("--%s %q: %v", invalid.GetFlag().Name, invalid.GetValue(), reason)
}

// UnknownOrHelp runs a command that only holds others.
func UnknownOrHelp(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return UsageHint("did you mean "+strings.Join(near, " or ")+"?", "%s: unknown command %q", Subject(cmd), args[0])
	}
	return Misuse(cmd, "unknown command %q", args[0])
}

// UsageArgs makes every complaint about the number of arguments, of a command and of those
// below it, a [UsageError].
func UsageArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if err == nil {
				return nil
			}
			if len(args) > 0 && !cmd.HasSubCommands() && strings.HasPrefix(err.Error(), "unknown command") {
				// cobra takes every argument where there can be none for a command.
				err = fmt.Errorf("takes no argument, and %q is one", args[0])
			}
			return Misuse(cmd, "%s", text.OneLine(err.Error()))
		}
	}
	for _, below := range cmd.Commands() {
		UsageArgs(below)
	}
}

type hintedError struct {
	error

	hint string
}

func (e *hintedError) Unwrap() error { return e.error }

func (e *hintedError) Hint() string { return e.hint }

// WithHint returns an error with a hint.
func WithHint(err error, hint string) error { return &hintedError{err, hint} }

// A FileKind is a kind of files that the caller names: its noun, and a hint for a file that
// cannot be used.
type FileKind struct{ Noun, Hint string }

// Error says that a file cannot be used. The hint is that of the cause, if that has one.
func (k FileKind) Error(path string, err error) error { return &fileError{k, path, err} }

type fileError struct {
	kind FileKind
	path string
	err  error
}

func (e *fileError) Error() string {
	reason := e.err
	var pathErr *fs.PathError
	if errors.As(reason, &pathErr) {
		reason = pathErr.Err // the path is named already
	}
	return fmt.Sprintf("%s %s: %v", e.kind.Noun, e.path, reason)
}

func (e *fileError) Unwrap() error { return e.err }

func (e *fileError) Hint() string {
	var knows interface{ Hint() string }
	if errors.As(e.err, &knows) && knows.Hint() != "" {
		return knows.Hint()
	}
	return e.kind.Hint
}

// report prints an error, one line for each problem, and hints.
func (a *App) report(err error) {
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "sandbox: ")
		if line != "" {
			fmt.Fprintf(a.Err, "sandbox: %s\n", terminal.Text(line))
		}
	}
	for _, hint := range a.Hints(err) {
		fmt.Fprintf(a.Err, "sandbox: hint: %s\n", terminal.Text(a.RepeatFlags(hint)))
	}
}
