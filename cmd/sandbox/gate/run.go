package gate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/contract/registry"
	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/execute"
	"github.com/evalbox/evalbox/harness/gate/report"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/policy"
)

type gateFlags struct {
	gate.Document
	mode, tools, junit, summary, sign, annotations string
	live, keep, dryRun                             bool
	env                                            []string
	egress                                         cli.EgressFlags
	labels                                         cli.LabelFlags
}

const (
	// defaultOut is the gate directory.
	defaultOut = "gate.out"
	// shownOutput is how many lines of the output of a failed gate are shown.
	shownOutput = 20
	// maxRepeats bounds how often everything runs.
	maxRepeats = 20

	modePlan, modeExecute = "plan", "execute"
)

// gateKeys are the settings that are flags of `gate run` and `replay`: the wish says the
// rest.
var gateKeys = []string{"runtime", "user", "transfer", "json", "quiet", "raw"}

func newRun(a *cli.App) *cobra.Command {
	var f gateFlags
	cmd := &cobra.Command{
		Use:   "run [wish.lock.json | -- COMMAND...]",
		Short: "Run a sealed wish, and judge it",
		Long: `Run the commands of a sealed wish, each in a fresh container with a copy of the
workspace, and judge what happened. Without a wish, ./wish.lock.json is run; after --
one command, sealed on the spot, with the flags for its environment, limits and network.
Nothing is written back to the workspace.

The gate directory of --output holds the evidence: logs, test cases, hashes, what the
commands tried, GATES.json for a replay, and ExecutionVerdict.json.

The commands do not see reports that lie in the workspace. A sealed wish must name
them with exclude, because the next run and a replay would find another workspace.

In GitHub Actions, failing tests become annotations, and the summary of the job gets a
part.

The exit code is 0 PASS, 1 BLOCKED, 3 NEED_INFO, 2 wrong usage, 125 the gate could
not be carried out, 130 interrupted.`,
		Example: `  sandbox gate run -- pytest -q
  sandbox gate run --timeout 30m --memory 4g -- pytest -q
  sandbox gate run wish.lock.json --strict --junit ../junit.xml
  sandbox gate run --baseline HEAD~1 --prove-deterministic 2
  sandbox gate run wish.yaml --seal --sign gate.key --summary github`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(a, cmd, args); err != nil {
				return err
			}
			return runGate(cmd.Context(), a, f)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.Out, "output", "o", defaultOut, "`directory` for the evidence; an earlier run in it moves to directory.1")
	flags.BoolVar(&f.Replace, "replace", false, "remove an earlier run in that directory, which otherwise moves aside")
	flags.BoolVar(&f.Seal, "seal", false, "seal a wish that is not sealed, on the spot")
	flags.StringVar(&f.Workspace, "root", "", "`directory` to run a command in (default: the current one)")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "environment variable `NAME=VALUE` of a command, or NAME for the caller's value; it is in the evidence")
	f.egress.Register(flags)
	f.labels.Register(flags)
	flags.BoolVar(&f.dryRun, "dry-run", false, "check everything, print what would be run as JSON, and run nothing")
	flags.StringVar(&f.mode, "mode", modeExecute, "`mode` of the run: execute, or plan, in which running anything is a violation")
	flags.BoolVar(&f.Offline, "offline", false, "no network, whatever the wish says")
	flags.BoolVar(&f.Strict, "strict", false, "demand a clean tree and full observation, whatever the wish says")
	flags.BoolVar(&f.AllowUnobserved, "allow-unobserved", false, "accept that nothing observes attempts, for a command on an engine where nothing can")
	flags.StringVar(&f.Baseline, "baseline", "", "run on this `revision` first: no more tests may fail than there")
	flags.StringVar(&f.Commit, "commit", "", "run the files of this `revision` from a private checkout; implies --strict")
	flags.IntVar(&f.Repeats, "prove-deterministic", 1, "run everything `N` times, with the same outcome each time")
	flags.StringVar(&f.tools, "registry", "", "registry of tools, a `file`: no other command may run")
	flags.BoolVar(&f.NoTools, "no-tools", false, "run nothing: tools are switched off")
	flags.StringVar(&f.junit, "junit", "", "`file` for a report in JUnit XML")
	flags.StringVar(&f.summary, "summary", "", "`file` for a summary in Markdown, - for stdout, github for the summary of the job")
	flags.StringVar(&f.annotations, "annotations", annotateAuto, "`kind` of annotations for a CI system: github, none, or auto: github in GitHub Actions")
	flags.StringVar(&f.sign, "sign", "", "sign the evidence with the private key in this `file` (PEM)")
	flags.BoolVarP(&f.live, "live", "v", false, "show the output of the commands while they run")
	flags.BoolVar(&f.keep, "keep", false, "keep the records of the runs")
	a.SettingFlags(cmd, append([]string{"image", "allow_unlocked", "timeout", "memory", "cpus"}, gateKeys...)...)
	cli.OldNames(cmd, map[string]string{"out": "output", "tools": "registry"})
	cli.Choices(cmd, "mode", modeExecute+"\trun the commands", modePlan+"\trunning anything is a violation")
	cli.Choices(cmd, "annotations", annotateAuto+"\tgithub in GitHub Actions", annotateGitHub+"\terrors of GitHub Actions", annotateNone)
	cmd.SetUsageFunc(cli.GroupedUsage)
	return cmd
}

