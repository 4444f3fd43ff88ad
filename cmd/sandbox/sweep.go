package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/harness/invoke/sweep"
)

// sweepFlags are the flags of `sweep` that are no settings. What `invoke` is told by
// --config and --seed is for the sweep to say.
type sweepFlags struct {
	invokeFlags
	spec              string
	axes              []sweep.Axis
	seeds             []int64
	parallel          int
	keepGoing, resume bool
}

func newSweepCommand(a *app) *cobra.Command {
	var f sweepFlags
	cmd := &cobra.Command{
		Use:   "sweep --exec COMMAND --spec FILE --axis NAME=V,V... --seeds N,N... --output DIR",
		Short: "Call a tool over axes of values and over seeds",
		Long: `Call a tool as 'sandbox invoke' does, once for each combination of the values of all
axes and each seed, in fresh containers. Each run has a folder of its own,

  DIR/runs/brightness=0p8_zoom=m1_seed=42/

with spec.json, which is the base spec with the run's perturbations and seed, and
output/, which is what the tool left. Runs are done in the order of their axes'
names, values and seeds as given, seeds fastest; combinations whose folders would
have the same name are refused. Once all have succeeded,

  DIR/sweep_manifest.json

tells the hash of each one's manifest.json. It is the same however many ran at once.

A value is a number, true, false, null or a text; NAME=["a,b", 1] takes a JSON list.

The first run that fails ends the sweep, once what runs has ended; with --keep-going
the others run all the same, and the manifest has null for what failed. DIR must not
exist. --resume goes on with the same sweep in DIR, after a failure, a crash or
Ctrl-C: what has succeeded and is still as it was is kept, all else runs again.

The exit code is 0 when every run succeeded; 1 when one failed; 125 when the sandbox
failed or refused; 130 when interrupted; 2 for wrong usage.`,
		Example: `  sandbox sweep --exec 'python -m tool.cli' --root ~/tool --spec base.json \
    --axis brightness=0.8,1.0,1.2 --axis mode=fast,exact --seeds 1,2,3 --output out -j 4
  sandbox sweep --exec /opt/tool --spec base.json --axis x=1,2 --seeds 42 --output out --dry-run
  sandbox sweep --exec /opt/tool --spec base.json --axis x=1,2 --seeds 42 --output out --resume`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(a, cmd); err != nil {
				return err
			}
			return a.sweep(cmd.Context(), cmd, f)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.exec, "exec", "", "`command` that calls the tool (required)")
	flags.StringVar(&f.spec, "spec", "", "`file` with the base spec, a JSON object (required)")
	flags.Var(&axisFlag{&f.axes}, "axis", "axis `NAME=V,V...` to sweep over; may be repeated (required)")
	flags.Int64SliceVar(&f.seeds, "seeds", nil, "seeds `N,N...` of each combination (required)")
	flags.StringVar(&f.output, "output", "", "new `folder` of the sweep (required)")
	flags.StringVar(&f.adapter, "adapter", "", "`name` of an adapter of the tool")
	flags.IntVarP(&f.parallel, "jobs", "j", 1, "do `N` runs at once")
	flags.BoolVar(&f.keepGoing, "keep-going", false, "go on after a run that failed")
	flags.BoolVar(&f.resume, "resume", false, "go on with the sweep in the folder, if there is one")
	f.registerTool(cmd)
	flags.BoolVar(&f.dryRun, "dry-run", false, "check the sweep, print its runs as JSON, and run nothing")
	a.settingFlags(cmd, false, append(slices.Clone(invokeKeys), "json", "quiet")...)
	cmd.SetUsageFunc(groupedUsage)
	return cmd
}

// check refuses flags that make no sense together.
func (f *sweepFlags) check(a *app, cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	for _, required := range []string{"exec", "spec", "axis", "seeds", "output"} {
		if !given(required) {
			return usagef(cmd.CommandPath(), "sweep: --%s is missing", required)
		}
	}
	if f.parallel < 1 || f.parallel > maxParallel {
		return usagef(cmd.CommandPath(), "sweep: --jobs %d: must be between 1 and %d", f.parallel, maxParallel)
	}
	return f.checkTool(a, cmd)
}

// setup is what the runs depend on besides the sweep, for a sweep that goes on. image is
// the ID of the image; empty on the host.
func (f *sweepFlags) setup(image string) (map[string]string, error) {
	setup := map[string]string{"exec": f.exec, "engine": f.engine, "image": image, "root": ""}
	if f.root == "" {
		return setup, nil
	}
	var err error
	setup["root"], err = filepath.Abs(f.root)
	return setup, err
}

func (a *app) sweep(ctx context.Context, cmd *cobra.Command, f sweepFlags) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	config := sweep.Config{Axes: f.axes, Seeds: f.seeds}
	if cmd.Flags().Changed("adapter") {
		config.Adapter = &f.adapter
	}
	base, specErr := interruptibly(ctx, func() (sweep.Spec, error) { return sweep.LoadSpec(f.spec) })
	plan, planErr := sweep.NewPlan(config, base)
	verify, verifyErr := f.artifacts.options()
	if err := errors.Join(specErr, planErr, verifyErr); err != nil {
		return err
	}
	if f.dryRun {
		return a.printSweepPlan(plan)
	}
	run := &sweepRun{app: a, settings: s, flags: f, plan: plan}
	where, image, release, err := run.place(ctx)
	if err != nil {
		return err
	}
	defer release()
	setup, err := f.setup(image)
	if err != nil {
		return err
	}
	runner, err := f.tool(a, cmd, where, f.limit(s), verify.Profile)
	if err != nil {
		return err
	}
	report, err := run.carryOut(ctx, sweep.Tool(runner, verify), setup)
	if a.streams.Ended != nil {
		a.streams.Ended()
	}
	if report.Dir == "" {
		return err
	}
	a.code = sweepCode(err)
	return errors.Join(a.showSweep(report, s), err)
}

