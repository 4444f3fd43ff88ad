package runs

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// runFlags are the flags of `run` that are not settings: they concern one run.
type runFlags struct {
	env                       cli.EnvFlags
	labels                    cli.LabelFlags
	ulimits                   []string
	egress                    cli.EgressFlags
	mounts                    cli.MountFlags
	aliases                   cli.AliasFlags
	id, name, input, final    string
	interactive, keep, dryRun bool
	detach, noSummary         bool
	// dash is the number of arguments before "--", -1 without one.
	dash int
	// known reports whether a word is a flag of the command.
	known func(word string) bool
}

// NewRun returns the command `run`.
func NewRun(a *cli.App) *cobra.Command { return newRunWith(a, new(runFlags)) }

// newRunWith returns the command whose flags fill f.
func newRunWith(a *cli.App, f *runFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [flags] SCRIPT [ARG...]\n  sandbox run [flags] -- COMMAND [ARG...]",
		Short: "Run a script or a command in a fresh container",
		Long: `Run a script, or any command of the image, in a fresh container.

A script is a file that ends in .py, or a file that begins with #! and the name of an
interpreter in the image; - reads a Python script from stdin. Arguments after the script
are the script's.

The program works in a directory that vanishes. It finds the directory of --input,
read-only, in ./input, and the files it leaves in ./final come to the directory of --final
at its end. Until then nothing in that directory changes. Files of an earlier run are then
deleted there, anything else is moved aside, into a directory FINAL.before-ID beside it.
Only the script itself is copied: add a module or a data file with --mount
helper.py:helper.py. A program that expects its files elsewhere finds them there with
--alias.

The exit code is the program's, except: 124 time limit, 125 the sandbox failed or
refused, 126 and 127 the command cannot be executed or does not exist, 130
interrupted, 137 out of memory, 1 disk or output limit (though the program then
exited with 0), 2 wrong usage.

Ctrl-C asks the program to end and keeps its outputs. A second Ctrl-C, at least a second
later, ends it at once.`,
		Example: `  sandbox run train.py --epochs 3
  sandbox run --input data --final out --memory 8g --timeout 2h train.py
  sandbox run --input data --alias /kaggle/input=input --alias submission.csv=final/submission.csv solve.py
  sandbox run --json -- python3 -c 'print(1)' > result.json
  sandbox run -e SEED=7 --gpus all train.py
  sandbox run -d train.py                         in the background
  sandbox run --dry-run train.py                  show the plan, run nothing`,
		Args: cobra.ArbitraryArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			f.dash = cmd.ArgsLenAtDash()
			f.known = func(word string) bool { return cmd.Flags().Lookup(word) != nil }
			return cli.Check(cmd, cli.NotEmpty(cli.Directory, "input", "final"), cli.Apart("json", "json-lines"), cli.Apart("dry-run", "json-lines"),
				cli.Apart("detach", "interactive"), cli.Apart("detach", "dry-run"), cli.Apart("detach", "json-lines"))
		},
		RunE: a.With(func(ctx context.Context, s settings.Settings, args []string) error { return run(ctx, a, s, *f, args) }),
	}
	flags := cmd.Flags()
	// Arguments after the script belong to the script.
	flags.SetInterspersed(false)
	flags.StringVar(&f.input, "input", "", "`directory` that the program finds, read-only, as ./input; in a cluster also pvc://NAME/PATH")
	flags.StringVar(&f.final, "final", "", "`directory` for what the program leaves in ./final; what no run left there is moved aside")
	f.mounts.Register(flags)
	f.aliases.Register(flags)
	f.env.Register(flags)
	flags.BoolVarP(&f.interactive, "interactive", "i", false, "pass stdin on to the program")
	a.SettingFlags(cmd, cli.RequestKeys...)
	f.egress.Register(flags)
	flags.Var(cli.List(&f.ulimits, "NAME=SOFT[:HARD]", cli.One), "ulimit", "further limit of each process")
	flags.StringVar(&f.name, "name", "", "`name` of the run, for people")
	flags.StringVar(&f.id, "id", "", "unique `ID` of the run (default: made of the time)")
	f.labels.Register(flags)
	a.SettingFlags(cmd, "json", "quiet", "raw")
	flags.BoolVar(&a.Events.On, "json-lines", false, "print events as JSON lines on stdout, and nothing else there: see docs/events.md")
	flags.BoolVar(&f.noSummary, "no-summary", false, "leave out the last line about the run, and hints; warnings stay")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print the plan as JSON and run nothing")
	flags.BoolVarP(&f.detach, "detach", "d", false, "run in the background: print the ID once the program runs; then see 'sandbox logs', wait and stop")
	flags.BoolVar(&f.keep, "keep", false, "leave the container behind for inspection")
	cmd.SetUsageFunc(cli.GroupedUsage)
	return cmd
}