// check refuses flags that contradict each other, and finds the wish or the command.
func (f *gateFlags) check(a *cli.App, cmd *cobra.Command, args []string) error {
	switch dash := cmd.ArgsLenAtDash(); {
	case dash >= 0 && len(args[dash:]) == 0:
		return cli.Misuse(cmd, "there is no command after --")
	case dash > 0:
		return cli.Misuse(cmd, "a wish and a command do not go together")
	case dash == 0:
		f.Command = args
	case len(args) > 1:
		return cli.Misuse(cmd, "%q: give one wish, or a command after --", args[1])
	case len(args) == 1:
		f.Wish = args[0]
	default:
		f.Wish = defaultLock
	}
	rules := []cli.Rule{
		cli.Wrong(f.mode != modePlan && f.mode != modeExecute, "--mode %q: must be plan or execute", f.mode),
		cli.Wrong(f.Repeats < 1 || f.Repeats > maxRepeats, "--prove-deterministic %d: must be between 1 and %d", f.Repeats, maxRepeats),
		cli.Wrong(!slices.Contains([]string{annotateAuto, annotateGitHub, annotateNone}, f.annotations), "--annotations %q: must be auto, github or none", f.annotations),
		cli.NotEmpty("", "output", "root", "baseline", "commit", "registry", "junit", "summary", "sign", "image"),
		cli.Wrong(f.Seal && f.Command != nil, "--seal is for a wish; a command is sealed on the spot"),
		cli.Wrong(f.AllowUnobserved && f.Command == nil, "--allow-unobserved is for a command; a wish says it with allow_unobserved"),
		cli.Wrong(f.AllowUnobserved && (f.Strict || f.Commit != ""), "--allow-unobserved and --strict do not go together: strict demands full observation"),
	}
	for _, own := range []struct{ flag, key string }{
		{"root", "io_boundary"}, {"env", "env"}, {"timeout", "limits"}, {"memory", "limits"}, {"cpus", "limits"}, {"allow-host", "network"}, {"add-host", "network"}, {"egress", "network"},
	} {
		if f.Command == nil && cmd.Flags().Changed(own.flag) {
			return cli.UsageHint("see all keys of a wish with: sandbox gate new", "gate run: --%s is for a command after --; a wish has the key %s", own.flag, own.key)
		}
	}
	for _, key := range []string{"image", "allow_unlocked"} {
		v, given := a.Given[key]
		rules = append(rules, cli.Wrong(given && f.Command == nil && !f.Seal, "%s does not go with a sealed wish, which says what it runs in", v.Name))
	}
	json, given := a.Given["json"]
	return cli.Check(cmd, append(rules,
		cli.Wrong(given && json.Text != "false" && f.summary == "-", "--json and --summary - do not go together: both are for stdout"),
		cli.Wrong(f.summary == summaryGitHub && a.Getenv(githubSummary) == "", "--summary github: %s is not set", githubSummary),
	)...)
}

