package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/policy"
)

// batchFlags are the flags of `batch` that are not settings.
type batchFlags struct {
	evaluateFlags
	from, results         string
	parallel, maxFailures int
	failFast              bool
	budget                time.Duration
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

// listScripts returns the scripts of a command line, or of the list that it names. Those with a
// problem are left out; the error names the problem.
func (f batchFlags) listScripts(ctx context.Context, args []string) ([]evaluate.ListedScript, error) {
	if f.from != "" {
		// It may be a pipe without a writer.
		return interruptibly(ctx, func() ([]evaluate.ListedScript, error) { return evaluate.LoadList(f.from) })
	}
	var listed []evaluate.ListedScript
	var errs []error
	for _, path := range args {
		script := evaluate.ScriptNamed(path)
		if err := policy.CheckName("name", script.Name); err != nil {
			errs = append(errs, &evaluate.FileError{Path: path, Rule: err.Error(), Err: err})
			continue
		}
		listed = append(listed, script)
	}
	return listed, errors.Join(errs...)
}

func (a *app) batch(ctx context.Context, f batchFlags, args []string) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	task, taskErr := evaluate.LoadTask(f.task)
	listed, listErr := f.listScripts(ctx, args)
	entries, err := evaluate.Entries(listed, f.seeds, f.workspace)
	if err := errors.Join(taskErr, listErr, err); err != nil {
		return err
	}
	runner, err := a.runner(s)
	if err != nil {
		return err
	}
	defer runner.Close()
	opts, err := a.evaluateOptions(ctx, runner, s, f.evaluateFlags, "sandbox batch")
	if err != nil {
		return err
	}
	var p progress
	p.app, p.quiet = a, s.Quiet
	opts.Request.GPUWait = gpuWait(s, f.parallel, s.Timeout())
	if f.parallel > 1 { // one at a time waits as a single run does
		opts.Hooks.Waiting = func(why string) { p.once("runs wait for each other's GPUs: " + why) }
	}
	h, err := evaluate.New(a.watched(runner), opts)
	if err != nil {
		return err
	}
	log, err := trial.OpenLog(filepath.Join(runner.Store().Dir(), "trials"))
	if err != nil {
		return err
	}
	b := evaluate.BatchOptions{
		Task: task, Timeout: s.Timeout(), Parallel: f.parallel, MaxFailures: f.maxFailures, Budget: f.budget, MaxRetries: f.maxRetries,
		Results: f.results, Workspace: f.workspace, KeepTexts: s.JSON, Log: log,
		More: map[string]string{"debug command": f.debugCommand, "max retries": strconv.Itoa(f.maxRetries)},
		Resumed: func(left evaluate.Resumption, torn int) {
			if torn > 0 {
				a.warn(fmt.Sprintf("%s:%d: the line was cut and is dropped; its script runs again", f.results, torn))
			}
			if text := render.Resumption(left, len(entries), f.results); text != "" && !s.Quiet {
				a.say(text)
			}
			p.start(a, s.Quiet, task.MetricDirection, len(entries), len(entries)-left.Done)
			for _, known := range left.Known {
				if known != nil {
					p.known(*known)
				}
			}
		},
		Running: p.count,
		Ended:   p.end,
		Ending:  func(cause error) { p.say(fmt.Sprintf("%v: ending what runs; Ctrl-C ends it at once", cause)) },
	}
	if f.debugCommand != "" {
		b.Debug = p.debugging(debugCommand(f.debugCommand))
	}
	report, ended := h.Batch(ctx, entries, b)
	p.stop()
	a.ended()
	if report.Results == nil {
		return ended
	}
	return a.reportBatch(report, ended, f, s, task, p.debugFailures.Load())
}

// gpuWait is the time that a run waits for GPUs. Concurrent runs with the same time limit wait
// for each other: at most until all earlier ones have had their time.
func gpuWait(s settings.Settings, parallel int, timeout time.Duration) time.Duration {
	if s.GPUs == "" || parallel == 1 {
		return s.GPUWait
	}
	const slack = 10 * time.Minute // of each run, for its image, outputs and grading
	each := timeout + slack
	if each > time.Duration(1<<62)/time.Duration(parallel) {
		return max(s.GPUWait, 1<<62)
	}
	return max(s.GPUWait, time.Duration(parallel)*each)
}

// reportBatch shows the results of a batch and sets the exit code. ended is the reason of an
// early end; nil if there was none.
func (a *app) reportBatch(report evaluate.BatchReport, ended error, f batchFlags, s settings.Settings, task evaluate.TaskDescription, debugFailures int64) error {
	sum := render.BatchSum(report.Results)
	a.code = batchCode(ended, sum.NotStarted+sum.Inconclusive)
	var err error
	switch {
	case s.JSON:
		encoder := json.NewEncoder(a.streams.Out)
		encoder.SetEscapeHTML(false)
		for _, r := range report.Complete(ended) {
			if err = readerGone(encoder.Encode(r)); err != nil {
				break
			}
		}
	case !s.Quiet:
		err = a.printBatch(report.Results, task, f.repeat > 1)
	}
	if !s.Quiet {
		a.say(sum.Text(f.results, debugFailures))
	}
	return errors.Join(err, errors.Join(report.Errors...), ended)
}

// batchCode is the exit code of a batch.
func batchCode(ended error, missing int) int {
	switch {
	case errors.As(ended, new(*evaluate.FailuresError)):
		return exitProblem
	case errors.Is(ended, evaluate.ErrBudget):
		return exitTimeLimit
	case ended != nil:
		return exitCode(nil, ended)
	case missing > 0:
		return exitSandbox
	}
	return 0
}

// printBatch prints the leaderboard, and a line for each script that ran with several seeds.
func (a *app) printBatch(results []*evaluate.Result, task evaluate.TaskDescription, repeated bool) error {
	var found []evaluate.Result
	var names []string
	byName := map[string][]evaluate.Result{}
	for _, r := range results {
		if r == nil {
			continue
		}
		found = append(found, *r)
		if byName[r.Name] == nil {
			names = append(names, r.Name)
		}
		byName[r.Name] = append(byName[r.Name], *r)
	}
	ranked, err := evaluate.RankResults(found, task.MetricDirection)
	if err != nil || len(ranked) == 0 {
		return err
	}
	err = a.printLeaderboard(render.TaskTitle(task), ranked)
	for _, name := range names {
		if repeated && err == nil {
			err = a.print("%s", name+": "+render.Statistics(evaluate.StatisticsOf(byName[name]), len(byName[name])))
		}
	}
	return err
}