func run(ctx context.Context, a *cli.App, s settings.Settings, f runFlags, args []string) error {
	a.FieldHints = map[string]string{
		"final": "name a directory of its own with --final; without it the outputs stay in the run's record",
	}
	s.JSON = s.JSON || a.Events.On
	req, clean, err := f.request(a, s, args)
	defer clean()
	if err != nil {
		return err
	}
	view := cli.Piped
	if f.detach {
		if !isDetached(a) {
			return detach(ctx, a, s)
		}
		view = cli.Hidden
	}
	if word := f.misplaced(req); word != "" && !a.IsQuiet(s) {
		a.Say("hint: %s after the script is an argument of the script; flags of run come before it", word)
	}
	if near := nearScript(req.Script); near != "" {
		a.FieldHints["script"] = "did you mean " + near + "?"
	}
	x, err := a.Begin(ctx, s, view)
	if err != nil {
		return err
	}
	defer x.Close()
	if f.detach {
		announce(a, &x.Hooks)
	}
	if f.dryRun {
		spec, err := x.Box.Plan(ctx, req)
		if err != nil {
			return err
		}
		return a.PrintJSON(spec)
	}
	if f.interactive {
		x.IO.Stdin, req.Stdin = a.In, true
	}
	if a.Events.On {
		x.Follow(f.id)
	}
	res, runErr := x.Box.Run(ctx, req, x.IO, x.Hooks)
	shown := x.Ended()
	a.Code = cli.ExitCode(cli.OfRun(res), runErr)
	if res == nil {
		return runErr
	}
	if s.PoolSize > 0 && res.Pool == nil { // nobody kept one when it started
		defer ensurePool(ctx, a, x.Runner)
	}
	final := finalOf(x.Box.Store(), req.Final, res.ID)
	a.Events.Summary, a.Events.Final = res.Summary(terminal.Line(final), nil), absolute(final)
	return x.Finish(a.Code, res, runErr, func() []string {
		lines := render.Run(res, req, final, a.Palette())
		if f.noSummary {
			lines = lines[:len(lines)-1]
		} else {
			lines = append(lines, hints(res, req, look(s, req, res.Image.Name))...)
		}
		isLive := func(warning string) bool { return strings.HasPrefix(warning, liveWarning) }
		if shown != nil && !slices.ContainsFunc(res.Warnings, isLive) {
			lines = slices.Insert(lines, 0, "warning: "+liveWarning+terminal.Line(shown.Error()))
		}
		return lines
	})
}

// absolute is an absolute path; empty if there is none.
func absolute(path string) string {
	if whole, err := filepath.Abs(path); path != "" && err == nil {
		return whole
	}
	return ""
}

// ensurePool starts a process that keeps a pool, if there is none.
func ensurePool(ctx context.Context, a *cli.App, box *sandbox.Runner) {
	if _, err := sandbox.Keeper(box.Store()); !errors.Is(err, sandbox.ErrNoKeeper) {
		return
	}
	err := box.CanKeepPool(ctx)
	if err == nil {
		err = a.StartPool(ctx, box.Store(), false)
	}
	if err != nil {
		a.Warn("no pool could be started: %v", err)
	}
}

// liveWarning begins the warning of a result whose live output failed.
const liveWarning = "live output: "