func runGate(ctx context.Context, a *cli.App, f gateFlags) error {
	commands := a.Err // where those of annotations are carried out
	actions := a.Getenv("GITHUB_ACTIONS") == "true" && f.annotations == annotateAuto
	var err error
	o := opening{live: f.live, keep: f.keep, tools: f.tools, labels: f.labels.Read()}
	if f.Env, err = (&cli.EnvFlags{Pairs: f.env}).Read(a); err != nil {
		return err
	}
	if o.egress, err = f.egress.Read(a); err != nil {
		return err
	}
	x, err := begin(ctx, a, o)
	if err != nil {
		return err
	}
	defer x.Close()
	f.ask(a, x.Settings, o.egress)
	job, err := x.gate.Load(ctx, f.Document)
	if err != nil {
		return err
	}
	if f.dryRun {
		return plan(ctx, a, x, job)
	}
	var key []byte // its problems are reported before anything runs
	if f.sign != "" {
		if key, err = readKey(a, job, f.sign); err != nil {
			return err
		}
	}
	document := f.Document
	document.Out = job.OutDir
	if document.Wish != "" {
		document.Wish, _ = filepath.Abs(document.Wish) // empty if the current directory is gone
	} else {
		document.Workspace = job.WishDir
	}
	ctx, record := x.Trial(ctx, trial.Job{Kind: x.gate.Trial().Kind(), Name: job.Lock.Wish.Name}, document)
	made, runErr := x.gate.Run(ctx, job)
	end, _ := made.Trial(record.Job(), runErr) // only what the command reports as well
	record.Record(ctx, runErr, end)
	_ = x.Ended() // the evidence has all output
	if made.Verdict.Schema == "" {
		return runErr // there is no verdict
	}
	var signErr error
	if key != nil && runErr == nil {
		signErr = gate.Sign(ctx, made.Dir, key)
	}
	return x.present(ctx, f, made, ending{runErr, signErr, key != nil && runErr == nil && signErr == nil, actions, commands})
}

// ending is what a run of a gate comes to, beside its report.
type ending struct {
	runErr, signErr error
	signed          bool
	// actions says that this is a job of GitHub, and commands is where annotations go.
	actions  bool
	commands io.Writer
}

// present writes the reports of a gate, and shows how it ended.
func (x *session) present(ctx context.Context, f gateFlags, made gate.Report, end ending) error {
	in := report.Input{Manifest: made.Manifest, Tests: made.Tests, Verdict: made.Verdict}
	if f.junit != "" {
		in.Times = made.Times(ctx)
	}
	err := errors.Join(end.runErr, end.signErr, f.writeReports(x.App, in, end.actions))
	code := cli.ExitCode(ended(made.Verdict.Status), err)
	lines := func() []string {
		return render.Gate(made, render.GateView{Seconds: x.seconds, Signed: end.signed, Output: f.output(made), Hint: x.RepeatFlags}, x.Palette())
	}
	if only := cli.Interrupted(ctx, err); end.runErr != nil && len(cli.Joined(only)) == 1 && errors.As(only, new(cli.SignalError)) {
		lines = func() []string { return []string{only.Error() + "; nothing was judged"} }
		if !x.IsQuiet(x.Settings) {
			err = nil // the line says it
		}
	} else if !x.Settings.Quiet && (end.actions || f.annotations == annotateGitHub) {
		defer func() { _, _ = end.commands.Write(report.Annotations(in, inRepository(x.App, made.Manifest))) }() // as lines on stderr
	}
	return x.Finish(code, gated{made.Verdict, made.Dir, end.signed}, err, lines)
}

// ask puts what the flags say about a command into its document.
func (f *gateFlags) ask(a *cli.App, s settings.Settings, egress *policy.Egress) {
	f.PlanOnly = f.mode == modePlan
	for key, set := range map[string]func(){
		"timeout": func() { f.Limits.TimeoutMS = s.Limits.Timeout.Milliseconds() },
		"memory":  func() { f.Limits.MemoryBytes = int64(s.Limits.Memory) },
		"cpus":    func() { f.Limits.MilliCPUs = int64(math.Round(s.Limits.CPUs * 1000)) },
	} {
		if _, given := a.Given[key]; given {
			set()
		}
	}
	if egress != nil {
		f.Network = &evidence.Egress{Level: string(egress.Level), Allow: egress.Allow, Deny: egress.Deny}
	}
	for _, file := range []string{f.junit, f.summary} {
		if file != "" && file != "-" && file != summaryGitHub {
			f.Reports = append(f.Reports, file)
		}
	}
}

// planned is the JSON of `gate run --dry-run`.
type planned struct {
	Schema string `json:"schema"`
	gate.Plan
}

