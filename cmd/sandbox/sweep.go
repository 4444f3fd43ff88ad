package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/invoke/sweep"
	"github.com/evalbox/evalbox/internal/text"
)

// sweepFlags are the flags of `sweep` that are not settings. The
// sweep itself decides --config and --seed of `invoke`.
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
Ctrl-C: what has succeeded and is still as it was is kept, if it passes the demands
of this call, all else runs again.

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
	flags.Var(&sweepSeedsFlag{&f.seeds}, "seeds", "seeds `N,N...` of each combination (required)")
	flags.StringVar(&f.output, "output", "", "new `folder` of the sweep (required)")
	flags.StringVar(&f.adapter, "adapter", "", "`name` of an adapter of the tool")
	flags.IntVarP(&f.parallel, "jobs", "j", 1, "do `N` runs at once")
	flags.BoolVar(&f.keepGoing, "keep-going", false, "go on after a run that failed")
	flags.BoolVar(&f.resume, "resume", false, "go on with the sweep in the folder, if there is one")
	f.registerTool(cmd)
	flags.BoolVar(&f.dryRun, "dry-run", false, "check all but the tool itself, print the runs as JSON, and write nothing")
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

// axisFlag is a list of axes, one for each flag.
type axisFlag struct{ target *[]sweep.Axis }

func (f *axisFlag) String() string { return "" }

func (f *axisFlag) Type() string { return "NAME=V,V..." }

func (f *axisFlag) Set(text string) error {
	axis, err := parseAxis(text)
	if err == nil {
		*f.target = append(*f.target, axis)
	}
	return err
}

// parseAxis reads NAME=V,V... or NAME=[JSON list]. A value that is not
// JSON is a text.
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
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return nil, false
	}
	_, err := decoder.Token()
	return value, errors.Is(err, io.EOF)
}

// sweepSeedsFlag is a list of seeds; a second flag adds to those of the first.
type sweepSeedsFlag struct{ target *[]int64 }

func (f *sweepSeedsFlag) String() string { return "" }

func (f *sweepSeedsFlag) Type() string { return "N,N..." }

func (f *sweepSeedsFlag) Set(shown string) error {
	for part := range strings.SplitSeq(shown, ",") {
		part = strings.TrimSpace(part)
		seed, err := strconv.ParseInt(part, 10, 64)
		switch {
		case errors.Is(err, strconv.ErrRange):
			return fmt.Errorf("the seed %s must be between %d and %d", text.Fit(part, text.Most), math.MinInt64, math.MaxInt64)
		case err != nil:
			return fmt.Errorf("the seed %q must be a whole number, as in 1,2,3", text.Fit(part, text.Most))
		}
		*f.target = append(*f.target, seed)
	}
	return nil
}
