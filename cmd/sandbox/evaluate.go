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

	"github.com/evalbox/evalbox/cmd/sandbox/internal/terminal"
	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// evaluateFlags are the flags of `evaluate` and `batch` that are no settings.
type evaluateFlags struct {
	task, workspace, name string
	env, envFiles         []string
	submission            submissionFlags
	grader, answers       string
	cache                 string
	repeat                int
	seeds                 []uint
	debugCommand          string
	maxRetries            int
}

// register gives a command the flags that say how scripts are evaluated.
func (f *evaluateFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.env, "env", "e", nil, "environment variable `NAME=VALUE`, or NAME for the caller's value, if it has one")
	flags.StringArrayVar(&f.envFiles, "env-file", nil, "`file` of environment variables")
	f.submission.register(cmd)
	flags.StringVar(&f.grader, "grader", "", "Python `script` that scores what the solution left")
	flags.StringVar(&f.answers, "answers", "", "`folder` that only the grader sees")
	flags.StringVar(&f.cache, "cache", "", "`folder` of known results: what ran before is not run again")
	flags.IntVar(&f.repeat, "repeat", 1, "run `N` times, and tell mean, deviation and 95 % interval")
	flags.UintSliceVar(&f.seeds, "seeds", nil, "one `seed` for each run, as SEED and PYTHONHASHSEED")
	flags.StringVar(&f.debugCommand, "debug-cmd", "", "shell `command` that repairs a script that fails")
	flags.IntVar(&f.maxRetries, "max-retries", evaluate.DefaultPipelineConfig().MaxDebugAttempts, "repairs at most, `N`")
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

The exit code is the script's, with the exceptions of 'sandbox run', and 1 when the
script was refused, left a traceback, its submission is wrong or its grading failed.`,
		Example: `  sandbox evaluate svm.py --task task.yaml
  sandbox evaluate svm.py --task task.yaml --sample data/sample_submission.csv --json
  sandbox evaluate svm.py --task task.yaml --grader grader.py --answers answers
  sandbox evaluate svm.py --task task.yaml --repeat 3 --seeds 1,2,3
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
	f.register(cmd)
	a.settingFlags(cmd, false, append(slices.Clone(requestKeys), "json", "quiet")...)
	return cmd
}

// check refuses flags that make no sense together.
func (f evaluateFlags) check(cmd *cobra.Command) error {
	given, command := cmd.Flags().Changed, subject(cmd)
	for _, seed := range f.seeds {
		if seed > 1<<32-1 {
			return usagef(cmd.CommandPath(), "%s: --seeds %d: Python takes seeds up to 4294967295", command, seed)
		}
	}
	switch {
	case f.task == "":
		return usagef(cmd.CommandPath(), "%s: --task is missing", command)
	case (f.grader == "") != (f.answers == ""):
		return usagef(cmd.CommandPath(), "%s: --grader and --answers go together", command)
	case f.repeat < 1:
		return usagef(cmd.CommandPath(), "%s: --repeat %d: must be at least 1", command, f.repeat)
	case given("seeds") && len(f.seeds) != f.repeat:
		return usagef(cmd.CommandPath(), "%s: --seeds has %d for --repeat %d", command, len(f.seeds), f.repeat)
	case f.maxRetries < 0:
		return usagef(cmd.CommandPath(), "%s: --max-retries %d: must not be negative", command, f.maxRetries)
	case given("max-retries") && f.debugCommand == "":
		return usagef(cmd.CommandPath(), "%s: --max-retries needs --debug-cmd", command)
	case f.debugCommand != "" && f.repeat > 1:
		return usagef(cmd.CommandPath(), "%s: --debug-cmd and --repeat do not go together", command)
	}
	return nil
}

func (a *app) evaluate(ctx context.Context, f evaluateFlags, script string) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	task, err := evaluate.LoadTask(f.task)
	if err != nil {
		return err
	}
	text, err := readScript(script)
	if err != nil {
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
	endLive := a.showLive(&opts.Request, s)
	evaluator, err := evaluate.New(runner, opts)
	if err != nil {
		return err
	}
	name := cmp.Or(f.name, strings.TrimSuffix(filepath.Base(script), ".py"))
	job := evaluate.Job{
		Solution: evaluate.NewSolution(text, evaluate.PhaseInit), Task: task, Timeout: s.evaluationTimeout(),
		Name: name, Workspace: cmp.Or(f.workspace, filepath.Join("work", name)),
	}
	if len(f.seeds) == 1 {
		job.Seed = new(uint32(f.seeds[0]))
	}
	switch {
	case f.repeat > 1:
		return a.evaluateRepeatedly(ctx, evaluator, job, f, s, endLive)
	case f.debugCommand != "":
		_, evaluation, err := evaluator.EvaluateWithRetry(ctx, job.Solution, task, evaluate.DefaultPipelineConfig(), debugCommand(f.debugCommand),
			evaluate.RetryOptions{MaxRetries: &f.maxRetries, Timeout: job.Timeout, Name: job.Name, Seed: job.Seed, Workspace: job.Workspace})
		endLive()
		return a.showEvaluation(evaluation, err, job.Workspace, s)
	}
	evaluation, err := evaluator.Evaluate(ctx, job)
	endLive()
	return a.showEvaluation(evaluation, err, job.Workspace, s)
}

// showLive shows a terminal what the script prints, as a run does. Whatever else reads
// our output gets the evaluation only. The answer ends it.
func (a *app) showLive(req *sandbox.Request, s settings) (end func()) {
	if !a.outTerminal || !a.errTerminal {
		return func() {}
	}
	live := a.connect(req, s)
	return func() { _ = live.finish() } // what could not be shown is in the evaluation
}

