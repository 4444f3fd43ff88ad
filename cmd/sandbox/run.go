package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/internal/terminal"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
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
	// What follows the script belongs to the script.
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

// carryOut runs the request and shows what happened.
func (a *app) carryOut(ctx context.Context, runner *sandbox.Runner, req sandbox.Request, streams sandbox.IO, s settings) error {
	live := a.connect(&streams, s)
	hooks := sandbox.Hooks{Kill: a.streams.Kill}
	quiet := s.Quiet || s.JSON && !a.errTerminal
	waiting := a.tellWaiting(s)
	hooks.Waiting = waiting.say
	announced := func() {}
	hooks.Started = func() {
		waiting.end()
		if !quiet {
			announced = live.announceEnd(ctx)
		}
	}
	ended := a.streams.runs.begin()
	res, runErr := runner.Run(ctx, req, streams, hooks)
	ended()
	waiting.end()
	announced()
	a.ended()
	shown := live.finish()
	a.code = exitCode(res, runErr)
	if res == nil {
		return runErr
	}
	if !quiet {
		if err := a.sumUp(runner.Store(), req, res, shown); err != nil {
			return err
		}
	}
	if s.JSON {
		err := a.printResult(res)
		if err != nil && !errors.Is(err, errReaderGone) {
			// Whoever asked for the result did not get it.
			a.code = exitSandbox
		}
		if err != nil {
			return err
		}
	}
	return runErr
}

// liveWarning begins what a result warns of when the live output failed.
const liveWarning = "live output: "

// sumUp prints the summary of a run, whose live output ended with the error shown.
// A terminal that takes nothing any more is left alone: the record has it all.
func (a *app) sumUp(store *record.Store, req sandbox.Request, res *result.Result, shown error) error {
	err := patiently(func() error {
		told := func(warning string) bool { return strings.HasPrefix(warning, liveWarning) }
		if shown != nil && !slices.ContainsFunc(res.Warnings, told) {
			fmt.Fprintf(a.streams.Err, "sandbox: warning: %s%s\n", liveWarning, terminal.Line(shown.Error()))
		}
		return a.printSummary(store, req, res)
	})
	if errors.Is(err, errStuck) {
		return errReaderGone
	}
	return err
}

// printResult prints the wire form of a result.
func (a *app) printResult(res *result.Result) error {
	text, err := res.Encode()
	if err != nil {
		return err
	}
	_, err = a.streams.Out.Write(text)
	return resultLost(readerGone(err))
}
