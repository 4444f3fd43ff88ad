package evaluate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/harness/evaluate/mlestar"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/result"
)

type batchFlags struct {
	evaluateFlags
	from, results string
	metricsAt     string
	maxFailures   int
	failFast      bool
	budget        time.Duration
	rerun         []string
	halvingText   string
	halving       evaluate.Halving // if halvingText is not empty
}

// NewBatch returns the command `batch`.
func NewBatch(a *cli.App) *cobra.Command {
	var f batchFlags
	cmd := &cobra.Command{
		Use:   "batch [flags] SCRIPT.py... --task TASK.yaml\n  sandbox batch [flags] --from LIST.jsonl --task TASK.yaml",
		Short: "Evaluate many solution scripts, and continue after an interruption",
		Long: `Evaluate solution scripts of a task, one after the other or N at once, each in a
fresh container with a working directory of its own, and end with a leaderboard.

Each result is on the disk as soon as its script has ended: a line of the results
file. The same command, given again after a crash or Ctrl-C, runs only what has no
conclusive result there yet. A script or a task that has changed is run again, and
so is everything when it is to be evaluated in another way. What counts is script,
seed, task, image, limits, environment, GPUs, grader, answers and sample; the data
are not compared. After a higher --timeout, --output-limit, --memory, --disk,
--pids-limit, --tmp-size, --shm-size or --scratch-size only those scripts run again
that the lower limit may have ended. --rerun runs further ones again.

A directory stands for the *.py files in it.

A script that is refused, also one that is not UTF-8, is a result like others. With
--fail-fast and --max-failures a script whose grading fails has failed, too; they count
the failures of this call only.

With --halving MIN:MAX all scripts run with the resource MIN, then the best third
of them with three times as much, and so on until MAX: successive halving. With
MIN:MAX:2 it is half of them with twice as much. A script reads its resource
from EVALBOX_RESOURCE: the number of epochs, steps or trees, for example. A
round that is done is not run again. The time limit is that of each run.

A list has one object per line: {"script": "svm.py", "name": "svm", "seed": 1}.
Only script is required; a relative one is relative to the list.

--json prints one evaluation per line, in the order of the scripts. --json-lines prints
each when its script has ended, those that the results file has first.

Ctrl-C asks the running programs to end, and keeps their work as not conclusive. A
second Ctrl-C, at least a second later, ends them at once. When --budget is used up,
the running programs are ended in the same way. With --fail-fast and --max-failures the
running programs continue to their end.

The exit code is 0 when every script has a conclusive result, good or bad; 1 when
too many scripts failed; 124 when the budget is used up; 125 when the sandbox
failed or refused; 130 when interrupted; 2 for wrong usage.`,
		Example: `  sandbox batch solutions/*.py --task task.yaml
  sandbox batch --from list.jsonl --task task.yaml -j 4 --budget 8h
  sandbox batch solutions/*.py --task task.yaml -j 8 --gpus 1
  sandbox batch solutions --task task.yaml --seeds 1-3
  sandbox batch solutions --task task.yaml --halving 1:27
  sandbox batch solutions --task task.yaml --rerun timed_out
  sandbox batch solutions/*.py --task task.yaml --json > ordered.jsonl`,
		Args:    cobra.ArbitraryArgs,
		PreRunE: f.check,
		RunE:    a.With(func(ctx context.Context, s settings.Settings, args []string) error { return batch(ctx, a, s, f, args) }),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.task, "task", "", "YAML `file` that describes the task (required)")
	flags.StringVar(&f.from, "from", "", "`file` that lists the scripts, one JSON object per line")
	flags.IntVarP(&f.parallel, "jobs", "j", 1, "run `N` scripts at once")
	flags.BoolVarP(&f.live, "live", "v", false, "show the output of the scripts while they run")
	flags.Var(cli.List(&f.rerun, "WHICH,...", cli.Each(cli.Text)), "rerun", "run again although there is a result: failed, timed_out, inconclusive, all, or NAME of a script")
	flags.StringVar(&f.results, "results", "results.jsonl", "`file` that results are added to, and that says what is done")
	flags.StringVarP(&f.output, "output", "o", "work", "`directory` of the working directories, one for each script")
	flags.BoolVar(&f.failFast, "fail-fast", false, "start no more scripts once one has failed, as --max-failures 1")
	flags.IntVar(&f.maxFailures, "max-failures", 0, "start no more scripts once `N` have failed")
	flags.Var(cli.Duration(&f.budget), "budget", "wall time for all of it, such as 8h; what runs then is ended")
	cli.MetricsFlag(flags, &f.metricsAt)
	flags.StringVar(&f.halvingText, "halving", "", "run all scripts with a small resource, and the best again with more: `MIN:MAX[:ETA]`, such as 1:27:3")
	f.register(cmd, "`N` runs of each script; needs --seeds, with one for each")
	a.SettingFlags(cmd, append(slices.Clone(cli.RequestKeys), "json", "quiet")...)
	flags.BoolVar(&a.JSONLines, "json-lines", false, "print each evaluation as a line of JSON when its script has ended, and nothing else on stdout")
	cmd.SetUsageFunc(cli.GroupedUsage)
	cli.OldNames(cmd, map[string]string{"workspace": "output"})
	cli.Choices(cmd, "rerun", "failed\tscripts that did not end well", "timed_out\tscripts that the time limit ended", "inconclusive\tscripts without a conclusive result, which always run again", "all\tall scripts")
	return cmd
}

