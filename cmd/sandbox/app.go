package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/record"
)

// app is the state that the commands share: one command line of one process.
type app struct {
	streams                  Streams
	outTerminal, errTerminal bool
	inTerminal               bool
	environ                  []string

	// configFile is the flag --config, given the flags that are settings.
	configFile string
	given      settings.Flags
	verbose    bool

	// command is the path of the command that runs, such as "sandbox run".
	command string

	// code is the exit code of a command that did its work.
	code int
}

// settings reads and decides all settings.
func (a *app) settings() (settings.Settings, error) {
	s, err := settings.Load(a.configFile, a.given)
	return s, flagProblems(a.command, err)
}

// settingFlags gives a command, or it and all below it, the flags of settings.
func (a *app) settingFlags(cmd *cobra.Command, persistent bool, names ...string) {
	if a.given == nil {
		a.given = settings.Flags{}
	}
	if persistent {
		a.given.Add(cmd.PersistentFlags(), names...)
		return
	}
	a.given.Add(cmd.Flags(), names...)
}

// flagProblems makes a usageError of a flag of a command that cannot be read. A value
// that could be read but is refused is refused the same way from everywhere.
func flagProblems(command string, err error) error {
	for _, e := range parts(err) {
		var bad *settings.Error
		if errors.As(e, &bad) && bad.Usage {
			return usagef(command, "%s", e.Error())
		}
	}
	return err
}

// openStore is the settings and the records that they name.
func (a *app) openStore() (settings.Settings, *record.Store, error) {
	s, err := a.settings()
	if err != nil {
		return settings.Settings{}, nil, err
	}
	store, err := s.Store()
	return s, store, err
}

// openRecord is the settings, the records, and one of them.
func (a *app) openRecord(id string) (settings.Settings, *record.Store, record.Record, error) {
	s, store, err := a.openStore()
	if err != nil {
		return settings.Settings{}, nil, record.Record{}, err
	}
	record, err := store.Get(id)
	return s, store, record, err
}

// openRunner is the settings and a runner made of them, which the caller closes.
func (a *app) openRunner() (settings.Settings, *sandbox.Runner, error) {
	s, err := a.settings()
	if err != nil {
		return settings.Settings{}, nil, err
	}
	runner, err := a.runner(s)
	return s, runner, err
}

// runner makes the runner that the settings describe. The caller closes it.
func (a *app) runner(s settings.Settings) (*sandbox.Runner, error) {
	return s.Runner(a.logger())
}

// logger logs to stderr if the command was asked to be verbose, and nothing otherwise.
func (a *app) logger() *slog.Logger {
	if !a.verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(a.streams.Err, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// printJSON prints a value for programs.
func (a *app) printJSON(v any) error {
	encoder := json.NewEncoder(a.streams.Out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return readerGone(encoder.Encode(v))
}

// printWire prints a value that has a wire form of its own, and a record.
func (a *app) printWire(v interface{ Encode() ([]byte, error) }) error {
	text, err := v.Encode()
	if err != nil {
		return err
	}
	_, err = a.streams.Out.Write(text)
	return resultLost(readerGone(err))
}

// isQuiet means that nothing but JSON is wanted, or nothing at all.
func (a *app) isQuiet(s settings.Settings) bool { return s.Quiet || s.JSON && !a.errTerminal }

// present shows a value that took its time to get: to people as lines on stderr unless it
// is quiet, and to programs as JSON. A terminal that takes nothing any more is left alone.
func (a *app) present(value any, quiet bool, s settings.Settings, text func() []string) error {
	if !quiet {
		err := patiently(func() error { return a.printLines(text()) })
		if errors.Is(err, errStuck) {
			return errReaderGone
		}
		if err != nil {
			return err
		}
	}
	if !s.JSON {
		return nil
	}
	var err error
	if wire, ok := value.(interface{ Encode() ([]byte, error) }); ok {
		err = a.printWire(wire)
	} else {
		err = a.printJSON(value)
	}
	if err != nil && !errors.Is(err, errReaderGone) {
		a.code = exitSandbox // the caller asked for the value and did not get it
	}
	return err
}

// printLines prints harmless lines on stderr.
func (a *app) printLines(lines []string) error {
	for _, line := range lines {
		if _, err := fmt.Fprintf(a.streams.Err, "sandbox: %s\n", line); err != nil {
			return readerGone(err)
		}
	}
	return nil
}

// print prints text for people. It makes the text harmless, because untrusted text may be
// part of it.
func (a *app) print(format string, args ...any) error {
	_, err := fmt.Fprint(a.streams.Out, terminal.Text(fmt.Sprintf(format, args...)))
	return readerGone(err)
}

// printTable prints rows in columns. A cell is one line.
func (a *app) printTable(header []string, rows [][]string) error {
	table := tabwriter.NewWriter(a.streams.Out, 0, 8, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		for i, cell := range row {
			if i > 0 {
				fmt.Fprint(table, "\t") // errors come back from Flush
			}
			fmt.Fprint(table, terminal.Line(cell))
		}
		fmt.Fprintln(table)
	}
	return readerGone(table.Flush())
}

// isTerminal says whether a stream is an operator's terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// palette is that of the stream for errors and summaries.
func (a *app) palette() render.Palette {
	return render.Palette(a.errTerminal && lookup(a.environ, "NO_COLOR") == "" && lookup(a.environ, "TERM") != "dumb")
}
