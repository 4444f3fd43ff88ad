package evaluate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/harness/evaluate/mlestar"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/gpu"
)

// fieldHints are the hints for the fields of an evaluation.
var fieldHints = map[string]string{
	"data_dir":      "name in the task file the directory of the data, or a directory that contains it as input/",
	"answers":       "give a directory with --answers, apart from the data of the task",
	"sample":        "give the CSV file with the right header, rows and IDs",
	"submission":    "give the name of a file that the script leaves in ./final",
	"cache":         "give a directory with --cache, which is made if it is missing",
	"grader":        "give a Python script with --grader, or a directory with grade.py",
	"alias":         "an alias is NAME=TARGET with --alias, or NAME: TARGET in the task file; a target is input, final or below",
	"score_pattern": "put the number in parentheses, as in 'accuracy: ([0-9.]+)'",
	"layout":        "leave the key out of the task file, or give aliases of your own",
}

// evaluateFlags are the flags of `evaluate` and `batch` that are not settings.
type evaluateFlags struct {
	task, output, name           string
	env                          cli.EnvFlags
	egress                       cli.EgressFlags
	labels                       cli.LabelFlags
	mounts                       cli.MountFlags
	aliases                      cli.AliasFlags
	submission                   submissionFlags
	scorePattern                 string
	grader, answers, graderImage string
	graderTimeout                time.Duration
	parallel                     int
	dryRun, live                 bool
	cache                        string
	repeat                       int
	seeds                        []uint32
	debugCommand                 string
	maxRetries                   int
}

// register gives a command the flags that say how scripts are evaluated. repeat is the help
// of --repeat.
func (f *evaluateFlags) register(cmd *cobra.Command, repeat string) {
	flags := cmd.Flags()
	f.env.Register(flags)
	f.egress.Register(flags)
	f.labels.Register(flags)
	f.mounts.Register(flags)
	f.aliases.Register(flags)
	f.submission.register(cmd)
	flags.StringVar(&f.scorePattern, "score-pattern", "", "regular `expression` with one group, which is the score in a line of stdout; the last match counts")
	flags.StringVar(&f.grader, "grader", "", "Python `script` that scores what the solution left, or a directory with grade.py and its modules")
	flags.StringVar(&f.graderImage, "grader-image", "", "image `name` of the grader (default: that of the scripts)")
	flags.StringVar(&f.answers, "answers", "", "`directory` that only the grader sees")
	flags.Var(cli.Duration(&f.graderTimeout), "grader-timeout", fmt.Sprintf("time limit of the grader (default %v)", evaluate.DefaultGraderTimeout))
	flags.StringVar(&f.cache, "cache", "", "`directory` of known results: what ran before is not run again")
	flags.IntVar(&f.repeat, "repeat", 1, repeat)
	flags.Var(cli.Seeds(&f.seeds, readSeed), "seeds", "a run with each of these seeds, such as 1,2,5-7, as SEED and PYTHONHASHSEED")
	flags.StringVar(&f.debugCommand, "debug-cmd", "", "shell `command` that repairs a script that fails")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print the plan of each evaluation as JSON, and run nothing")
	flags.IntVar(&f.maxRetries, "max-retries", mlestar.DefaultPipelineConfig().MaxDebugAttempts, "repairs at most, `N`")
}

