package invoke

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/harness/invoke/sweep"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

type sweepFlags struct {
	toolFlags
	spec              string
	axes              []sweep.Axis
	seeds             []invoke.Seed
	parallel          int
	keepGoing, dryRun bool
	metricsAt         string
}

// NewSweep returns the command `sweep`.
func NewSweep(a *cli.App) *cobra.Command {
	var f sweepFlags
	cmd := &cobra.Command{
		Use:   "sweep --exec COMMAND --spec FILE --axis NAME=V,V... --seeds N,N... --output DIR",
		Short: "Call a tool over axes of values and over seeds",
		Long: `Call a tool as 'sandbox invoke' does, once for each combination of the values of all
axes and each seed, in fresh containers. Each run has a directory of its own,

  DIR/runs/brightness=0p8_zoom=m1_seed=42/

with spec.json, which is the base spec with the run's perturbations and seed, and
output/, which has the files of the tool. Runs are done in the order of their axes'
names, values and seeds as given, seeds fastest; combinations whose directories
would have the same name are refused. Once all have succeeded,

  DIR/sweep_manifest.json

has the hash of each one's manifest.json. It is the same however many ran at once.

A value is a number, true, false, null or a text; NAME=["a,b", 1] takes a JSON list.

The first run that fails ends the sweep, once what runs has ended; with --keep-going
the others run, too, and the manifest has null for a run that failed. The same command
goes on with the sweep in DIR, after a failure, a crash or Ctrl-C: a run that succeeded
and is still as it was is kept, if it passes the demands of this call; all others run
again. A directory with anything else is refused.

At the end, the numbers in the tools' manifests are shown as a table: a row for each
combination of values, with the means over its seeds.

The exit code is 0 when every run succeeded; 1 when one failed; 125 when the sandbox
failed or refused; 130 when interrupted; 2 for wrong usage.`,
		Example: `  sandbox sweep --exec 'python -m tool.cli' --root ~/tool --spec base.json \
    --axis brightness=0.8,1.0,1.2 --axis mode=fast,exact --seeds 1-3 --output out -j 4
  sandbox sweep --exec /opt/tool --spec base.json --axis x=1,2 --seeds 42 --output out --dry-run`,
		Args: cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd, "exec", "spec", "axis", "seeds", "output"); err != nil {
				return err
			}
			return cli.Check(cmd, cli.Apart("dry-run", "metrics-listen"), cli.NotEmpty("", "metrics-listen"),
				cli.Wrong(f.parallel < 1 || f.parallel > cli.MaxParallel, "--jobs %d: must be between 1 and %d", f.parallel, cli.MaxParallel))
		},
		RunE: a.With(func(ctx context.Context, s settings.Settings, _ []string) error { return runSweep(ctx, a, s, f) }),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.exec, "exec", "", "`command` that calls the tool (required)")
	flags.StringVar(&f.spec, "spec", "", "`file` with the base spec, a JSON object (required)")
	readAxis := func(text string) ([]sweep.Axis, error) {
		axis, err := parseAxis(text)
		return []sweep.Axis{axis}, err
	}
	flags.Var(cli.List(&f.axes, "NAME=V,V...", readAxis), "axis", "axis `NAME=V,V...` to sweep over; may be repeated (required)")
	flags.Var(cli.Seeds(&f.seeds, readSeed), "seeds", "seeds of each combination, such as 1,2,5-7 (required)")
	flags.StringVarP(&f.output, "output", "o", "", "`directory` of the sweep, which is created (required)")
	flags.Var(cli.Optional(&f.adapter, "string", cli.Text), "adapter", "`name` of an adapter of the tool")
	flags.IntVarP(&f.parallel, "jobs", "j", 1, "do `N` runs at once")
	flags.BoolVar(&f.keepGoing, "keep-going", false, "go on after a run that failed")
	flags.Bool("resume", true, "") // what every sweep does now
	_ = flags.MarkHidden("resume")
	cli.MetricsFlag(flags, &f.metricsAt)
	f.register(cmd)
	flags.BoolVar(&f.dryRun, "dry-run", false, "check all but the tool itself, print the runs as JSON, and write nothing")
	a.SettingFlags(cmd, append(slices.Clone(invokeKeys), "json", "quiet")...)
	cmd.SetUsageFunc(cli.GroupedUsage)
	return cmd
}

// parseAxis reads NAME=V,V... or NAME=[JSON list]. A value that is not JSON is a text.
func parseAxis(text string) (sweep.Axis, error) {
	name, rest, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return sweep.Axis{}, errors.New("must be NAME=V,V..., as in brightness=0.8,1.0")
	}
	rest = strings.TrimSpace(rest)
	axis := sweep.Axis{Name: name}
	if strings.HasPrefix(rest, "[") {
		values, ok := readJSON(rest)
		if axis.Values, _ = values.([]any); !ok {
			return sweep.Axis{}, errors.New("what begins with [ must be a JSON list")
		}
		return axis, nil
	}
	for part := range strings.SplitSeq(rest, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			return sweep.Axis{}, errors.New(`has an empty value; an empty text is NAME=[""]`)
		}
		value, ok := readJSON(part)
		if !ok {
			value = part
		}
		axis.Values = append(axis.Values, value)
	}
	return axis, nil
}

// readJSON reads one value, numbers in their spelling.
func readJSON(text string) (value any, ok bool) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	return value, json.Valid([]byte(text)) && decoder.Decode(&value) == nil
}

// readSeed reads one of several seeds.
func readSeed(text string) (invoke.Seed, error) {
	seed, err := invoke.ParseSeed(text)
	if outOfRange := new(invoke.SeedRangeError); err != nil && !errors.As(err, &outOfRange) {
		err = fmt.Errorf("%w, as in 1,2,5-7", err)
	}
	return seed, err
}

