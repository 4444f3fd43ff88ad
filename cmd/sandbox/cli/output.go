package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/terminal"
)

// ErrReaderGone means that the reader of the output has gone away, as with `| head`. It
// ends the command and is not a failure.
var ErrReaderGone = errors.New("the reader of the output is gone")

var output = FileKind{"output", "make room there, or choose another place for the output"}

// ReaderGone classifies an error of an output: a broken pipe becomes [ErrReaderGone], and an
// output that cannot be written to is named.
func ReaderGone(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) && pathErr.Op == "write" && !errors.Is(err, syscall.EPIPE) {
		return output.Error(pathErr.Path, err)
	}
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		return ErrReaderGone
	}
	return err
}

// OutputError is an output file that cannot be written.
func OutputError(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return WithHint(output.Error(path, err), "make its directory, or choose another place for the output")
	}
	return output.Error(path, err)
}

// encoder is implemented by values with a wire form of their own. They are in a record too.
type encoder interface{ Encode() ([]byte, error) }

// PrintJSON prints a value for programs.
func (a *App) PrintJSON(v any) error {
	a.printed = true
	if wire, ok := v.(encoder); ok {
		text, err := wire.Encode()
		if err != nil {
			return err
		}
		_, err = a.Out.Write(text)
		return resultLost(ReaderGone(err))
	}
	encoder := json.NewEncoder(a.Out)
	if !a.JSONLines {
		encoder.SetIndent("", "  ")
	}
	encoder.SetEscapeHTML(false)
	return ReaderGone(encoder.Encode(v))
}

// resultLost gives the loss of a result that is in the record a hint.
func resultLost(err error) error {
	if err == nil || errors.Is(err, ErrReaderGone) {
		return err
	}
	return WithHint(err, "the result is in the record: sandbox ls, and sandbox show ID")
}

// Show prints a value as JSON if the settings ask for that, and otherwise calls text, which
// prints it for people.
func (a *App) Show(s settings.Settings, value any, text func() error) error {
	if s.JSON {
		return a.PrintJSON(value)
	}
	return text()
}

// ShowTable prints a value as JSON if the settings ask for that, and otherwise as a table.
func (a *App) ShowTable(s settings.Settings, value any, header []string, rows [][]string) error {
	return a.Show(s, value, func() error { return a.PrintTable(header, rows) })
}

// IsQuiet reports whether people get no lines about a run: only JSON is wanted, or nothing.
func (a *App) IsQuiet(s settings.Settings) bool { return s.Quiet || s.JSON && !a.ErrTerminal }

// Present shows the result of a run: to people as lines on stderr unless it is quiet, and to
// programs as JSON. A terminal that takes no output does not hold it up for ever.
func (a *App) Present(value any, quiet bool, s settings.Settings, text func() []string) error {
	if !quiet {
		err := patiently(func() error { return a.PrintLines(text()) })
		if errors.Is(err, errStuck) {
			return ErrReaderGone
		}
		if err != nil {
			return err
		}
	}
	if !s.JSON {
		return nil
	}
	var err error
	if a.Events.On {
		err = a.Events.ended(a.Code, value)
	} else {
		err = a.PrintJSON(value)
	}
	if err != nil && !errors.Is(err, ErrReaderGone) {
		a.Code = ExitSandbox // the caller asked for the value and did not get it
	}
	return err
}

// PrintLines prints harmless lines on stderr.
func (a *App) PrintLines(lines []string) error {
	for _, line := range lines {
		if _, err := fmt.Fprintf(a.Err, "sandbox: %s\n", line); err != nil {
			return ReaderGone(err)
		}
	}
	return nil
}

// Print prints text for people on stdout. Untrusted text in it cannot drive a terminal.
func (a *App) Print(format string, args ...any) error {
	_, err := fmt.Fprint(a.Out, terminal.Text(fmt.Sprintf(format, args...)))
	return ReaderGone(err)
}

// PrintAll prints lines for people on stdout, as [App.Print] does.
func (a *App) PrintAll(lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	return a.Print("%s\n", strings.Join(lines, "\n"))
}

// PrintTable prints rows in columns. A cell is one line. At a terminal no row is wider than that.
// Without rows it prints nothing.
func (a *App) PrintTable(header []string, rows [][]string) error {
	return a.printTable(header, rows, a.OutWidth())
}

// PrintWideTable is PrintTable that cuts nothing.
func (a *App) PrintWideTable(header []string, rows [][]string) error {
	return a.printTable(header, rows, 0)
}

func (a *App) printTable(header []string, rows [][]string, width int) error {
	if len(rows) == 0 {
		return nil
	}
	lines := [][]string{header}
	for _, row := range rows {
		line := make([]string, len(row))
		for i, cell := range row {
			line[i] = terminal.Line(cell)
		}
		lines = append(lines, line)
	}
	table := tabwriter.NewWriter(a.Out, 0, 8, 2, ' ', 0)
	for _, line := range render.Fit(lines, width) {
		fmt.Fprintln(table, strings.Join(line, "\t")) // errors come back from Flush
	}
	return ReaderGone(table.Flush())
}

// PrintTables prints tables with an empty line between them.
func (a *App) PrintTables(tables ...render.Table) error {
	for i, t := range tables {
		var err error
		if i > 0 {
			err = a.Print("\n")
		}
		if err == nil && t.Header != nil {
			err = a.PrintTable(t.Header, t.Rows)
		}
		if err == nil && t.Header != nil && t.Lines != nil {
			err = a.Print("\n")
		}
		if err = errors.Join(err, a.PrintAll(t.Lines)); err != nil {
			return err
		}
	}
	return nil
}

// Say prints one line on stderr. Errors of stderr are ignored.
func (a *App) Say(format string, args ...any) {
	fmt.Fprintf(a.Err, "sandbox: %s\n", terminal.Line(fmt.Sprintf(format, args...)))
}

// Warn prints a warning on stderr. Errors of stderr are ignored.
func (a *App) Warn(format string, args ...any) { a.Say("warning: "+format, args...) }

// Palette has colours if stderr is a terminal that shows them.
func (a *App) Palette() render.Palette {
	return render.Palette(a.ErrTerminal && a.Getenv("NO_COLOR") == "" && a.Getenv("TERM") != "dumb")
}

// SchemaCommand completes a command that prints a JSON Schema, or another one with a flag.
func (a *App) SchemaCommand(cmd *cobra.Command, schema []byte, flag, help string, other []byte) *cobra.Command {
	chosen := cmd.Flags().Bool(flag, false, help)
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(*cobra.Command, []string) error {
		if *chosen {
			schema = other
		}
		_, err := a.Out.Write(schema)
		return ReaderGone(err)
	}
	return cmd
}