// NewEvaluate returns the command `evaluate`.
func NewEvaluate(a *cli.App) *cobra.Command {
	var f evaluateFlags
	cmd := &cobra.Command{
		Use:   "evaluate SCRIPT.py --task TASK.yaml",
		Short: "Evaluate a solution script: check, run, score",
		Long: `Evaluate a solution of a task: check the script, run it in a fresh container on the
data of the task, and show its score. The script and its final/ are in a working
directory, work/NAME unless --output says otherwise.

The score is the one that the script printed, after "Final Validation Performance:"
unless --score-pattern says otherwise. With --grader and --answers a second container
scores what the script left in final/; only that one sees the answers. With --debug-cmd a script that fails is repaired by a command of yours,
which gets {"script": ..., "error": ..., "traceback": ...} as JSON on stdin and
prints the repaired script.

Ctrl-C asks the running program to end. A second Ctrl-C, at least a second later, ends
it at once.

The exit code is the script's, with the exceptions of 'sandbox run', and 1 when the
script was refused, left a traceback, its submission is wrong or its grading failed.
With several runs it is the highest of their codes.`,
		Example: `  sandbox evaluate svm.py --task task.yaml
  sandbox evaluate svm.py --task task.yaml --sample data/sample_submission.csv --json
  sandbox evaluate svm.py --task task.yaml --grader grader.py --answers answers
  sandbox evaluate svm.py --task task.yaml --seeds 1-5 -j 2
  sandbox evaluate svm.py --task task.yaml --debug-cmd ./fix.sh --max-retries 2`,
		Args:    cobra.ExactArgs(1),
		PreRunE: func(cmd *cobra.Command, _ []string) error { return f.check(cmd) },
		RunE: a.With(func(ctx context.Context, s settings.Settings, args []string) error {
			return runEvaluate(ctx, a, s, f, args[0])
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.task, "task", "", "YAML `file` that describes the task (required)")
	flags.StringVarP(&f.output, "output", "o", "", "working `directory` for the script and its final/ (default work/NAME)")
	flags.StringVar(&f.name, "name", "", "`name` of the solution (default: made of the file's, without .py)")
	flags.IntVarP(&f.parallel, "jobs", "j", 1, "run `N` seeds or repetitions at once")
	flags.BoolVarP(&f.live, "live", "v", false, "show the output of the script while it runs (default at a terminal)")
	f.register(cmd, "run `N` times, and show mean, deviation and 95 % interval")
	a.SettingFlags(cmd, append(slices.Clone(cli.RequestKeys), "json", "quiet")...)
	cmd.SetUsageFunc(cli.GroupedUsage)
	cli.OldNames(cmd, map[string]string{"workspace": "output"})
	return cmd
}

func (f *evaluateFlags) check(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	if given("seeds") && !given("repeat") {
		f.repeat = len(f.seeds)
	}
	return cli.Check(cmd,
		cli.Wrong(f.task == "", "--task is missing"),
		cli.Wrong((f.grader == "") != (f.answers == ""), "--grader and --answers go together"),
		cli.Needs("grader", "grader-timeout", "grader-image"),
		cli.Wrong(f.parallel < 1 || f.parallel > cli.MaxParallel, "--jobs %d: must be between 1 and %d", f.parallel, cli.MaxParallel),
		cli.Wrong(f.live && f.parallel > 1, "--live needs --jobs 1: the output of several scripts would mix"),
		cli.Wrong(given("score-pattern") && f.scorePattern == "", "--score-pattern is empty"),
		cli.Wrong(f.cache != "" && given("mount"), "--cache and --mount do not go together: mounts are not compared by their content"),
		cli.Wrong(given("grader-timeout") && f.graderTimeout <= 0, "--grader-timeout must be more than 0"),
		cli.Wrong(f.repeat < 1, "--repeat %d: must be at least 1", f.repeat),
		cli.Wrong(given("seeds") && len(f.seeds) != f.repeat, "--seeds has %d for --repeat %d", len(f.seeds), f.repeat),
		cli.Wrong(f.maxRetries < 0, "--max-retries %d: must not be negative", f.maxRetries),
		cli.Needs("debug-cmd", "max-retries"),
		cli.Wrong(f.debugCommand != "" && f.repeat > 1, "--debug-cmd and several runs do not go together"),
		cli.Needs("sample", "file", "id-column", "same-order"),
	)
}

func runEvaluate(ctx context.Context, a *cli.App, s settings.Settings, f evaluateFlags, script string) error {
	a.FieldHints = fieldHints
	task, taskErr := f.loadTask()
	text, err := evaluate.ReadScript(script)
	if err := errors.Join(taskErr, err); err != nil {
		return err
	}
	view := cli.AtTerminal
	switch {
	case f.live:
		view = cli.Shown
	case f.parallel > 1:
		view = cli.Hidden
	}
	x, err := a.Begin(ctx, s, view, f.pool(f.repeat > 1, min(f.parallel, maxWaiting))...)
	if err != nil {
		return err
	}
	defer x.Close()
	opts, err := f.options(ctx, x)
	if err != nil {
		return err
	}
	say := func(string, ...any) {}
	if a.ErrTerminal && !s.Quiet {
		say = a.Say
	}
	opts.Grading = func(string) { say("grading") }
	opts.Request.GPUWait = cli.GPUWait(s, f.parallel, s.Timeout())
	h, err := evaluate.New(x.Box, opts)
	if err != nil {
		return err
	}
	name := cmp.Or(f.name, evaluate.ScriptNamed(script).Name)
	job := evaluate.Job{Script: text, File: script, Task: task, Timeout: s.Timeout(), Name: name, Workspace: cmp.Or(f.output, filepath.Join("work", name))}
	if len(f.seeds) == 1 {
		job.Seed = &f.seeds[0]
	}
	if f.dryRun {
		return printPlans(ctx, a, h, evaluate.RepeatOptions{Seeds: f.seeds}.Jobs(job, f.repeat), nil, nil)
	}
	repetition := evaluate.Repetition{Results: make([]evaluate.Result, 1), Workspaces: []string{job.Workspace}}
	ctx, record := x.Trial(ctx, trial.Job{Kind: evaluate.Kind, Name: name}, f.document(script, job))
	switch {
	case f.repeat > 1:
		repetition, err = h.Repeat(ctx, job, f.repeat, evaluate.RepeatOptions{Seeds: f.seeds, Parallel: f.parallel})
	case f.debugCommand != "":
		_, repetition.Results[0], err = h.EvaluateWithRetry(ctx, mlestar.NewSolution(text, mlestar.PhaseInit), task, mlestar.DefaultPipelineConfig(),
			sayingRetries(say, debugCommand(f.debugCommand), f.maxRetries),
			evaluate.RetryOptions{MaxRetries: &f.maxRetries, Timeout: job.Timeout, Name: job.Name, Seed: job.Seed, Workspace: job.Workspace})
	default:
		repetition.Results[0], err = h.Run(ctx, job)
	}
	recordAll(ctx, record, err, repetition)
	_ = x.Ended() // the evaluation has all output
	live := f.live && !s.JSON || f.parallel == 1 && a.LivesHere(s)
	return showEvaluations(ctx, a, repetition, err, f.repeat, live, s)
}

// maxWaiting bounds the containers that wait for the next run.
const maxWaiting = 4

// loadTask reads the task file, and adds the flags that belong to a task.
func (f *evaluateFlags) loadTask() (evaluate.TaskDescription, error) {
	task, err := evaluate.LoadTask(f.task)
	if err == nil && f.scorePattern != "" {
		task.ScorePattern = f.scorePattern
		err = task.Validate()
	}
	return task, err
}

// plannedEvaluation is one evaluation as --dry-run prints it.
type plannedEvaluation struct {
	Name       string  `json:"name"`
	Seed       *uint32 `json:"seed"`
	Repetition int     `json:"repetition"`
	Workspace  string  `json:"workspace"`
	// Done says that a results file has its result, so that it would not run.
	Done bool `json:"done"`
	// Problems are why the script would be refused. Spec is the plan of the run, evalbox/spec/v1.
	Problems []trial.Problem `json:"problems"`
	Spec     json.RawMessage `json:"spec"`
}

// printPlans prints the plans of evaluations. done has their results, or is nil. rounds are those of a
// halving, of whose first round the evaluations are.
func printPlans(ctx context.Context, a *cli.App, h *evaluate.Harness, jobs []evaluate.Job, done []*evaluate.Result, rounds []evaluate.Round) error {
	all := struct {
		Schema string              `json:"schema"`
		Plans  []plannedEvaluation `json:"plans"`
		// Rounds are those of a halving in which every script gets a score.
		Rounds []evaluate.Round `json:"rounds"`
	}{"evalbox/evaluation-plans/v1", []plannedEvaluation{}, append([]evaluate.Round{}, rounds...)}
	for i, job := range jobs {
		plan, err := h.Plan(ctx, job)
		if err != nil {
			return fmt.Errorf("%s: %w", job.Name, err)
		}
		all.Plans = append(all.Plans, plannedEvaluation{
			Name: job.Name, Seed: job.Seed, Repetition: job.Repetition, Workspace: job.Workspace, Done: done != nil && done[i] != nil,
			Problems: plan.Problems, Spec: plan.Detail,
		})
	}
	return a.PrintJSON(all)
}

// pool is the pool of a command whose runs are often of one class; those of one program have the
// keeper's. Programs that end well are not repaired, and a container waits only for a run that
// follows.
func (f *evaluateFlags) pool(repeats bool, size int) []sandbox.Option {
	if !repeats && (f.debugCommand == "" || f.maxRetries < 2) {
		return nil
	}
	return []sandbox.Option{sandbox.WithPool(sandbox.Pool{Size: size})}
}

// document is the job as the log of trials has it.
func (f *evaluateFlags) document(script string, job evaluate.Job) evaluate.Document {
	document := evaluate.Document{Schema: evaluate.JobSchemaV1, TimeoutSeconds: job.Timeout.Seconds()}
	document.ScriptFile, _ = filepath.Abs(script) // empty if the current directory is gone
	document.TaskFile, _ = filepath.Abs(f.task)
	document.Workspace, _ = filepath.Abs(job.Workspace)
	return document
}

// recordAll adds the evaluations of a job to the log of trials.
func recordAll(ctx context.Context, record *cli.Trial, err error, r evaluate.Repetition) {
	var results []trial.Result
	for _, e := range r.Results {
		job := record.Job()
		if e.Seed != nil {
			job.Seed = new(uint64(*e.Seed))
		}
		res, _ := e.Trial(job) // the command reports a result that cannot be encoded
		results = append(results, res)
	}
	record.Record(ctx, err, results...)
}

// options are the settings and flags as the harness takes them.
func (f *evaluateFlags) options(ctx context.Context, x *cli.Session) (opts evaluate.Options, err error) {
	opts = evaluate.Options{Request: x.Settings.Request(), Submission: f.submission.rule(), Cache: f.cache, IO: x.IO, Hooks: x.Hooks}
	if opts.Request.Env, err = f.env.Read(x.App); err != nil {
		return opts, err
	}
	opts.Request.Secrets, opts.Request.Labels = f.env.Secrets(), f.labels.Read()
	var mountErr, aliasErr error
	opts.Request.Egress, err = f.egress.Read(x.App)
	opts.Request.Mounts, mountErr = f.mounts.Read(x.App)
	opts.Request.Aliases, aliasErr = f.aliases.Read(x.App)
	if err = errors.Join(err, mountErr, aliasErr); err != nil {
		return opts, err
	}
	opts.Request.Limits.Timeout = 0
	if f.grader != "" {
		opts.Grader = &evaluate.Grader{Script: f.grader, Answers: f.answers, Image: f.graderImage, Limits: policy.Limits{Timeout: f.graderTimeout}}
	}
	if x.Settings.GPUs == "" {
		return opts, nil
	}
	report, err := x.Runner.GPUs(ctx)
	if err == nil {
		opts.GPUKind, err = gpu.Kind(report.GPUs, x.Settings.GPUs)
	}
	switch {
	case err == nil:
	case f.cache == "": // only a cache must know
		opts.GPUKind, err = "not known", nil
	default:
		err = cli.WithHint(fmt.Errorf("--cache with --gpus: %w", err), "leave --cache out, or see which GPUs there are with: sandbox gpus")
	}
	return opts, err
}

// readSeed reads a seed that Python takes.
func readSeed(text string) (uint32, error) {
	seed, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, errors.New("must be whole numbers from 0 to 4294967295, as in 1,2,3")
	}
	return uint32(seed), nil
}

// showEvaluations shows the evaluations of one script, which ended with err, and sets the exit
// code. runs is how many there should have been; live says that the output of the script has
// been shown already.
func showEvaluations(ctx context.Context, a *cli.App, r evaluate.Repetition, err error, runs int, live bool, s settings.Settings) error {
	// The error already says why the last one never ran.
	if n := len(r.Results); n > 0 && err != nil && r.Results[n-1].Run == nil {
		r.Results = r.Results[:n-1]
	}
	code, open := 0, false
	for _, e := range r.Results {
		code = max(code, cli.ExitCode(ended(e), nil))
		open = open || !e.Conclusive()
	}
	if ctx.Err() != nil && (open || err != nil) {
		err = cmp.Or(err, context.Cause(ctx))
		code = cli.ExitCode(nil, context.Cause(ctx))
	} else if err != nil {
		code = cli.ExitCode(nil, err)
	}
	a.Code = code
	switch {
	case len(r.Results) == 0:
		return err
	case s.JSON && runs > 1:
		return errors.Join(a.PrintJSON(r), err)
	case s.JSON:
		return errors.Join(a.PrintJSON(r.Results[0]), err)
	case s.Quiet:
		return err
	}
	for i, e := range r.Results {
		for _, warning := range e.Warnings {
			a.Warn("%s", warning)
		}
		if printErr := a.Print("%s", render.Evaluation(e, r.Workspaces[i], live)); printErr != nil {
			return printErr
		}
	}
	if runs > 1 && r.Results[0].Run != nil {
		return errors.Join(a.Print("%s", render.Statistics(r.Statistics, len(r.Results))), err)
	}
	return err
}

// ended is how an evaluation ended, as the exit code sees it: as its run, unless anything
// else is wrong.
func ended(e evaluate.Result) *trial.Result {
	if e.Run == nil {
		return &trial.Result{Verdict: trial.Failed}
	}
	end := cli.OfRun(&result.Result{Status: e.Run.Status, ExitCode: e.ExitCode})
	if end.Verdict == trial.Passed && e.Verdict() != trial.Passed {
		end.Verdict = trial.Failed
	}
	return end
}

// sayingRetries reports each repair; most is their maximum. A debug command may be silent for
// minutes.
func sayingRetries(say func(format string, args ...any), debug evaluate.DebugFunc, most int) evaluate.DebugFunc {
	n := 0
	return func(ctx context.Context, solution mlestar.SolutionScript, failure evaluate.Failure) (mlestar.SolutionScript, error) {
		n++
		say("retry %d of %d: asking the debug command", n, most)
		repaired, err := debug(ctx, solution, failure)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			say("retry %d of %d: the debug command failed", n, most)
		default:
			say("retry %d of %d: running the repaired script", n, most)
		}
		return repaired, err
	}
}