// request turns a command line into a request. The caller calls clean after the run.
func (f *runFlags) request(a *cli.App, s settings.Settings, args []string) (req sandbox.Request, clean func(), err error) {
	clean = func() {}
	if req, err = f.flags(a, s); err != nil {
		return req, clean, err
	}
	if len(args) > 0 && args[0] == "-" && f.dash != 0 {
		if f.interactive {
			return req, clean, usagef("run: stdin is the script with -, and the program's with --interactive: give one of them")
		}
		args = slices.Clone(args)
		if args[0], clean, err = scriptOfStdin(s, a.In); err != nil {
			return req, clean, err
		}
		req.ScriptFrom = "-"
	}
	return req, clean, program(&req, args, f.dash)
}

// flags turns the flags of a command line into a request without a program.
func (f *runFlags) flags(a *cli.App, s settings.Settings) (req sandbox.Request, err error) {
	req = s.Request()
	req.ID, req.Name, req.Input, req.Final, req.Keep = f.id, f.name, f.input, f.final, f.keep
	req.Labels = f.labels.Read()
	if req.Env, err = f.env.Read(a); err != nil {
		return sandbox.Request{}, err
	}
	req.Secrets = f.env.Secrets()
	if req.Mounts, err = f.mounts.Read(a); err != nil {
		return sandbox.Request{}, err
	}
	if req.Aliases, err = f.aliases.Read(a); err != nil {
		return sandbox.Request{}, err
	}
	if req.Egress, err = f.egress.Read(a); err != nil {
		return sandbox.Request{}, err
	}
	for _, text := range f.ulimits {
		limit, err := units.ParseUlimit(text)
		if err != nil {
			return sandbox.Request{}, usagef("--ulimit %q: must be NAME=SOFT[:HARD], such as nofile=1024", text)
		}
		req.Ulimits = append(req.Ulimits, spec.Ulimit{Name: limit.Name, Soft: limit.Soft, Hard: limit.Hard})
	}
	return req, nil
}

// usagef is wrong usage of `run`.
func usagef(format string, args ...any) error { return cli.Usagef("sandbox run", format, args...) }

// program sets the program of a request: a script with its arguments, or, after "--", a
// command of the image.
func program(req *sandbox.Request, args []string, dash int) error {
	switch {
	case len(args) == 0 && dash < 0:
		return usagef("run: nothing to run: give a script or, after --, a command")
	case len(args) == 0 || args[0] == "":
		return usagef("run: the command is empty")
	case dash == 0:
		req.Command = args
	case filepath.Ext(args[0]) == ".py" || fsx.IsDir(args[0]) || !isFile(args[0]) && slices.Contains(scriptNames, filepath.Ext(args[0])):
		// Where every script is checked, a directory is refused, and a file that does not exist.
		req.Script, req.Args = args[0], args[1:]
	default:
		if req.Interpreter = interpreterOf(args[0]); req.Interpreter == nil {
			return cli.UsageHint(noScriptHint(args), "run: %q is not a script: it neither ends in .py nor begins with #!", args[0])
		}
		req.Script, req.Args = args[0], args[1:]
	}
	return nil
}

// scriptNames are the ends of the names of scripts. Such a name is not a command of an image.
var scriptNames = []string{".sh", ".bash", ".R", ".r", ".jl", ".js", ".pl", ".rb"}

// noScriptHint is the hint for a program that is not a script. A file of this machine is
// not in the image, so "--" alone would not help.
func noScriptHint(args []string) string {
	name := args[0]
	switch ext := strings.ToLower(filepath.Ext(name)); {
	case ext == ".py":
		return "the name of a Python script ends in .py, in small letters"
	case bytes.HasPrefix(head(name, mostShebang), []byte(mark+"#!")):
		return markHint(name, name)
	case isFile(name):
		return "begin the script with #! and its interpreter, such as #!/bin/sh; or name a Python script *.py"
	case strings.Contains(name, ":"):
		return "an image is named with --image: sandbox run --image " + text.ShellWord(name) + " SCRIPT.py; or, instead of a script, -- and a command of the image"
	}
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = text.ShellWord(arg)
	}
	return "to run a command of the image: sandbox run -- " + strings.Join(quoted, " ")
}