// plan prints what a job would do, and why nothing would run.
func plan(ctx context.Context, a *cli.App, x *session, job gate.Job) error {
	p, err := x.gate.Plan(ctx, job)
	if err != nil {
		return err
	}
	if len(p.Findings) > 0 {
		a.Code = cli.ExitProblem
		if err := a.PrintLines(render.Findings(evidence.Verdict{Findings: p.Findings}, a.RepeatFlags)); err != nil {
			return err
		}
	}
	return a.PrintJSON(planned{"evalbox/gate-plan/v1", p})
}

// readKey reads the private key that signs a job, and warns of one that others may read.
func readKey(a *cli.App, job gate.Job, file string) ([]byte, error) {
	key, warning, err := job.ReadKey(file)
	if warning != "" {
		a.Warn("%s", warning)
	}
	return key, err
}

// output is the end of the output of the gates that failed, unless it was shown already.
func (f *gateFlags) output(r gate.Report) map[int][]string {
	all := map[int][]string{}
	for _, c := range r.Tests.Commands {
		if f.live || !c.Started || report.Met(c) {
			continue
		}
		lines, err := r.Tail(c.Index, shownOutput)
		if err != nil || len(lines) == 0 {
			lines = []string{"(it printed nothing)"}
		}
		all[c.Index] = lines
	}
	return all
}

// inRepository is the workspace relative to the repository of a job of GitHub; empty if it is not
// below it.
func inRepository(a *cli.App, m evidence.RunManifest) string {
	rel, err := filepath.Rel(fsx.RealPath(a.Getenv("GITHUB_WORKSPACE")), m.Workspace)
	if err != nil || rel == "." || !filepath.IsLocal(rel) {
		return ""
	}
	return filepath.ToSlash(rel)
}

// ended is how a gate ended, as the exit code sees it.
func ended(status evidence.Status) *trial.Result {
	switch status {
	case evidence.Pass:
		return &trial.Result{Verdict: trial.Passed}
	case evidence.NeedInfo:
		return &trial.Result{Verdict: trial.Refused, Reason: string(status)}
	case evidence.Blocked:
	}
	return &trial.Result{Verdict: trial.Failed}
}

// gated is the JSON of `gate run --json`.
type gated struct {
	evidence.Verdict
	// Dir is the gate directory; Signed says that there is an attestation.
	Dir    string `json:"dir"`
	Signed bool   `json:"signed"`
}

// session is a session with the harness of gates.
type session struct {
	*cli.Session

	gate *gate.Harness
	// seconds are those of the commands themselves, by index.
	seconds map[int]float64
}

// opening is how a harness is opened. egress has the addresses of names.
type opening struct {
	live, keep bool
	tools      string
	labels     map[string]string
	egress     *policy.Egress
}

// begin opens the harness, and shows a gate while it runs: its steps at a terminal, and with
// live the output of its commands. The runner of GitHub Actions reads commands from the output of
// a step: what tests print must be none.
func begin(ctx context.Context, a *cli.App, with opening) (*session, error) {
	s, err := a.Settings()
	if err != nil {
		return nil, err
	}
	if a.Getenv("GITHUB_ACTIONS") == "true" {
		a.Err = report.NoCommands(a.Err)
		if !s.JSON { // a document stays as it is
			a.Out = report.NoCommands(a.Out)
		}
	}
	o := gate.Options{Request: s.Request(), Keep: with.keep, Policy: s.Policy()}
	o.Request.Labels, o.Request.Egress = with.labels, with.egress
	if with.tools != "" {
		o.Tools, err = cli.ReadFile(toolsFile, with.tools, func(text []byte, source string) (registry.Registry, error) {
			sum := sha256.Sum256(text)
			o.ToolRegistry = hex.EncodeToString(sum[:])
			return registry.Parse(text, source)
		})
		if err != nil {
			return nil, err
		}
	}
	view := cli.Hidden
	if with.live {
		view = cli.Shown
	}
	x := &session{seconds: map[int]float64{}}
	if x.Session, err = a.Begin(ctx, s, view); err != nil {
		return nil, err
	}
	if !s.Quiet {
		x.AnnounceEnd(ctx)
	}
	o.IO, o.Hooks = x.IO, x.Hooks
	o.Progress = func(event gate.Event) {
		if event.Stage == execute.StageEnd && event.Set == "" && event.Result != nil {
			x.seconds[event.Gate] = event.Result.DurationSeconds
		}
		if text := render.GateStep(event); text != "" && (a.ErrTerminal || event.Stage == execute.StageMoved) && !s.Quiet {
			x.Logf("%s", terminal.Line(text))
		}
	}
	if x.gate, err = gate.New(x.Box, o); err != nil {
		x.Close()
		return nil, err
	}
	return x, nil
}