const (
	// debugTimeout bounds one repair: a model may think for minutes.
	debugTimeout = 15 * time.Minute
	// maxRepair bounds a repaired script.
	maxRepair = 4 << 20
)

// debugInput is the text that a debugger gets on stdin.
type debugInput struct {
	Script string `json:"script"`
	// Error is never empty; Traceback is null without one.
	Error     string  `json:"error"`
	Traceback *string `json:"traceback"`
}

// debugCommand is a debugger that is a command of the caller's shell. It runs on this
// machine as the caller, gets the script and its error as JSON on stdin, and prints the
// repaired script. A command that fails, prints nothing or too much, or takes too long
// uses up an attempt.
func debugCommand(command string) evaluate.DebugFunc {
	return func(ctx context.Context, solution mlestar.SolutionScript, failure evaluate.Failure) (mlestar.SolutionScript, error) {
		input, err := json.Marshal(debugInput{Script: solution.Content, Error: failure.Text(), Traceback: failure.Traceback})
		if err != nil {
			return solution, err
		}
		text, err := runDebugger(ctx, command, input, debugTimeout)
		if err != nil {
			return solution, err
		}
		repaired := mlestar.NewSolution(text, mlestar.PhaseRefined)
		repaired.SourceModel = solution.SourceModel
		return repaired, nil
	}
}

