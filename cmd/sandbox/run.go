package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/spec"
)

func newRunCommand(a *app) *cobra.Command { return newRunCommandWith(a, new(runFlags)) }

// newRunCommandWith makes the command whose flags fill f.
func newRunCommandWith(a *app, f *runFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [flags] SCRIPT.py [ARG...]\n  sandbox run [flags] -- COMMAND [ARG...]",
		Short: "Run a script or a command in a fresh container",
		Long: `Run a Python script, or any command of the image, in a fresh container.

Arguments after the script are the script's. The program works in a folder that
vanishes; it finds the folder of --input, read-only, in ./input, and what it leaves
in ./final is collected into the folder of --final. That folder is emptied first:
what an earlier run left there is deleted, anything else is moved aside, into a
folder FINAL.before-ID beside it. Of a script only the file itself is there: put
modules that it imports into the folder of --input and add that to sys.path.

The exit code is the program's, except: 124 time limit, 125 the sandbox failed or
refused, 126 and 127 the command cannot be executed or does not exist, 130
interrupted, 137 out of memory, 1 disk or output limit (though the program then
exited with 0), 2 wrong usage.

Ctrl-C asks the program to end and keeps what it did; twice ends it at once.`,
		Example: `  sandbox run train.py --epochs 3
  sandbox run --input data --final out --memory 8g --timeout 2h train.py
  sandbox run --json -- python3 -c 'print(1)' > result.json
  sandbox run -e SEED=7 --gpus all train.py
  sandbox run --dry-run train.py                  show the plan, run nothing`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range []string{"input", "final"} {
				if given := cmd.Flags().Lookup(name); given.Changed && given.Value.String() == "" {
					return usagef(cmd.CommandPath(), "run: --%s is empty: give a folder, or leave it out", name)
				}
			}
			return a.run(cmd.Context(), *f, args, cmd.ArgsLenAtDash())
		},
	}
	flags := cmd.Flags()
	// Arguments after the script belong to the script.
	flags.SetInterspersed(false)
	flags.SortFlags = false
	flags.StringVar(&f.input, "input", "", "`folder` that the program finds, read-only, as ./input")
	flags.StringVar(&f.final, "final", "", "`folder` for what the program leaves in ./final; what no run left there is moved aside")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "environment variable `NAME=VALUE`, or NAME for the caller's value, if it has one")
	flags.StringArrayVar(&f.envFiles, "env-file", nil, "`file` of environment variables")
	flags.BoolVarP(&f.interactive, "interactive", "i", false, "pass stdin on to the program")
	a.settingFlags(cmd, false, requestKeys...)
	flags.StringArrayVar(&f.allowHosts, "allow-host", nil, "`HOST[:PORT]` that the program may reach through a proxy (needs allow_egress): a name, *.name, an address or a range")
	flags.StringArrayVar(&f.addHosts, "add-host", nil, "`NAME:ADDRESS` that the proxy takes a name for instead of looking it up")
	flags.StringVar(&f.egress, "egress", "", "network `level` of the proxy: registry, api or open (default: api with --allow-host, else offline)")
	flags.StringArrayVar(&f.ulimits, "ulimit", nil, "further limit of each process, `NAME=SOFT[:HARD]`")
	flags.StringVar(&f.name, "name", "", "`name` of the run, for people")
	flags.StringVar(&f.id, "id", "", "unique `ID` of the run (default: made of the time)")
	flags.StringArrayVarP(&f.labels, "label", "l", nil, "label `NAME=VALUE` of the run")
	a.settingFlags(cmd, false, "json", "quiet", "raw")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print the plan as JSON and run nothing")
	flags.BoolVar(&f.keep, "keep", false, "leave the container behind for inspection")
	return cmd
}

func (a *app) run(ctx context.Context, f runFlags, args []string, dash int) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	req, err := f.request(s, a.environ, args, dash)
	if err != nil {
		return err
	}
	runner, err := a.runner(s)
	if err != nil {
		return err
	}
	defer runner.Close()
	if f.dryRun {
		spec, err := runner.Plan(ctx, req)
		if err != nil {
			return err
		}
		return a.printJSON(spec)
	}
	var streams sandbox.IO
	if f.interactive {
		streams.Stdin = a.streams.In
	}
	return a.carryOut(ctx, runner, req, streams, s)
}