// evaluateOptions are the settings and flags as the harness takes them.
func (a *app) evaluateOptions(ctx context.Context, runner *sandbox.Runner, s settings, f evaluateFlags, command string,
) (opts evaluate.Options, err error) {
	opts = evaluate.Options{Request: s.request(), Submission: f.submission.rule()}
	if opts.Request.Env, err = environment(f.env, f.envFiles, a.environ, command); err != nil {
		return opts, err
	}
	waiting := a.tellWaiting(s)
	opts.Request.Kill, opts.Request.Waiting, opts.Request.Started = a.streams.Kill, waiting.say, waiting.end
	opts.Request.Limits.Timeout = 0
	if f.grader != "" {
		opts.Grader = &evaluate.Grader{Script: f.grader, Answers: f.answers}
	}
	if f.cache != "" {
		opts.Cache = &evaluate.Cache{Dir: f.cache}
		opts.Cache.GPUKind, err = gpuKindOf(ctx, runner, s.GPUs)
	}
	return opts, err
}

// evaluationTimeout is the time limit that somebody asked for, or else the shipped
// one, lowered to the ceiling.
func (s settings) evaluationTimeout() time.Duration {
	if s.Limits.Timeout != 0 {
		return s.Limits.Timeout
	}
	if s.Max.Timeout > 0 {
		return min(s.Defaults.Timeout, s.Max.Timeout)
	}
	return s.Defaults.Timeout
}

func (a *app) evaluateRepeatedly(ctx context.Context, evaluator *evaluate.Evaluator, job evaluate.Job, f evaluateFlags, s settings,
	endLive func(),
) error {
	var seeds []uint32
	for _, seed := range f.seeds {
		seeds = append(seeds, uint32(seed))
	}
	repetition, err := evaluator.Repeat(ctx, job, f.repeat, seeds)
	endLive()
	for _, e := range repetition.Evaluations {
		a.code = max(a.code, evaluationCode(e, nil))
	}
	if s.JSON {
		return errors.Join(a.printJSON(repetition), err)
	}
	for _, e := range repetition.Evaluations {
		if err := a.printEvaluation(e, job.Workspace); err != nil {
			return err
		}
	}
	return errors.Join(a.print("%s", statisticsText(repetition.Statistics)), err)
}

// statisticsText is a line on repeated runs.
func statisticsText(s evaluate.Statistics) string {
	text := strconv.Itoa(s.Count) + " scores"
	if s.Mean != nil {
		text += fmt.Sprintf(" · mean %.6g", *s.Mean)
	}
	if s.Deviation != nil {
		text += fmt.Sprintf(" · deviation %.3g · 95 %% interval %.6g to %.6g", *s.Deviation, *s.Low, *s.High)
	}
	return text + "\n"
}

// showEvaluation shows an evaluation and sets the exit code. A script that was
// refused is an evaluation and no failure.
func (a *app) showEvaluation(e evaluate.Evaluation, err error, workspace string, s settings) error {
	if refused := new(evaluate.ScriptError); errors.As(err, &refused) {
		err = nil
	}
	a.code = evaluationCode(e, err)
	switch {
	case e.Run == nil && err != nil:
		return err
	case s.JSON:
		return errors.Join(a.printJSON(e), err)
	case s.Quiet:
		return err
	}
	return errors.Join(a.printEvaluation(e, workspace), err)
}

// printEvaluation prints what is wrong with an evaluation, and then one line.
func (a *app) printEvaluation(e evaluate.Evaluation, workspace string) error {
	for _, warning := range e.Warnings {
		a.warn(warning)
	}
	text := ""
	if e.IsError {
		text += evaluate.Failure{Traceback: e.ErrorTraceback, Evaluation: e}.Text() + "\n"
	}
	text += checkText(e.Submission)
	if e.Grading != nil && e.Grading.Failure != "" && e.Valid() {
		text += "not graded: " + e.Grading.Failure + "\n"
	}
	parts := []string{e.Name, evaluationStatus(e)}
	if e.GradedScore != nil {
		parts = append(parts, "graded "+formatScore(*e.GradedScore))
	}
	if e.Score != nil {
		parts = append(parts, "score "+formatScore(*e.Score)+" (its own word)")
	}
	if e.Seed != nil {
		parts = append(parts, "seed "+strconv.FormatUint(uint64(*e.Seed), 10))
	}
	if e.Run != nil {
		parts = append(parts, formatSeconds(e.DurationSeconds))
		if !e.Cached {
			parts = append(parts, "outputs in "+filepath.Join(workspace, "final"))
		}
		parts = append(parts, "id "+e.Run.ID)
	}
	return a.print("%s%s\n", text, strings.Join(parts, " · "))
}

// evaluationCode is the exit code of an evaluation: the script's with the
// exceptions of a run, and 1 for whatever else is wrong with it.
func evaluationCode(e evaluate.Evaluation, err error) int {
	if err != nil {
		return exitCode(nil, err)
	}
	if e.Run == nil {
		return exitProblem
	}
	code := resultCode(&result.Result{Status: e.Run.Status, ExitCode: e.ExitCode})
	if code == 0 && (!e.Valid() || e.Submission != nil && !e.Submission.OK || e.Grading != nil && e.Grading.Failure != "") {
		return exitProblem
	}
	return code
}

// warn prints a warning. A stderr that cannot be written to takes none.
func (a *app) warn(text string) {
	fmt.Fprintf(a.streams.Err, "sandbox: warning: %s\n", terminal.Line(text))
}
