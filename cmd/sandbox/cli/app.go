// Package cli is what the commands of sandbox share: the streams, the settings, output for
// people and for programs, usage errors and hints, exit codes, signals, and the way of every
// command that runs programs, from its settings to its exit code.
package cli

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/kubernetes"
)

// Streams connect a command to its caller.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Kill is closed when the caller, having ended the context, does not want
	// to wait for the program's grace period either. It may be nil.
	Kill <-chan struct{}
	// Ended is called when a run has ended and only its output is left: an
	// interruption may then end the process. It may be nil.
	Ended func()
	// Runs counts the runs that heed Kill. It may be nil.
	Runs *Runs
}

// An App is one command line of one process. The commands get their streams and their
// settings from it, and leave their exit code in it.
type App struct {
	Streams

	InTerminal, OutTerminal, ErrTerminal bool
	// Environ is the environment of the process, as NAME=VALUE.
	Environ []string
	// ConfigFile is the flag --config, Given the flags that are settings.
	ConfigFile string
	Given      settings.Flags
	Verbose    bool
	// Command is the path of the command that runs, such as "sandbox run".
	Command string
	// FieldHints are the hints of the command for fields that break a rule.
	FieldHints map[string]string
	// JSONLines says that stdout has a line of JSON for each part of the answer.
	JSONLines bool
	// Events are those of the run.
	Events Events
	// Code is the exit code of a command that did its work.
	Code int
	// printed says that the command has printed a document.
	printed bool
}

// New returns an App with the environment of this process.
func New(streams Streams) *App {
	return &App{
		Streams: streams, Environ: os.Environ(), Given: settings.Flags{},
		InTerminal: isTerminal(streams.In), OutTerminal: isTerminal(streams.Out), ErrTerminal: isTerminal(streams.Err),
	}
}

// isTerminal reports whether a stream is an operator's terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// OutWidth is the width of the terminal that stdout is, in columns; 0 if it is none.
func (a *App) OutWidth() int {
	file, ok := a.Out.(*os.File)
	if !ok || !a.OutTerminal {
		return 0
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// Screen is the terminal that the streams share, if any of them is one.
func (a *App) Screen() *terminal.Screen {
	return terminal.NewScreen(func() int {
		for _, stream := range []any{a.Err, a.Out} {
			if file, ok := stream.(*os.File); ok {
				if columns, _, err := term.GetSize(int(file.Fd())); err == nil {
					return columns
				}
			}
		}
		return 0
	})
}

// Execute runs one command line, reports its error, and returns the exit code.
func (a *App) Execute(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(relativeArgs(root, args))
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	err := root.ExecuteContext(ctx)
	if err == nil || errors.Is(err, ErrReaderGone) {
		return a.Code
	}
	if a.Code == 0 {
		a.Code = ExitCode(nil, err)
	}
	err = Interrupted(ctx, err)
	switch {
	case a.Events.On:
		a.failed(err)
	case a.wantsJSON(err, args):
		a.reportJSON(err)
	}
	a.report(err)
	return a.Code
}

// Getenv returns the value of an environment variable; empty for none.
func (a *App) Getenv(name string) string {
	for _, pair := range a.Environ {
		if text, ok := strings.CutPrefix(pair, name+"="); ok {
			return text
		}
	}
	return ""
}

// Settings reads and decides all settings. A flag that cannot be read is wrong usage. A value
// that can be read but is refused is refused in the same way from everywhere.
func (a *App) Settings() (settings.Settings, error) {
	s, err := settings.Load(a.ConfigFile, a.Given)
	for _, e := range parts(err) {
		var bad *settings.Error
		if errors.As(e, &bad) && bad.Usage {
			return s, Usagef(a.Command, "%s", e.Error())
		}
	}
	return s, err
}

// With makes the function of a command that begins with the settings.
func (a *App) With(do func(ctx context.Context, s settings.Settings, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, err := a.Settings()
		if err != nil {
			return err
		}
		return do(cmd.Context(), s, args)
	}
}

// OpenEngine opens the engine that the settings choose, of any kind. The caller closes it.
func (a *App) OpenEngine(s settings.Settings) (engine.Engine, error) {
	return s.OpenEngine(a.Logger(), kubernetes.Connect)
}

// OpenRunner makes the runner that the settings describe, with further options. The caller closes it.
func (a *App) OpenRunner(s settings.Settings, more ...sandbox.Option) (*sandbox.Runner, error) {
	return s.Runner(a.Logger(), append([]sandbox.Option{sandbox.WithKubernetes(kubernetes.Connect)}, more...)...)
}

// WithRunner is [App.With] for a command that asks the engine. It opens a runner and closes it.
func (a *App) WithRunner(do func(ctx context.Context, s settings.Settings, runner *sandbox.Runner, args []string) error) func(*cobra.Command, []string) error {
	return a.With(func(ctx context.Context, s settings.Settings, args []string) error {
		runner, err := a.OpenRunner(s)
		if err != nil {
			return err
		}
		defer runner.Close()
		return do(ctx, s, runner, args)
	})
}

// SettingFlags adds the flags of settings to a command.
func (a *App) SettingFlags(cmd *cobra.Command, keys ...string) { a.Given.Add(cmd.Flags(), keys...) }

// Logger logs to stderr with --verbose, and nothing otherwise.
func (a *App) Logger() *slog.Logger {
	if !a.Verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(a.Err, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// maxStream bounds a stream that is read whole, in bytes, far above the limit of a run.
const maxStream = 512 << 20

var streamFile = FileKind{"file", "give the path of a file, or - for stdin"}

// ReadStream reads a file, or stdin if its name is "-".
func (a *App) ReadStream(name string) ([]byte, error) {
	source := a.In
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, streamFile.Error(name, err)
		}
		defer file.Close()
		source = file
	}
	data, err := io.ReadAll(io.LimitReader(source, maxStream+1))
	if err == nil && len(data) > maxStream {
		err = errors.New("has more than 512 MiB")
	}
	if err != nil {
		return nil, streamFile.Error(name, err)
	}
	return data, nil
}