// carryOut runs the request and shows its result.
func (a *app) carryOut(ctx context.Context, runner *sandbox.Runner, req sandbox.Request, streams sandbox.IO, s settings.Settings) error {
	live := a.connect(&streams, s)
	var hooks sandbox.Hooks
	watched := live.watch(ctx, a, &hooks, s)
	ended := a.streams.runs.begin()
	res, runErr := runner.Run(ctx, req, streams, hooks)
	ended()
	watched()
	a.ended()
	shown := live.finish()
	a.code = exitCode(res, runErr)
	if res == nil {
		return runErr
	}
	err := a.present(res, a.isQuiet(s), s, func() []string {
		lines := render.Run(res, req, finalOf(runner.Store(), req.Final, res.ID), a.palette())
		told := func(warning string) bool { return strings.HasPrefix(warning, liveWarning) }
		if shown != nil && !slices.ContainsFunc(res.Warnings, told) {
			lines = slices.Insert(lines, 0, "warning: "+liveWarning+terminal.Line(shown.Error()))
		}
		return lines
	})
	if err != nil {
		return err
	}
	return runErr
}

// liveWarning begins the warning of a result whose live output failed.
const liveWarning = "live output: "

// runFlags are the flags of `run` that are not settings: they concern one run.
type runFlags struct {
	env, envFiles, labels, ulimits []string
	// egress, allowHosts and addHosts are the hosts that the program may reach.
	egress                    string
	allowHosts, addHosts      []string
	id, name, input, final    string
	interactive, keep, dryRun bool
}

// request turns a command line into a Request. dash is the number of arguments
// before "--", -1 without one.
func (f runFlags) request(s settings.Settings, environ, args []string, dash int) (sandbox.Request, error) {
	req := s.Request()
	req.ID, req.Name, req.Input, req.Final, req.Keep = f.id, f.name, f.input, f.final, f.keep
	req.Labels = map[string]string{}
	err := program(&req, args, dash)
	if err != nil {
		return sandbox.Request{}, err
	}
	if req.Env, err = environment(f.env, f.envFiles, environ, "sandbox run"); err != nil {
		return sandbox.Request{}, err
	}
	if req.Egress, err = egressOf(f.egress, f.allowHosts, f.addHosts); err != nil {
		return sandbox.Request{}, err
	}
	for _, label := range f.labels {
		name, text, _ := strings.Cut(label, "=")
		req.Labels[name] = text
	}
	for _, text := range f.ulimits {
		limit, err := units.ParseUlimit(text)
		if err != nil {
			return sandbox.Request{}, usagef("sandbox run", "--ulimit %q: must be NAME=SOFT[:HARD], such as nofile=1024", text)
		}
		req.Ulimits = append(req.Ulimits, spec.Ulimit{Name: limit.Name, Soft: limit.Soft, Hard: limit.Hard})
	}
	return req, nil
}

// environment is that of the flags --env-file and --env of a command; the latter win.
func environment(pairs, files, environ []string, command string) (map[string]string, error) {
	env := map[string]string{}
	for _, file := range files {
		if err := readEnvFile(file, environ, env); err != nil {
			return nil, err
		}
	}
	for _, pair := range pairs {
		if err := addEnv(pair, environ, env); err != nil {
			return nil, usagef(command, "--env: %s", err)
		}
	}
	return env, nil
}

// program sets the program of a request: a script with its arguments, or, after "--", a
// command of the image.
func program(req *sandbox.Request, args []string, dash int) error {
	switch {
	case len(args) == 0 && dash < 0:
		return usagef("sandbox run", "run: nothing to run: give a script or, after --, a command")
	case len(args) == 0 || args[0] == "":
		return usagef("sandbox run", "run: the command is empty")
	case dash == 0:
		req.Command = args
	case filepath.Ext(args[0]) == ".py" || fsx.IsDir(args[0]):
		// A directory is refused where every script is checked.
		req.Script, req.Args = args[0], args[1:]
	default:
		return &usageError{fmt.Sprintf("run: %q is not a Python script (*.py)", args[0]), noScriptHint(args)}
	}
	return nil
}