func runSweep(ctx context.Context, a *cli.App, s settings.Settings, f sweepFlags) error {
	a.FieldHints = fieldHints
	base, specErr := cli.Interruptibly(ctx, func() (sweep.Spec, error) { return sweep.LoadSpec(f.spec) })
	if specErr != nil {
		specErr = cli.WithHint(specErr, "name the file with --spec; it is a JSON object, and each run gets it with its own perturbations and seed")
	}
	plan, planErr := sweep.NewPlan(sweep.Config{Axes: f.axes, Seeds: f.seeds, Adapter: f.adapter}, base)
	o, toolErr := f.options(a, s)
	if err := errors.Join(specErr, planErr, toolErr); err != nil {
		return err
	}
	served, err := a.ServeMetrics(ctx, f.metricsAt)
	if err != nil {
		return err
	}
	defer served.Close()
	// The output of concurrent runs would mix, so it is not shown.
	x, err := a.Begin(ctx, s, cli.Hidden)
	if err != nil {
		return err
	}
	defer x.Close()
	o.Request, o.Hooks.Kill = s.Request(), a.Kill
	if err := f.complete(a, &o.Request); err != nil {
		return err
	}
	o.Request.GPUWait = cli.GPUWait(s, f.parallel, o.Timeout)
	// A refusal that every run would get is reported here, once, before anything is written.
	probe := o.Request
	probe.Command = []string{"true"}
	class, err := x.Box.Plan(ctx, probe)
	if err != nil {
		return err
	}
	opts := sweep.Options{Dir: f.output, Resume: true, Verify: o.Verify, Parallel: f.parallel, KeepGoing: f.keepGoing}
	if opts.Setup, err = f.setup(class.Class, s.GPUs, o.Env, o.Request.Egress); err != nil {
		return err
	}
	var progress cli.Progress
	o.Hooks.Waiting = func(why string) { progress.Once("runs wait for " + why) }
	tool, err := invoke.New(served.Box(x.Box), o)
	if err != nil {
		return err
	}
	if f.dryRun {
		if _, err := cli.Interruptibly(ctx, func() (struct{}, error) { return struct{}{}, sweep.Check(plan, opts) }); err != nil {
			return err
		}
		dir, err := filepath.Abs(f.output)
		if err != nil {
			return err
		}
		return a.PrintJSON(plan.Report(dir))
	}
	opts.Log, opts.LogFailed, opts.Events = x.Trials(), x.LogFailed, served.Event
	report, err := carryOut(ctx, a, &progress, s.Quiet, tool, plan, opts, served)
	_ = x.Ended() // no output was shown
	if report.Dir == "" {
		return err
	}
	a.Code = sweepCode(err)
	if !s.Quiet {
		err = errors.Join(a.PrintLines([]string{render.Sweep(report)}), err)
	}
	if !s.Quiet && !s.JSON {
		err = errors.Join(a.PrintTables(render.SweepTable(report.Table)), err)
	}
	return errors.Join(a.Present(report, true, s, nil), err)
}

// carryOut does the runs and shows their progress.
func carryOut(ctx context.Context, a *cli.App, progress *cli.Progress, quiet bool, tool *invoke.Harness, plan sweep.Plan, opts sweep.Options,
	served *cli.MetricsServer,
) (sweep.Report, error) {
	served.Expect(plan.Len())
	progress.Start(a, quiet, plan.Len(), plan.Len())
	defer progress.Stop()
	defer context.AfterFunc(ctx, func() {
		progress.Say("%v: ending what runs; Ctrl-C ends it at once", context.Cause(ctx))
	})()
	opts.Resumed = func(kept int) {
		progress.Skip(kept)
		served.Expect(plan.Len() - kept)
		progress.Say("%s has %d of %d runs already", opts.Dir, kept, plan.Len())
	}
	opts.Begun = func() { progress.Running(1) }
	opts.Ended = func(end sweep.End) {
		progress.Running(-1)
		if end.Status == sweep.StatusMissing {
			return
		}
		shown := end.Name + " · " + string(end.Status)
		if end.Failure != "" {
			shown += " · " + text.Brief(string(end.Failure))
		}
		progress.End(shown)
	}
	return sweep.Run(ctx, tool.Trial(), plan, opts)
}

// setup is what the results depend on, besides the spec. Limits are not in it: a run that
// reached none would have ended in the same way under others. Neither are the demands on
// artifacts: a resumed sweep judges the kept runs again. Values of variables may be
// secret, so only their hashes are in it.
func (f *sweepFlags) setup(class spec.Class, gpus string, env map[string]string, egress *policy.Egress) (map[string]string, error) {
	setup := map[string]string{
		"image": class.Image.ID, "network": class.Network, "user": class.User, "runtime": class.Runtime, "gpus": gpus,
		"exec": f.exec, "engine": "sandbox", "root": "",
	}
	if f.root != "" {
		var err error
		if setup["root"], err = filepath.Abs(f.root); err != nil {
			return nil, err
		}
	}
	if egress != nil {
		hosts, err := json.Marshal(egress)
		if err != nil {
			return nil, err
		}
		setup["egress"] = string(hosts)
	}
	for name, value := range env {
		sum := sha256.Sum256([]byte(name + "=" + value))
		setup[sweep.SetupHashed+name] = hex.EncodeToString(sum[:])
	}
	return setup, nil
}

// sweepCode is the exit code of a sweep.
func sweepCode(err error) int {
	failures := new(sweep.FailuresError)
	code := cli.ExitCode(nil, err)
	if errors.As(err, &failures) && code != cli.ExitInterrupted && len(cli.Joined(err)) == 1 {
		return cli.ExitProblem
	}
	return code
}