func (f *batchFlags) check(cmd *cobra.Command, args []string) error {
	given := cmd.Flags().Changed
	if f.failFast {
		f.maxFailures = 1
	}
	var halvingErr error
	if given("halving") {
		f.halving, halvingErr = evaluate.ParseHalving(f.halvingText)
	}
	return cli.Check(cmd,
		cli.Wrong(len(args) > 0 && f.from != "", "give scripts or --from, not both"),
		cli.Wrong(len(args) == 0 && f.from == "", "there is nothing to run: give scripts or --from"),
		cli.Apart("fail-fast", "max-failures"),
		cli.Apart("json", "json-lines"),
		cli.Apart("dry-run", "json-lines"),
		cli.Apart("dry-run", "metrics-listen"),
		cli.NotEmpty("", "metrics-listen"),
		cli.Apart("halving", "debug-cmd"),
		cli.Wrong(halvingErr != nil, "--%v", halvingErr),
		cli.Wrong(given("max-failures") && f.maxFailures < 1, "--max-failures %d: must be at least 1", f.maxFailures),
		cli.Wrong(given("budget") && f.budget <= 0, "--budget must be more than 0"),
		cli.Wrong(f.output == "" || f.results == "", "--output and --results must not be empty"),
		cli.Wrong(f.repeat > 1 && len(f.seeds) == 0, "--repeat needs --seeds: runs that are alike cannot be told apart when a batch goes on"),
		f.evaluateFlags.check,
	)
}

// listScripts returns the scripts of a command line, or of the list that it names. Those with a
// problem are left out; the error names the problem.
func (f batchFlags) listScripts(ctx context.Context, args []string) ([]evaluate.ListedScript, error) {
	if f.from != "" {
		// It may be a pipe without a writer.
		return cli.Interruptibly(ctx, func() ([]evaluate.ListedScript, error) { return evaluate.LoadList(f.from) })
	}
	var listed []evaluate.ListedScript
	var errs []error
	paths, err := scriptPaths(args)
	if err != nil {
		errs = append(errs, err)
	}
	for _, path := range paths {
		listed = append(listed, evaluate.ScriptNamed(path))
	}
	return listed, errors.Join(errs...)
}

