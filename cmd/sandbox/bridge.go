package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// app gives the commands of the harnesses, which are in this package, what the package cli
// gives the others.
type app struct {
	*cli.App

	streams                              Streams
	outTerminal, errTerminal, inTerminal bool
	environ                              []string
	given                                settings.Flags
	code                                 int
}

// Streams are [cli.Streams].
type Streams = cli.Streams

// bridge makes a command that leaves its exit code in the app of package cli.
func (a *app) bridge(newCommand func(*app) *cobra.Command) *cobra.Command {
	a.streams = a.Streams
	a.outTerminal, a.errTerminal, a.inTerminal = a.OutTerminal, a.ErrTerminal, a.InTerminal
	a.environ, a.given = a.Environ, a.Given
	cmd := newCommand(a)
	a.adopt(cmd)
	return cmd
}

func (a *app) adopt(cmd *cobra.Command) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			err := run(cmd, args)
			a.Code = cmp.Or(a.Code, a.code)
			return err
		}
	}
	for _, below := range cmd.Commands() {
		a.adopt(below)
	}
}

// cli is the app of package cli; tests have none.
func (a *app) cli() *cli.App {
	if a.App == nil {
		a.App = &cli.App{Streams: a.streams,
			OutTerminal: a.outTerminal, ErrTerminal: a.errTerminal, Environ: a.environ, Given: a.given}
	}
	return a.App
}

func (a *app) settings() (settings.Settings, error) { return a.cli().Settings() }

func (a *app) settingFlags(cmd *cobra.Command, _ bool, keys ...string) { a.SettingFlags(cmd, keys...) }

func (a *app) runner(s settings.Settings) (*sandbox.Runner, error) { return s.Runner(a.Logger()) }

func (a *app) logger() *slog.Logger { return a.Logger() }

func (a *app) printJSON(v any) error { return a.cli().PrintJSON(v) }

func (a *app) printWire(v interface{ Encode() ([]byte, error) }) error { return a.cli().PrintJSON(v) }

func (a *app) isQuiet(s settings.Settings) bool { return a.cli().IsQuiet(s) }

func (a *app) present(value any, quiet bool, s settings.Settings, text func() []string) error {
	return a.cli().Present(value, quiet, s, text)
}

func (a *app) printLines(lines []string) error { return a.cli().PrintLines(lines) }

func (a *app) readStream(name string) ([]byte, error) { return a.cli().ReadStream(name) }

func (a *app) print(format string, args ...any) error { return a.cli().Print(format, args...) }

func (a *app) printTable(header []string, rows [][]string) error {
	return a.cli().PrintTable(header, rows)
}

func (a *app) say(text string) { a.cli().Say("%s", text) }

func (a *app) warn(text string) { a.cli().Warn("%s", text) }

func (a *app) palette() render.Palette { return a.cli().Palette() }

func (a *app) repeatFlags(hint string) string { return a.cli().RepeatFlags(hint) }

func (a *app) ended() {
	if a.Ended != nil {
		a.Ended()
	}
}

// watchedRunner is a runner that counts its runs, which heed Kill.
type watchedRunner struct {
	*sandbox.Runner

	runs *cli.Runs
}

func (a *app) watched(runner *sandbox.Runner) watchedRunner {
	return watchedRunner{runner, a.streams.Runs}
}

func (w watchedRunner) Run(ctx context.Context, req sandbox.Request, opts ...sandbox.RunOption) (*result.Result, error) {
	defer w.runs.Begin()()
	return w.Runner.Run(ctx, req, opts...)
}

type live struct {
	*cli.Live

	err io.Writer
}

func (a *app) connect(streams *sandbox.IO, s settings.Settings) *live {
	l := a.cli().Connect(streams, s)
	return &live{l, l.Err}
}

func (l *live) announceEnd(ctx context.Context) (end func()) { return l.AnnounceEnd(ctx) }

func (l *live) finish() error { return l.Finish() }

// watch connects a run with the caller: its waits and its end are announced unless it is
// quiet. The function it returns is called when the run has ended.
func (l *live) watch(ctx context.Context, a *app, hooks *sandbox.Hooks, s settings.Settings) (ended func()) {
	waiting, announced := a.tellWaiting(s), func() {}
	hooks.Kill, hooks.Waiting = a.streams.Kill, waiting.say
	hooks.Started = func() {
		waiting.end()
		if !a.isQuiet(s) {
			announced = l.announceEnd(ctx)
		}
	}
	return func() {
		waiting.end()
		announced()
	}
}

