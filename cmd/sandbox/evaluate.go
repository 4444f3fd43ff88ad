package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/harness/evaluate/mlestar"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/gpu"
)

// evaluateFlags are the flags of `evaluate` and `batch` that are not settings.
type evaluateFlags struct {
	task, workspace, name string
	env, envFiles         []string
	submission            submissionFlags
	grader, answers       string
	graderTimeout         time.Duration
	cache                 string
	repeat                int
	seeds                 []uint32
	debugCommand          string
	maxRetries            int
}

// register gives a command the flags that say how scripts are evaluated. repeat is the help
// of --repeat.
func (f *evaluateFlags) register(cmd *cobra.Command, repeat string) {
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.env, "env", "e", nil, "environment variable `NAME=VALUE`, or NAME for the caller's value, if it has one")
	flags.StringArrayVar(&f.envFiles, "env-file", nil, "`file` of environment variables")
	f.submission.register(cmd)
	flags.StringVar(&f.grader, "grader", "", "Python `script` that scores what the solution left")
	flags.StringVar(&f.answers, "answers", "", "`folder` that only the grader sees")
	flags.Var(&durationFlag{&f.graderTimeout}, "grader-timeout", fmt.Sprintf("time limit of the grader (default %v)", evaluate.DefaultGraderTimeout))
	flags.StringVar(&f.cache, "cache", "", "`folder` of known results: what ran before is not run again")
	flags.IntVar(&f.repeat, "repeat", 1, repeat)
	flags.Var(&seedsFlag{&f.seeds}, "seeds", "a run with each of these seeds, as SEED and PYTHONHASHSEED")
	flags.StringVar(&f.debugCommand, "debug-cmd", "", "shell `command` that repairs a script that fails")
	flags.IntVar(&f.maxRetries, "max-retries", mlestar.DefaultPipelineConfig().MaxDebugAttempts, "repairs at most, `N`")
}

func newEvaluateCommand(a *app) *cobra.Command {
	var f evaluateFlags
	cmd := &cobra.Command{
		Use:   "evaluate SCRIPT.py --task TASK.yaml",
		Short: "Evaluate a solution script: check, run, score",
		Long: `Evaluate a solution of a task: check the script, run it in a fresh container on the
data of the task, and tell its score. The script and its final/ are in a working
folder, work/NAME unless --workspace says otherwise.

The score is what the script printed, its own word. With --grader and --answers
a second container scores what the script left in final/; only that one sees the
answers. With --debug-cmd a script that fails is repaired by a command of yours,
which gets {"script": ..., "error": ..., "traceback": ...} as JSON on stdin and
prints the repaired script.

Ctrl-C asks what runs to end; twice ends it at once.

The exit code is the script's, with the exceptions of 'sandbox run', and 1 when the
script was refused, left a traceback, its submission is wrong or its grading failed.
With several runs it is the highest of theirs.`,
		Example: `  sandbox evaluate svm.py --task task.yaml
  sandbox evaluate svm.py --task task.yaml --sample data/sample_submission.csv --json
  sandbox evaluate svm.py --task task.yaml --grader grader.py --answers answers
  sandbox evaluate svm.py --task task.yaml --seeds 1,2,3
  sandbox evaluate svm.py --task task.yaml --debug-cmd ./fix.sh --max-retries 2`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			return a.evaluate(cmd.Context(), f, args[0])
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.task, "task", "", "YAML `file` that describes the task (required)")
	flags.StringVar(&f.workspace, "workspace", "", "working `folder` for the script and its final/ (default work/NAME)")
	flags.StringVar(&f.name, "name", "", "`name` of the solution (default: the file's, without .py)")
	f.register(cmd, "run `N` times, and tell mean, deviation and 95 % interval")
	a.settingFlags(cmd, false, append(slices.Clone(requestKeys), "json", "quiet")...)
	cmd.SetUsageFunc(groupedUsage)
	return cmd
}