// renamed says how scripts are called whose files have other names; empty for none.
func renamed(listed []evaluate.ListedScript) string {
	var names []string
	for _, l := range listed {
		if file := strings.TrimSuffix(filepath.Base(l.Script), ".py"); l.Name != file && l.Name == evaluate.ScriptNamed(l.Script).Name {
			names = append(names, text.Fit(filepath.Base(l.Script), text.Most)+" is "+l.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "names: " + text.First(names, 5, ", ")
}

// scriptPaths returns the scripts that arguments name: a directory stands for its *.py files. A path
// with a wildcard that does not exist is a pattern of the shell that matched nothing.
func scriptPaths(args []string) ([]string, error) {
	var paths []string
	var errs []error
	refuse := func(path, rule string) {
		errs = append(errs, cli.WithHint(&evaluate.FileError{Path: path, Rule: rule}, "give the paths of Python scripts, or a directory that contains some"))
	}
	for _, path := range args {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(path, "*?["):
			refuse(path, "does not exist (the pattern matched nothing)")
		case err != nil || !info.IsDir():
			paths = append(paths, path) // its reader says what is wrong with it
		default:
			entries, err := os.ReadDir(path)
			if err != nil {
				refuse(path, fsx.Cause(err).Error())
				continue
			}
			found := len(paths)
			for _, entry := range entries { // they are sorted
				if name := entry.Name(); strings.HasSuffix(name, ".py") && !entry.IsDir() {
					paths = append(paths, filepath.Join(path, name))
				}
			}
			if len(paths) == found {
				refuse(path, "contains no *.py file")
			}
		}
	}
	return paths, errors.Join(errs...)
}

// again returns which results of the results file do not count; nil for --rerun not given. A word
// that is neither a kind of result nor the name of a script is an error.
func (f batchFlags) again(a *cli.App, entries []evaluate.Entry) (func(evaluate.Result) bool, error) {
	var errs []error
	for _, which := range f.rerun {
		known := slices.Contains([]string{"failed", "timed_out", "inconclusive", "all"}, which)
		if !known && !slices.ContainsFunc(entries, func(e evaluate.Entry) bool { return e.Name == which }) {
			errs = append(errs, cli.Usagef(a.Command, "--rerun %.200q: must be failed, timed_out, inconclusive, all or the name of a script of the batch", which))
		}
	}
	if len(f.rerun) == 0 || errs != nil {
		return nil, errors.Join(errs...)
	}
	return func(r evaluate.Result) bool {
		return slices.ContainsFunc(f.rerun, func(which string) bool {
			switch which {
			case "failed":
				return r.Verdict() != trial.Passed
			case "timed_out":
				return r.Run != nil && r.Run.Status == result.StatusTimedOut
			}
			return which == "all" || which == r.Name
		})
	}, nil
}

func batch(ctx context.Context, a *cli.App, s settings.Settings, f batchFlags, args []string) error {
	a.FieldHints = fieldHints
	s.JSON = s.JSON || a.JSONLines
	task, taskErr := f.loadTask()
	listed, listErr := f.listScripts(ctx, args)
	entries, err := evaluate.Entries(listed, f.seeds, f.output)
	if err := errors.Join(taskErr, listErr, err); err != nil {
		return err
	}
	again, err := f.again(a, entries)
	if err != nil {
		return err
	}
	served, err := a.ServeMetrics(ctx, f.metricsAt)
	if err != nil {
		return err
	}
	defer served.Close()
	if note := renamed(listed); note != "" && !s.Quiet {
		a.Say("%s", note)
	}
	view := cli.Hidden
	if f.live {
		view = cli.Shown
	}
	x, err := a.Begin(ctx, s, view, f.pool(f.maxFailures > 0 || f.debugCommand != "", min(f.parallel, maxWaiting))...)
	if err != nil {
		return err
	}
	defer x.Close()
	opts, err := f.options(ctx, x)
	if err != nil {
		return err
	}
	var p progress
	lines := jsonLines{out: a.Out, early: a.JSONLines}
	runs := len(entries) // of a round, if there are rounds
	opts.Request.GPUWait = cli.GPUWait(s, f.parallel, s.Timeout())
	if f.parallel > 1 { // one at a time waits as a single run does
		opts.Hooks.Waiting = func(why string) { p.Once("runs wait for " + why) }
	}
	h, err := evaluate.New(served.Box(x.Box), opts)
	if err != nil {
		return err
	}
	b := evaluate.BatchOptions{
		Task: task, Timeout: s.Timeout(), Parallel: f.parallel, MaxFailures: f.maxFailures, Budget: f.budget, MaxRetries: f.maxRetries,
		Results: f.results, Workspace: f.output, Again: again, KeepTexts: s.JSON, Log: x.Trials(), LogFailed: x.LogFailed,
		More: map[string]string{"debug command": f.debugCommand, "max retries": strconv.Itoa(f.maxRetries)},
		Round: func(r evaluate.Round) {
			p.Stop()
			p.begin(r)
			if runs = r.Runs; !s.Quiet {
				a.Say("%s", render.Round(r))
			}
		},
		Resumed: func(left evaluate.Resumption, torn int) {
			if torn > 0 {
				a.Warn("%s:%d: the line was cut and is dropped; its script runs again", f.results, torn)
			}
			if text := render.Resumption(left, runs); text != "" && !s.Quiet {
				a.Say("%s", text)
			}
			p.direction, p.More, p.Lines = task.MetricDirection, p.more, f.live
			for _, known := range left.Known {
				if known != nil {
					p.note(*known)
					lines.ended(*known)
				}
			}
			p.Start(a, s.Quiet, runs, runs-left.Done)
			served.Expect(runs - left.Done)
		},
		Running: p.Running, Events: served.Event,
		Ended: func(e evaluate.Result) {
			p.ended(e)
			lines.ended(e)
		},
		Ending: func(cause error) { p.Say("%v: stopping what runs; press Ctrl-C again to kill it", cause) },
	}
	if f.dryRun {
		return f.planBatch(ctx, a, h, entries, b)
	}
	if f.debugCommand != "" {
		b.Debug = p.debugging(debugCommand(f.debugCommand))
	}
	report, ended := f.runBatch(ctx, h, entries, b)
	p.Stop()
	_ = x.Ended() // no output was shown
	if report.Results == nil {
		return ended
	}
	err = reportBatch(a, report.BatchReport, ended, f, s, task, p.debugFailures.Load(), &lines)
	if len(report.Rounds) > 0 && !s.Quiet {
		a.Say("%s", render.Halving(report))
	}
	return err
}

// runBatch runs a batch, in rounds with --halving. Without it, the report has no rounds.
func (f batchFlags) runBatch(ctx context.Context, h *evaluate.Harness, entries []evaluate.Entry, b evaluate.BatchOptions) (report evaluate.HalvingReport, err error) {
	if f.halvingText != "" {
		return h.Halve(ctx, entries, b, f.halving)
	}
	report.BatchReport, err = h.Batch(ctx, entries, b)
	return report, err
}

// planBatch prints the plan of each entry: with --halving those of the first round, and all rounds.
func (f batchFlags) planBatch(ctx context.Context, a *cli.App, h *evaluate.Harness, entries []evaluate.Entry, b evaluate.BatchOptions) error {
	rounds := f.rounds(entries)
	if len(rounds) > 0 {
		b.Resource = rounds[0].Resource
	}
	left, err := h.Resumption(ctx, entries, b)
	if err != nil {
		return err
	}
	jobs := make([]evaluate.Job, len(entries))
	for i, e := range entries {
		if jobs[i], err = b.Job(e); err != nil {
			return err
		}
	}
	return printPlans(ctx, a, h, jobs, left.Known, rounds)
}

// rounds are those of a halving of these entries; nil without a halving.
func (f batchFlags) rounds(entries []evaluate.Entry) []evaluate.Round {
	if f.halvingText == "" || len(entries) == 0 {
		return nil
	}
	names := map[string]bool{}
	for _, e := range entries {
		names[e.Name] = true
	}
	return f.halving.Plan(len(names), len(entries)/len(names))
}

// reportBatch shows the results of a batch and sets the exit code. ended is the reason of an
// early end; nil if there was none.
func reportBatch(a *cli.App, report evaluate.BatchReport, ended error, f batchFlags, s settings.Settings, task evaluate.TaskDescription, debugFailures int64, lines *jsonLines) error {
	sum := render.BatchSum(report.Results)
	a.Code = batchCode(ended, sum.NotStarted+sum.Inconclusive)
	var err error
	switch {
	case s.JSON:
		for _, r := range report.Complete(ended) {
			lines.print(r)
		}
		err = cli.ReaderGone(lines.err)
	case !s.Quiet:
		err = printBatch(a, report.Complete(ended), task, f.repeat > 1)
	}
	if !s.Quiet {
		a.Say("%s", sum.Text(f.results, debugFailures))
	}
	return errors.Join(err, errors.Join(report.Errors...), ended)
}

// jsonLines prints evaluations, each on a line and once. A reader that goes away does not harm
// the batch.
type jsonLines struct {
	out     io.Writer
	early   bool // each is printed when its script has ended
	printed map[string]bool
	err     error
}

func (l *jsonLines) ended(r evaluate.Result) {
	if l.early {
		l.print(r.Bounded())
	}
}

func (l *jsonLines) print(r evaluate.Result) {
	seed := int64(-1)
	if r.Seed != nil {
		seed = int64(*r.Seed)
	}
	key := fmt.Sprintf("%s %d %d %d", r.Name, seed, r.Repetition, r.Resource)
	if l.err != nil || l.printed[key] {
		return
	}
	if l.printed == nil {
		l.printed = map[string]bool{}
	}
	l.printed[key] = true
	encoder := json.NewEncoder(l.out)
	encoder.SetEscapeHTML(false)
	l.err = encoder.Encode(r)
}

// batchCode is the exit code of a batch that has no result of some scripts.
func batchCode(ended error, missing int) int {
	end := &trial.Result{Verdict: trial.Passed}
	switch {
	case errors.As(ended, new(*evaluate.FailuresError)):
		end.Verdict, ended = trial.Failed, nil
	case errors.Is(ended, evaluate.ErrBudget):
		end.Reason, ended = result.StatusTimedOut.String(), nil
	case missing > 0:
		end.Verdict = trial.Inconclusive
	}
	return cli.ExitCode(end, ended)
}

// printBatch prints the leaderboard, and a line for each script that ran with several seeds.
func printBatch(a *cli.App, results []evaluate.Result, task evaluate.TaskDescription, repeated bool) error {
	var names []string
	byName := map[string][]evaluate.Result{}
	for _, r := range results {
		if byName[r.Name] == nil {
			names = append(names, r.Name)
		}
		byName[r.Name] = append(byName[r.Name], r)
	}
	ranked, err := evaluate.RankResults(results, task.MetricDirection)
	if err != nil || len(ranked) == 0 {
		return err
	}
	err = printLeaderboard(a, render.TaskTitle(task), render.Board{Ranked: ranked, Direction: task.MetricDirection, Baseline: task.BaselineValue})
	for _, name := range names {
		if repeated && err == nil {
			err = a.Print("%s", name+": "+render.Statistics(evaluate.StatisticsOf(byName[name]), len(byName[name])))
		}
	}
	return err
}

// progress is the [cli.Progress] of a batch, which also shows failures and the best score.
type progress struct {
	cli.Progress

	direction evaluate.MetricDirection
	repairing int
	// debugFailures counts the debug commands that failed.
	debugFailures atomic.Int64
	graded        bool
	failed        int
	best          *float64
	round         string // of a halving
}

// begin begins to count anew for a round.
func (p *progress) begin(r evaluate.Round) {
	p.failed, p.graded, p.best = 0, false, nil
	p.round = fmt.Sprintf(" in round %d of %d", r.Number, r.Of)
}

// more is further text for the bar.
func (p *progress) more() string {
	shown := p.round
	if p.failed > 0 {
		shown += fmt.Sprintf(" · %d failed", p.failed)
	}
	if p.repairing > 0 {
		shown += fmt.Sprintf(", %d in repair", p.repairing)
	}
	if p.best != nil {
		shown += fmt.Sprintf(" · best %.6g", *p.best) // as in the leaderboard: a line that is wider than the terminal is drawn again and again
	}
	return shown
}

// debugging counts the scripts that are being repaired, and the repairs that fail.
func (p *progress) debugging(debug evaluate.DebugFunc) evaluate.DebugFunc {
	return func(ctx context.Context, solution mlestar.SolutionScript, failure evaluate.Failure) (mlestar.SolutionScript, error) {
		p.Update(func() { p.repairing++ })
		defer p.Update(func() { p.repairing-- })
		repaired, err := debug(ctx, solution, failure)
		if err != nil && ctx.Err() == nil {
			p.debugFailures.Add(1)
		}
		return repaired, err
	}
}

// note counts a failure, and keeps the best score: of graded ones, as soon as there is one.
func (p *progress) note(e evaluate.Result) {
	if e.Conclusive() && !e.EndedWell() {
		p.failed++
	}
	if e.Grading != nil && !p.graded {
		p.graded, p.best = true, nil
	}
	score := e.BestScore()
	if !e.Valid() || score == nil || p.graded && e.GradedScore == nil {
		return
	}
	if p.best == nil || evaluate.IsImprovement(*score, *p.best, p.direction) {
		p.best = score
	}
}

// ended shows how a script ended.
func (p *progress) ended(e evaluate.Result) {
	p.Update(func() { p.note(e) })
	p.End(render.EvaluationEnd(e))
	if text := render.EvaluationWarning(e); text != "" {
		p.Say("warning: %s", text)
	}
}