type waiting struct{ *cli.Waiting }

func (a *app) tellWaiting(s settings.Settings) *waiting { return &waiting{a.cli().Waiting(s)} }

func (w *waiting) say(why string) { w.Say(why) }

func (w *waiting) end() { w.End() }

// usagef is wrong usage of a command.
func usagef(command, format string, args ...any) error { return cli.Usagef(command, format, args...) }

type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string { return e.err.Error() }

func (e *hintedError) Unwrap() error { return e.err }

func (e *hintedError) Hint() string { return e.hint }

type fileError struct {
	what, path string
	err        error
}

func (e *fileError) file() error {
	return cli.FileKind{Noun: e.what, Hint: fileHints[e.what]}.Error(e.path, e.err)
}

func (e *fileError) Error() string { return e.file().Error() }

func (e *fileError) Unwrap() error { return e.err }

func (e *fileError) Hint() string {
	hinted, _ := e.file().(interface{ Hint() string })
	return hinted.Hint()
}

var errReaderGone = cli.ErrReaderGone

var requestKeys = cli.RequestKeys

func readerGone(err error) error { return cli.ReaderGone(err) }

func exitCode(res *result.Result, err error) int { return cli.ExitCode(cli.OfRun(res), err) }

func resultCode(res *result.Result) int { return cli.ExitCode(cli.OfRun(res), nil) }

func programCode(code int) int {
	if code < 0 || code > 255 {
		return exitSandbox
	}
	return code
}

func joined(err error) []error { return cli.Joined(err) }

func hints(err error) []string { return new(cli.App).Hints(err) }

func interrupted(ctx context.Context, err error) error { return cli.Interrupted(ctx, err) }

func interruptibly[T any](ctx context.Context, read func() (T, error)) (T, error) {
	return cli.Interruptibly(ctx, read)
}

func shellWord(text string) string { return cli.ShellWord(text) }

func subject(cmd *cobra.Command) string { return cli.Subject(cmd) }

func unknownOrHelp(cmd *cobra.Command, args []string) error { return cli.UnknownOrHelp(cmd, args) }

func groupedUsage(cmd *cobra.Command) error { return cli.GroupedUsage(cmd) }

func lookup(environ []string, name string) string {
	return (&cli.App{Environ: environ}).Getenv(name)
}

func environment(pairs, files, environ []string, command string) (map[string]string, error) {
	f := cli.EnvFlags{Pairs: pairs, Files: files}
	return f.Read(&cli.App{Environ: environ, Command: command})
}

// durationFlag reads durations as settings do.
type durationFlag struct{ target *time.Duration }

func (f *durationFlag) String() string {
	if f.target == nil || *f.target == 0 {
		return "" // the zero value is not shown
	}
	return f.target.String()
}

func (f *durationFlag) Set(text string) error {
	d, err := settings.ReadDuration(text)
	if err == nil && d < 0 {
		err = errors.New("must not be negative")
	}
	*f.target = d
	return err
}

func (f *durationFlag) Type() string { return "duration" }

// The exit codes.
const (
	exitProblem       = cli.ExitProblem
	exitUsage         = cli.ExitUsage
	exitNeedInfo      = cli.ExitNeedInfo
	exitTimeLimit     = cli.ExitTimeLimit
	exitSandbox       = cli.ExitSandbox
	exitNotExecutable = cli.ExitNotExecutable
	exitNotFound      = cli.ExitNotFound
	exitInterrupted   = cli.ExitInterrupted
	exitKilled        = cli.ExitKilled
)

// The kinds of files.
const (
	fileStream = "file"
	fileOutput = "output"
	fileScript = "script"

	fileArtifacts = "profile of artifacts"
	fileWish      = "wish"
	fileTools     = "registry of tools"
	fileKey       = "key"
	filePublicKey = "public key"
)

var fileHints = map[string]string{
	fileOutput: "make room there, or choose another place for the output",
	fileScript: "give the path of a Python script",
	fileStream: "give the path of a file, or - for stdin",

	fileArtifacts: "give a YAML file that begins with schema: evalbox/artifacts/v1",
	fileWish:      "give a wish or its lock; or a command: sandbox gate run -- pytest -q",
	fileTools:     "give a YAML file that begins with schema: evalbox/tools/v1; see docs/contract.md",
	fileKey:       "make one with: openssl genpkey -algorithm ed25519 -out gate.key",
	filePublicKey: "get it with: openssl pkey -in gate.key -pubout -out gate.pub",
}