var toolsFile = cli.FileKind{Noun: "registry of tools", Hint: "give a YAML file that begins with schema: evalbox/tools/v1; see docs/contract.md"}

const (
	// summaryGitHub stands for the file that GitHub names in githubSummary, where each
	// step of a job appends its part.
	summaryGitHub = "github"
	githubSummary = "GITHUB_STEP_SUMMARY"
)

// Kinds of annotations.
const (
	annotateAuto   = "auto"
	annotateGitHub = "github"
	annotateNone   = "none"
)

// writeReports writes the reports of --junit and --summary. In a job of GitHub, actions, its
// summary gets a part in any case.
func (f *gateFlags) writeReports(a *cli.App, in report.Input, actions bool) error {
	var errs []error
	if f.junit != "" {
		text, err := report.JUnit(in)
		if err == nil {
			err = writeReport(f.junit, text)
		}
		errs = append(errs, err)
	}
	if job := a.Getenv(githubSummary); f.summary == summaryGitHub || actions && job != "" {
		errs = append(errs, appendTo(job, report.Markdown(in)))
	}
	switch f.summary {
	case "", summaryGitHub:
	case "-":
		_, err := a.Out.Write(report.Markdown(in))
		errs = append(errs, cli.ReaderGone(err))
	default:
		errs = append(errs, writeReport(f.summary, report.Markdown(in)))
	}
	return errors.Join(errs...)
}

// writeReport writes a file whole or not at all.
func writeReport(file string, text []byte) error {
	if err := fsx.WriteFile(file, text, 0o644, false); err != nil {
		return cli.OutputError(file, err)
	}
	return nil
}

func appendTo(file string, text []byte) error {
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return cli.OutputError(file, err)
	}
	_, err = out.Write(text)
	if err = errors.Join(err, out.Close()); err != nil {
		return cli.OutputError(file, err)
	}
	return nil
}

// NewReplay returns the command `replay`.
func NewReplay(a *cli.App) *cobra.Command {
	var o gate.ReplayOptions
	var keep, live bool
	var labels cli.LabelFlags
	cmd := &cobra.Command{
		Use:   "replay GATES.json|DIR",
		Short: "Run a gate again, and compare",
		Long: `Run what a gate ran once more: the same commands, in the same image, on the same
files, and compare exit codes, counts, logs and outputs with what was recorded. Image,
tools and files must be the recorded ones, or nothing is run.

A GATES.json alone, of whatever origin, is run in the default image with the defaults,
on the directory of --root, and compared as far as it says anything.

The exit code is 0 the same, 1 different, 3 it cannot be replayed, 2 wrong usage, 125
the replay could not be carried out, 130 interrupted.`,
		Example: `  sandbox replay gate.out
  sandbox replay GATES.json --root ~/project --json | jq .differences`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.Check(cmd, cli.NotEmpty(cli.Directory, "root", "output"),
				cli.Wrong(o.Replace && o.OutDir == "", "--replace is for --output")); err != nil {
				return err
			}
			ctx := cmd.Context()
			x, err := begin(ctx, a, opening{live: live, keep: keep, labels: labels.Read()})
			if err != nil {
				return err
			}
			defer x.Close()
			o.From = args[0]
			ctx, record := x.Trial(ctx, trial.Job{Kind: x.gate.Trial().Kind(), Name: "replay"}, nil)
			report, err := x.gate.Replay(ctx, o)
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
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Workspace, "root", "", "`directory` to run on (default: where it was)")
	flags.StringVarP(&o.OutDir, "output", "o", "", "`directory` for the evidence of the replay; an earlier run in it moves to directory.1")
	flags.BoolVar(&o.Replace, "replace", false, "remove an earlier run in that directory, which otherwise moves aside")
	flags.BoolVarP(&live, "live", "v", false, "show the output of the commands while they run")
	flags.BoolVar(&keep, "keep", false, "keep the records of the runs")
	labels.Register(flags)
	a.SettingFlags(cmd, gateKeys...)
	cli.OldNames(cmd, map[string]string{"workspace": "root", "out": "output"})
	cmd.SetUsageFunc(cli.GroupedUsage)
	return cmd
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
