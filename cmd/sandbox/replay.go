package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/internal/render"
)

// replayFlags are the flags of `replay` that are not settings.
type replayFlags struct {
	workspace, out      string
	replace, keep, live bool
}

func newReplayCommand(a *app) *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay GATES.json|DIR",
		Short: "Run a gate again, and compare",
		Long: `Run what a gate ran once more: the same commands, in the same image, on the same
files, and compare exit codes, counts, logs and outputs with what was recorded. Image,
tools and files must be the recorded ones, or nothing is run.

A GATES.json alone, of whatever origin, is run in the default image with the defaults,
on the folder of --workspace, and compared as far as it says anything.

The exit code is 0 the same, 1 different, 3 it cannot be replayed, 2 wrong usage, 125
the replay could not be carried out, 130 interrupted.`,
		Example: `  sandbox replay gate.out
  sandbox replay GATES.json --workspace ~/project --json | jq .differences`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range []string{"workspace", "out"} {
				if flag := cmd.Flags().Lookup(name); flag.Changed && flag.Value.String() == "" {
					return usagef(cmd.CommandPath(), "replay: --%s is empty: give a folder, or leave it out", name)
				}
			}
			if f.replace && f.out == "" {
				return usagef(cmd.CommandPath(), "replay: --replace is for --out")
			}
			return a.replay(cmd.Context(), args[0], f)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.workspace, "workspace", "", "`folder` to run on (default: where it was)")
	flags.StringVar(&f.out, "out", "", "new or empty `folder` for the evidence of the replay")
	flags.BoolVar(&f.replace, "replace", false, "replace an earlier run in that folder")
	flags.BoolVarP(&f.live, "live", "v", false, "show the output of the commands while they run")
	flags.BoolVar(&f.keep, "keep", false, "keep the records of the runs")
	a.settingFlags(cmd, false, gateKeys...)
	cmd.SetUsageFunc(groupedUsage)
	return cmd
}

func (a *app) replay(ctx context.Context, from string, f replayFlags) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	runner, err := a.runner(s)
	if err != nil {
		return err
	}
	defer runner.Close()
	h, live, err := a.gateHarness(ctx, runner, s, f.live, f.keep, "")
	if err != nil {
		return err
	}
	report, err := h.Replay(ctx, gate.ReplayOptions{From: from, Workspace: f.workspace, OutDir: f.out, Replace: f.replace})
	live.ended()
	if err != nil {
		return noGate(err)
	}
	a.code = replayCode(report)
	return a.present(report, a.isQuiet(s), s, func() []string { return render.Replay(report, a.palette()) })
}

// replayCode is the exit code of a replay.
func replayCode(r gate.ReplayReport) int {
	switch r.Outcome {
	case gate.ReplaySame:
		return 0
	case gate.ReplayCannot:
		return exitNeedInfo
	case gate.ReplayDifferent:
	}
	return exitProblem
}
