package main

import (
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// batchFlags are the flags of `batch` that are no settings.
type batchFlags struct {
	evaluateFlags
	from, results         string
	parallel, maxFailures int
	failFast              bool
	budget                time.Duration
	// gpus says that the settings ask for GPUs.
	gpus bool
}

// maxParallel bounds how many scripts run at once; each takes a container.
const maxParallel = 1024

func newBatchCommand(a *app) *cobra.Command {
	var f batchFlags
	cmd := &cobra.Command{
		Use:   "batch [flags] SCRIPT.py... --task TASK.yaml\n  sandbox batch [flags] --from LIST.jsonl --task TASK.yaml",
		Short: "Evaluate many solution scripts, and go on after an interruption",
		Long: `Evaluate solution scripts of a task, one after the other or N at once, each in a
fresh container with a working folder of its own, and end with a leaderboard.

Each result is on the disk as soon as its script has ended: a line of the results
file. The same command, given again after a crash or Ctrl-C, runs only what has no
conclusive result there yet. A script or a task that has changed is run again, and
so is everything when it is to be evaluated in another way. What counts is script,
seed, task, image, limits, environment, GPUs, grader, answers and sample; the data
are not looked at.

A script that is refused, also one that is not UTF-8, is a result like others. With
--fail-fast and --max-failures a script whose grading fails has failed, too; they count
the failures of this call only.

A list has one object per line: {"script": "svm.py", "name": "svm", "seed": 1}.
Only script is required; a relative one is relative to the list.

--json prints one evaluation per line, in the order of the scripts.

Ctrl-C asks what runs to end, and keeps what it did as not conclusive; twice ends
it at once. When --budget is used up, what runs is ended in the same way. With
--fail-fast and --max-failures what runs goes on to its end.

The exit code is 0 when every script has a conclusive result, good or bad; 1 when
too many scripts failed; 124 when the budget is used up; 125 when the sandbox
failed or refused; 130 when interrupted; 2 for wrong usage.`,
		Example: `  sandbox batch solutions/*.py --task task.yaml
  sandbox batch --from list.jsonl --task task.yaml -j 4 --budget 8h
  sandbox batch solutions/*.py --task task.yaml -j 8 --gpus 1
  sandbox batch solutions/*.py --task task.yaml --seeds 1,2,3
  sandbox batch solutions/*.py --task task.yaml --json > ordered.jsonl`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd, args); err != nil {
				return err
			}
			return a.batch(cmd.Context(), f, args)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.task, "task", "", "YAML `file` that describes the task (required)")
	flags.StringVar(&f.from, "from", "", "`file` that lists the scripts, one JSON object per line")
	flags.IntVarP(&f.parallel, "jobs", "j", 1, "run `N` scripts at once")
	flags.StringVar(&f.results, "results", "results.jsonl", "`file` that results are added to, and that says what is done")
	flags.StringVar(&f.workspace, "workspace", "work", "`folder` of the working folders, one for each script")
	flags.BoolVar(&f.failFast, "fail-fast", false, "start no more scripts once one has failed, as --max-failures 1")
	flags.IntVar(&f.maxFailures, "max-failures", 0, "start no more scripts once `N` have failed")
	flags.Var(&durationFlag{&f.budget}, "budget", "wall time for all of it, such as 8h; what runs then is ended")
	f.register(cmd, "`N` runs of each script; needs --seeds, with one for each")
	a.settingFlags(cmd, false, append(slices.Clone(requestKeys), "json", "quiet")...)
	cmd.SetUsageFunc(groupedUsage)
	return cmd
}

// check refuses flags that make no sense together.
func (f *batchFlags) check(cmd *cobra.Command, args []string) error {
	given := cmd.Flags().Changed
	if f.failFast {
		f.maxFailures = 1
	}
	switch {
	case len(args) > 0 && f.from != "":
		return usagef(cmd.CommandPath(), "batch: give scripts or --from, not both")
	case len(args) == 0 && f.from == "":
		return usagef(cmd.CommandPath(), "batch: there is nothing to run: give scripts or --from")
	case f.parallel < 1 || f.parallel > maxParallel:
		return usagef(cmd.CommandPath(), "batch: --jobs %d: must be between 1 and %d", f.parallel, maxParallel)
	case f.failFast && given("max-failures"):
		return usagef(cmd.CommandPath(), "batch: --fail-fast and --max-failures do not go together")
	case given("max-failures") && f.maxFailures < 1:
		return usagef(cmd.CommandPath(), "batch: --max-failures %d: must be at least 1", f.maxFailures)
	case given("budget") && f.budget <= 0:
		return usagef(cmd.CommandPath(), "batch: --budget must be more than 0")
	case f.workspace == "" || f.results == "":
		return usagef(cmd.CommandPath(), "batch: --workspace and --results must not be empty")
	case f.repeat > 1 && len(f.seeds) == 0:
		return usagef(cmd.CommandPath(), "batch: --repeat needs --seeds: runs that are alike cannot be told apart when a batch goes on")
	}
	return f.evaluateFlags.check(cmd)
}