// noScriptHint is the hint for a program that is not a script. A file of this machine is
// not in the image, so "--" alone would not help.
func noScriptHint(args []string) string {
	name := args[0]
	switch ext := strings.ToLower(filepath.Ext(name)); {
	case ext == ".py":
		return "the name of a Python script ends in .py, in small letters"
	case isFile(name) && !filepath.IsAbs(name), slices.Contains([]string{".sh", ".bash", ".r", ".jl", ".js", ".pl", ".rb"}, ext):
		return "the file is not in the image: put it into a folder and run it from there, as in: " +
			"sandbox run --input FOLDER -- sh input/" + filepath.Base(name)
	}
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = shellWord(arg)
	}
	return "to run a command of the image: sandbox run -- " + strings.Join(quoted, " ")
}

// shellWord is text as one word of a shell.
func shellWord(text string) string {
	plain := func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("-_./=:,+@%", r)
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// maxEnvFile bounds a file of variables, in bytes, far above the kernel's limit.
const maxEnvFile = 16 << 20

// readEnvFile reads variables as docker run --env-file does: NAME=VALUE, or NAME
// alone for the caller's own value, if there is one; lines that begin with # and
// blank lines say nothing. Nothing is unquoted or expanded.
func readEnvFile(file string, environ []string, into map[string]string) error {
	data, err := fsx.Read(file, maxEnvFile)
	if err != nil {
		return &fileError{fileEnv, file, err}
	}
	if err := parseEnvFile(data, environ, into); err != nil {
		return &fileError{fileEnv, file, err}
	}
	return nil
}

// parseEnvFile reads the text of the file. Its errors name the line.
func parseEnvFile(data []byte, environ []string, into map[string]string) error {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, len(data)+1)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimLeft(lines.Text(), " \t")
		if !utf8.ValidString(line) {
			return fmt.Errorf("line %d is not UTF-8 text", n)
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := addEnv(line, environ, into); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return lines.Err()
}

// addEnv adds one variable as docker run --env does.
func addEnv(pair string, environ []string, into map[string]string) error {
	name, text, given := strings.Cut(pair, "=")
	if name == "" || strings.ContainsAny(name, " \t") {
		return fmt.Errorf("variable %q: must be NAME=VALUE or NAME", name)
	}
	if given {
		into[name] = text
		return nil
	}
	for _, own := range environ {
		if text, ok := strings.CutPrefix(own, name+"="); ok {
			into[name] = text
		}
	}
	return nil
}

// lookup is the value of a variable of an environment; empty for none.
func lookup(environ []string, name string) string {
	for _, pair := range environ {
		if text, ok := strings.CutPrefix(pair, name+"="); ok {
			return text
		}
	}
	return ""
}

// egressOf reads the flags --egress, --allow-host and --add-host; nil is offline. All
// problems are reported at once.
func egressOf(level string, allow, add []string) (*policy.Egress, error) {
	e := &policy.Egress{Level: policy.NetworkLevel(level), Allow: allow}
	var errs []error
	if level != "" && !slices.Contains(policy.NetworkLevels(), e.Level) {
		errs = append(errs, usagef("sandbox run", "--egress %q: must be offline, registry, api or open", level))
	}
	for _, host := range allow {
		if _, err := policy.ParseHostPattern(host); err != nil {
			errs = append(errs, usagef("sandbox run", "--allow-host: %s", err))
		}
	}
	for _, text := range add {
		name, addr, err := policy.ParseAddHost(text)
		if err != nil {
			errs = append(errs, usagef("sandbox run", "--%s", err))
			continue
		}
		if e.Resolve == nil {
			e.Resolve = map[string][]netip.Addr{}
		}
		e.Resolve[name] = append(e.Resolve[name], addr)
	}
	if level == "" && len(allow) > 0 {
		e.Level = policy.API
	}
	if e.Offline() && len(allow)+len(add) > 0 {
		errs = append(errs, usagef("sandbox run", "%s", noLevel(len(allow) > 0)))
	}
	if err := errors.Join(errs...); err != nil || e.Offline() {
		return nil, err
	}
	return e, nil
}

// noLevel is the rule that hosts without a network level break.
func noLevel(allowed bool) string {
	if allowed {
		return fmt.Sprintf("--allow-host: not together with --egress %s", policy.Offline)
	}
	return "--add-host: names an address for a proxy that the run has not: give --allow-host or --egress"
}
