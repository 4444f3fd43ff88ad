package gate

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/render"
)

// replayFlags are the flags of `replay` that are not settings.
type replayFlags struct {
	workspace, out      string
	replace, keep, live bool
}

// NewReplay returns the command `replay`.
func NewReplay(a *cli.App) *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay GATES.json|DIR",
		Short: "Run a gate again, and compare",
		Long: `Run what a gate ran once more: the same commands, in the same image, on the same
files, and compare exit codes, counts, logs and outputs with what was recorded. Image,
tools and files must be the recorded ones, or nothing is run.

A GATES.json alone, of whatever origin, is run in the default image with the defaults,
on the directory of --workspace, and compared as far as it says anything.

The exit code is 0 the same, 1 different, 3 it cannot be replayed, 2 wrong usage, 125
the replay could not be carried out, 130 cli.Interrupted.`,
		Example: `  sandbox replay gate.out
  sandbox replay GATES.json --workspace ~/project --json | jq .differences`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.Check(cmd, cli.NotEmpty(cli.Folder, "workspace", "out"),
				cli.Wrong(f.replace && f.out == "", "--replace is for --out")); err != nil {
				return err
			}
			return replay(cmd.Context(), a, args[0], f)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.workspace, "workspace", "", "`directory` to run on (default: where it was)")
	flags.StringVar(&f.out, "out", "", "new or empty `directory` for the evidence of the replay")
	flags.BoolVar(&f.replace, "replace", false, "replace an earlier run in that directory")
	flags.BoolVarP(&f.live, "live", "v", false, "show the output of the commands while they run")
	flags.BoolVar(&f.keep, "keep", false, "keep the records of the runs")
	a.SettingFlags(cmd, gateKeys...)
	cmd.SetUsageFunc(cli.GroupedUsage)
	return cmd
}

func replay(ctx context.Context, a *cli.App, from string, f replayFlags) error {
	x, err := begin(ctx, a, f.live, f.keep, "")
	if err != nil {
		return err
	}
	defer x.Close()
	ctx, record := x.Trial(ctx, trial.Job{Kind: x.gate.Trial().Kind(), Name: "replay"}, nil)
	report, err := x.gate.Replay(ctx, gate.ReplayOptions{From: from, Workspace: f.workspace, OutDir: f.out, Replace: f.replace})
	end := *replayed(report.Outcome)
	end.Job, end.Reason, end.ExitCode = record.Job(), string(report.Outcome), -1
	if err != nil {
		end.Verdict = trial.Inconclusive
	} else if detail, err := json.Marshal(report); err == nil {
		end.Detail = detail
	}
	record.Record(ctx, err, end)
	if err != nil {
		_ = x.Ended() // the error is what matters
		return noGate(err)
	}
	return x.Finish(cli.ExitCode(replayed(report.Outcome), nil), report, nil, func() []string { return render.Replay(report, a.Palette()) })
}

// replayed is how a replay ended, as the exit code sees it.
func replayed(outcome gate.Outcome) *trial.Result {
	switch outcome {
	case gate.ReplaySame:
		return ended(evidence.Pass)
	case gate.ReplayCannot:
		return ended(evidence.NeedInfo)
	case gate.ReplayDifferent:
	}
	return ended(evidence.Blocked)
}
