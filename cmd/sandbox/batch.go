package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/policy"
)

// batchFlags are the flags of `batch` that are not settings.
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

// batchEntry is one evaluation of a batch. Of the script it has the hash only:
// thousands of scripts need not be in memory at once.
type batchEntry struct {
	path, name, folder, sha256 string
	seed                       *uint32
}

// listScripts are the scripts of a command line, or of the list that it names. Those
// with a problem are left out; the error names the problem.
func (f batchFlags) listScripts(ctx context.Context, args []string) ([]evaluate.ListedScript, error) {
	if f.from != "" {
		// It may be a pipe without a writer.
		listed, err := interruptibly(ctx, func() ([]evaluate.ListedScript, error) { return evaluate.LoadList(f.from) })
		wrong := map[string]bool{}
		for _, e := range joined(err) {
			if list := new(evaluate.ListError); errors.As(e, &list) {
				wrong[list.Source+":"+strconv.Itoa(list.Line)] = true
			}
		}
		return slices.DeleteFunc(listed, func(l evaluate.ListedScript) bool { return wrong[l.Source] }), err
	}
	var listed []evaluate.ListedScript
	var errs []error
	for _, path := range args {
		script := evaluate.ScriptNamed(path)
		if err := policy.CheckName("name", script.Name); err != nil {
			errs = append(errs, &evaluate.ListError{Source: path, Rule: err.Error(), Err: err})
			continue
		}
		listed = append(listed, script)
	}
	return listed, errors.Join(errs...)
}

// entries reads every script once and returns the evaluations to do: each script with each
// seed. All problems are reported at once, such as a missing script or a name that is used
// twice.
func (f batchFlags) entries(listed []evaluate.ListedScript) ([]batchEntry, error) {
	var entries []batchEntry
	var errs []error
	refuse := func(l evaluate.ListedScript, rule string, err error) {
		errs = append(errs, &evaluate.ListError{Source: l.Source, Rule: rule, Err: err})
	}
	named, folders := map[string]string{}, map[string]string{}
	for _, l := range listed {
		if first, twice := named[l.Name]; twice {
			refuse(l, fmt.Sprintf("the name %q is that of %s, too: names must differ", l.Name, first), nil)
			continue
		}
		named[l.Name] = l.Source
		text, err := readScript(l.Script)
		switch {
		case err != nil && l.Source == l.Script:
			errs = append(errs, err) // it names the script
			continue
		case err != nil:
			refuse(l, err.Error(), err)
			continue
		}
		seeds := f.seedsOf(l)
		if l.Seed != nil && len(f.seeds) > 0 {
			refuse(l, "has a seed of its own: leave that or --seeds out", nil)
			continue
		}
		for _, seed := range seeds {
			folder := l.Name
			if len(seeds) > 1 {
				folder += "-seed-" + strconv.FormatUint(uint64(*seed), 10)
			}
			if other, twice := folders[folder]; twice {
				refuse(l, fmt.Sprintf("its working folder %s is that of %s, too", folder, other), nil)
				continue
			}
			folders[folder] = l.Source
			entries = append(entries, batchEntry{path: l.Script, name: l.Name, seed: seed,
				folder: filepath.Join(f.workspace, folder), sha256: evaluate.NewSolution(text, evaluate.PhaseInit).SHA256()})
		}
	}
	return entries, errors.Join(errs...)
}

// seedsOf are the seeds that a script is run with; one nil for none.
func (f batchFlags) seedsOf(l evaluate.ListedScript) []*uint32 {
	if len(f.seeds) == 0 {
		return []*uint32{l.Seed}
	}
	var seeds []*uint32
	for _, seed := range f.seeds {
		seeds = append(seeds, new(seed))
	}
	return seeds
}

// solution reads a script again, right before it is evaluated.
func (e batchEntry) solution() (evaluate.SolutionScript, error) {
	text, err := readScript(e.path)
	if err != nil {
		return evaluate.SolutionScript{}, err
	}
	solution := evaluate.NewSolution(text, evaluate.PhaseInit)
	if solution.SHA256() != e.sha256 {
		return solution, &fileError{fileScript, e.path, errors.New("has changed since the batch began")}
	}
	return solution, nil
}

// asked is the evaluation of an entry that did not take place yet.
func (e batchEntry) asked(competition, setup string) evaluate.Evaluation {
	return evaluate.Evaluation{
		Schema: evaluate.EvaluationSchemaV1, Name: e.name, CompetitionID: competition, ScriptSHA256: e.sha256,
		OriginalSHA256: e.sha256, SetupSHA256: setup, Seed: e.seed,
		EvaluationResult: evaluate.EvaluationResult{ExitCode: -1, Warnings: []string{}},
	}
}