// sweepRun is a sweep on its way.
type sweepRun struct {
	app      *app
	settings settings
	flags    sweepFlags
	plan     sweep.Plan
	progress counter
}

// place is where the tool runs, with the ID of the image. Nothing of its output is shown:
// runs would mix it. What every run would be refused for is told here, once, before
// anything is written.
func (r *sweepRun) place(ctx context.Context) (where invoke.Option, image string, release func(), err error) {
	a, s := r.app, r.settings
	if r.flags.engine == invoke.EngineHost {
		a.warnHost()
		return invoke.WithHost(invoke.Host{
			Clock: machineClock{}, Grace: s.Limits.Grace, Kill: a.streams.Kill,
			CaptureStdout: s.Limits.CaptureStdout, CaptureStderr: s.Limits.CaptureStderr,
		}), "", a.streams.runs.begin(), nil
	}
	runner, err := a.runner(s)
	if err != nil {
		return nil, "", nil, err
	}
	req := s.request()
	req.Kill = a.streams.Kill
	req.GPUWait = gpuWait(s, r.flags.parallel, r.flags.limit(s))
	req.Waiting = func(why string) { r.progress.once("runs wait for GPUs: " + why) }
	probe := req
	probe.Command = []string{"true"}
	spec, err := runner.Plan(ctx, probe)
	if err != nil {
		return nil, "", nil, errors.Join(err, runner.Close())
	}
	box := invoke.Sandbox{Runner: a.watched(runner), Store: runner.Store(), Request: req}
	return invoke.WithSandbox(box), spec.Class.Image.ID, func() { _ = runner.Close() }, nil
}

// carryOut does the runs and tells how far they are.
func (r *sweepRun) carryOut(ctx context.Context, do sweep.Invoke, setup map[string]string) (sweep.Report, error) {
	quiet := r.settings.Quiet
	r.progress.start(r.app, quiet, "runs", r.plan.Len(), r.plan.Len(), func() string { return "" })
	defer r.progress.stop()
	defer context.AfterFunc(ctx, func() {
		r.progress.say(fmt.Sprintf("%v: ending what runs; Ctrl-C ends it at once", context.Cause(ctx)))
	})()
	return sweep.Run(ctx, r.plan, do, sweep.Options{
		Dir: r.flags.output, Resume: r.flags.resume, Parallel: r.flags.parallel, KeepGoing: r.flags.keepGoing, Setup: setup,
		Resumed: func(kept int) {
			r.progress.skip(kept)
			r.progress.say(fmt.Sprintf("%s has %d of %d runs already", r.flags.output, kept, r.plan.Len()))
		},
		Begun: func(int) { r.progress.count(1) },
		Ended: func(end sweep.End) {
			r.progress.count(-1)
			if end.Status != sweep.StatusMissing {
				r.progress.end(endOfRun(end))
			}
		},
	})
}

// endOfRun is a line on a run.
func endOfRun(end sweep.End) string {
	text := end.Name + " · " + string(end.Status)
	if end.Failure != "" {
		text += " · " + short(oneLine(end.Failure), maxReason)
	}
	return text
}

// sweepCode is the exit code of a sweep.
func sweepCode(err error) int {
	failures := new(sweep.FailuresError)
	if err != nil && errors.As(err, &failures) && !interruptedBy(err) && len(joined(err)) == 1 {
		return exitProblem
	}
	return exitCode(nil, err)
}

// interruptedBy says that a signal to us is among the reasons.
func interruptedBy(err error) bool {
	var stopped interruption
	return errors.As(err, &stopped) || errors.Is(err, context.Canceled)
}

// sweepSum is the last line on a sweep.
func sweepSum(report sweep.Report) string {
	var parts []string
	for _, status := range []sweep.Status{sweep.StatusSucceeded, sweep.StatusFailed, sweep.StatusMissing} {
		if n := report.Count(status); n > 0 || status != sweep.StatusMissing {
			parts = append(parts, fmt.Sprintf("%d %s", n, status))
		}
	}
	text := fmt.Sprintf("sweep of %d: %s · ", len(report.Runs), strings.Join(parts, ", "))
	if report.Manifest == "" {
		return text + "no manifest; --resume goes on from there"
	}
	return text + report.Manifest
}

// showSweep tells what came of a sweep.
func (a *app) showSweep(report sweep.Report, s settings) error {
	var err error
	if s.JSON {
		err = a.printJSON(sweepJSON(report))
		if err != nil && !errors.Is(err, errReaderGone) {
			a.code = exitSandbox // whoever asked for the report did not get it
		}
	}
	if !s.Quiet {
		a.say(sweepSum(report))
	}
	return err
}

var _ sweep.Runner = (*invoke.Runner)(nil)