// check refuses flags that make no sense together.
func (f *evaluateFlags) check(cmd *cobra.Command) error {
	given, command := cmd.Flags().Changed, subject(cmd)
	if given("seeds") && !given("repeat") {
		f.repeat = len(f.seeds)
	}
	switch {
	case f.task == "":
		return usagef(cmd.CommandPath(), "%s: --task is missing", command)
	case (f.grader == "") != (f.answers == ""):
		return usagef(cmd.CommandPath(), "%s: --grader and --answers go together", command)
	case given("grader-timeout") && f.grader == "":
		return usagef(cmd.CommandPath(), "%s: --grader-timeout needs --grader", command)
	case given("grader-timeout") && f.graderTimeout <= 0:
		return usagef(cmd.CommandPath(), "%s: --grader-timeout must be more than 0", command)
	case f.repeat < 1:
		return usagef(cmd.CommandPath(), "%s: --repeat %d: must be at least 1", command, f.repeat)
	case given("seeds") && len(f.seeds) != f.repeat:
		return usagef(cmd.CommandPath(), "%s: --seeds has %d for --repeat %d", command, len(f.seeds), f.repeat)
	case f.maxRetries < 0:
		return usagef(cmd.CommandPath(), "%s: --max-retries %d: must not be negative", command, f.maxRetries)
	case given("max-retries") && f.debugCommand == "":
		return usagef(cmd.CommandPath(), "%s: --max-retries needs --debug-cmd", command)
	case f.debugCommand != "" && f.repeat > 1:
		return usagef(cmd.CommandPath(), "%s: --debug-cmd and several runs do not go together", command)
	}
	return f.submission.check(cmd, "file", "id-column", "same-order")
}

func (a *app) evaluate(ctx context.Context, f evaluateFlags, script string) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	task, taskErr := evaluate.LoadTask(f.task)
	text, err := evaluate.ReadScript(script)
	if err := errors.Join(taskErr, err); err != nil {
		return err
	}
	runner, err := a.runner(s)
	if err != nil {
		return err
	}
	defer runner.Close()
	opts, err := a.evaluateOptions(ctx, runner, s, f, "sandbox evaluate")
	if err != nil {
		return err
	}
	endLive := a.showLive(&opts.IO, s)
	notes := a.tellSteps(s)
	opts.Grading = notes.grading
	h, err := evaluate.New(a.watched(runner), opts)
	if err != nil {
		return err
	}
	name := cmp.Or(f.name, strings.TrimSuffix(filepath.Base(script), ".py"))
	job := evaluate.Job{Script: text, Task: task, Timeout: s.Timeout(), Name: name, Workspace: cmp.Or(f.workspace, filepath.Join("work", name))}
	if len(f.seeds) == 1 {
		job.Seed = &f.seeds[0]
	}
	repetition := evaluate.Repetition{Results: make([]evaluate.Result, 1), Workspaces: []string{job.Workspace}}
	switch {
	case f.repeat > 1:
		repetition, err = h.Repeat(ctx, job, f.repeat, f.seeds)
	case f.debugCommand != "":
		_, repetition.Results[0], err = h.EvaluateWithRetry(ctx, mlestar.NewSolution(text, mlestar.PhaseInit), task, mlestar.DefaultPipelineConfig(),
			notes.debugging(debugCommand(f.debugCommand), f.maxRetries),
			evaluate.RetryOptions{MaxRetries: &f.maxRetries, Timeout: job.Timeout, Name: job.Name, Seed: job.Seed, Workspace: job.Workspace})
	default:
		repetition.Results[0], err = h.Run(ctx, job)
	}
	a.ended()
	endLive()
	return a.showEvaluations(ctx, repetition, err, evaluationView{f.repeat, a.livesHere(s)}, s)
}

// livesHere says that a terminal shows the output of the script, as with a run. Any other
// reader gets the evaluation only.
func (a *app) livesHere(s settings.Settings) bool {
	return a.outTerminal && a.errTerminal && !s.Quiet && !s.JSON
}