func runDebugger(ctx context.Context, command string, input []byte, limit time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Stdin = bytes.NewReader(input)
	stdout, stderr := &boundedBuffer{limit: maxRepair, full: cancel}, result.NewHeadTail(4<<10)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	// Processes that the command started may hold the pipes open.
	cmd.WaitDelay = time.Second
	// They are in a process group of their own, which ends with the command. The kernel does
	// not use the number of a group again while a process is in it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err := cmd.Run()
	if cmd.Process != nil {
		_ = cmd.Cancel() // also what a good end left behind; the group may be empty
	}
	switch {
	case stdout.more:
		return "", fmt.Errorf("it printed more than %s", text.Size(maxRepair))
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "", fmt.Errorf("it took more than %v", limit)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		if why := result.ErrorSummary(stderr.Text()); why != "" {
			err = fmt.Errorf("%w: %s", err, why)
		}
		return "", err
	}
	return stdout.kept.String(), nil
}

// boundedBuffer keeps the first bytes. When there are more it says so, and calls full.
// The buffer is not embedded: its ReadFrom would go past the limit.
type boundedBuffer struct {
	kept  bytes.Buffer
	limit int
	more  bool
	full  func()
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	room := min(len(p), b.limit-b.kept.Len())
	b.kept.Write(p[:room]) // never fails
	if room < len(p) && !b.more {
		b.more = true
		b.full()
	}
	return len(p), nil
}