// showLive shows the output of the script at a terminal, until end is called.
func (a *app) showLive(streams *sandbox.IO, s settings.Settings) (end func()) {
	if !a.livesHere(s) {
		return func() {}
	}
	live := a.connect(streams, s)
	return func() { _ = live.finish() } // the evaluation has all output
}

// evaluateOptions are the settings and flags as the harness takes them.
func (a *app) evaluateOptions(ctx context.Context, runner *sandbox.Runner, s settings.Settings, f evaluateFlags, command string,
) (opts evaluate.Options, err error) {
	opts = evaluate.Options{Request: s.Request(), Submission: f.submission.rule()}
	if opts.Request.Env, err = environment(f.env, f.envFiles, a.environ, command); err != nil {
		return opts, err
	}
	waiting := a.tellWaiting(s)
	opts.Hooks = sandbox.Hooks{Kill: a.streams.Kill, Waiting: waiting.say, Started: waiting.end}
	opts.Request.Limits.Timeout = 0
	if f.grader != "" {
		opts.Grader = &evaluate.Grader{Script: f.grader, Answers: f.answers, Limits: policy.Limits{Timeout: f.graderTimeout}}
	}
	opts.GPUKind, err = gpuKindOf(ctx, runner, s.GPUs)
	opts.Cache = f.cache
	if err != nil && f.cache == "" { // only a cache must know
		opts.GPUKind, err = "not known", nil
	}
	return opts, err
}

// seedsFlag is a list of seeds: whole numbers that Python takes.
type seedsFlag struct{ target *[]uint32 }

func (f *seedsFlag) String() string {
	if f.target == nil {
		return "" // the zero value that flag packages compare with
	}
	texts := make([]string, len(*f.target))
	for i, seed := range *f.target {
		texts[i] = strconv.FormatUint(uint64(seed), 10)
	}
	return strings.Join(texts, ",")
}

func (f *seedsFlag) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		seed, err := strconv.ParseUint(strings.TrimSpace(part), 10, 32)
		if err != nil {
			return errors.New("must be whole numbers from 0 to 4294967295, as in 1,2,3")
		}
		*f.target = append(*f.target, uint32(seed))
	}
	return nil
}

func (f *seedsFlag) Type() string { return "S,S,..." }

// gpuKindOf is the kind of the GPUs that runs get, for the key of a cache: a result of other
// GPUs is another result. It is empty if runs get none.
func gpuKindOf(ctx context.Context, runner *sandbox.Runner, gpus string) (string, error) {
	if gpus == "" {
		return "", nil
	}
	report, err := runner.GPUs(ctx)
	if err != nil {
		return "", err
	}
	return gpuKind(report.GPUs, gpus)
}

// gpuKind is the kind of the GPUs of a machine. A run gets its GPUs when it begins, so all
// that can be lent must be of one kind.
func gpuKind(listed []gpu.Listed, gpus string) (string, error) {
	var kinds []string
	count := 0
	for _, g := range listed {
		if g.State == gpu.StateQuarantined {
			continue
		}
		count++
		kind := "unknown"
		if g.Name != "" {
			kind = fmt.Sprintf("%s, %d MiB", g.Name, g.TotalBytes>>20)
		}
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	switch {
	case len(kinds) == 1 && kinds[0] != "unknown" && gpus == "all":
		return fmt.Sprintf("%d × %s", count, kinds[0]), nil
	case len(kinds) == 1 && kinds[0] != "unknown":
		return kinds[0], nil
	case len(kinds) > 1:
		return "", &hintedError{fmt.Errorf("--cache with --gpus: the GPUs are of several kinds (%s): a result of one is none of another",
			strings.Join(kinds, "; ")), "leave --cache out"}
	}
	return "", &hintedError{errors.New("--cache with --gpus: of what kind the GPUs are is not known"),
		"leave --cache out, or see which GPUs there are with: sandbox gpus"}
}
