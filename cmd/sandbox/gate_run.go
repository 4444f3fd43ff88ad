package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/contract/registry"
	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/execute"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/sandbox"
)

// gateFlags are the flags of `gate run` that are not settings.
type gateFlags struct {
	mode, baseline, commit string
	out, tools             string
	seal, offline, strict  bool
	replace, noTools, keep bool
	live, allowUnobserved  bool
	repeats                int
	junit, summary, sign   string
	wishFile               string
	command                []string
}

const (
	// defaultOut is the gate directory.
	defaultOut = "gate.out"
	// maxRepeats bounds how often everything runs.
	maxRepeats = 20

	modePlan, modeExecute = "plan", "execute"
)

// gateKeys are the settings that are flags of `gate run` and `replay`: the wish says the
// rest.
var gateKeys = []string{"runtime", "user", "transfer", "json", "quiet", "raw"}

func newGateRunCommand(a *app) *cobra.Command {
	var f gateFlags
	cmd := &cobra.Command{
		Use:   "run [wish.lock.json | -- COMMAND...]",
		Short: "Run a sealed wish, and judge it",
		Long: `Run the commands of a sealed wish, each in a fresh container with a copy of the
workspace, and judge what happened. Without a wish, ./wish.lock.json is run; after --
one command with the defaults, sealed on the spot. Nothing is written back to the
workspace.

The gate directory of --out holds the evidence: logs, test cases, hashes, what the
commands tried, GATES.json for a replay, and ExecutionVerdict.json.

Reports that lie in the workspace are no part of what the commands see. A sealed wish
must name them with exclude: the next run and a replay would find another workspace.

The exit code is 0 PASS, 1 BLOCKED, 3 NEED_INFO, 2 wrong usage, 125 the gate could
not be carried out, 130 interrupted.`,
		Example: `  sandbox gate run -- pytest -q
  sandbox gate run wish.lock.json --strict --junit ../junit.xml
  sandbox gate run --baseline HEAD~1 --prove-deterministic 2
  sandbox gate run wish.yaml --seal --sign gate.key --summary github`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(a, cmd, args); err != nil {
				return err
			}
			return a.gate(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.out, "out", defaultOut, "new or empty `folder` for the evidence")
	flags.BoolVar(&f.replace, "replace", false, "replace an earlier run in that folder")
	flags.BoolVar(&f.seal, "seal", false, "seal a wish that is not sealed, on the spot")
	flags.StringVar(&f.mode, "mode", modeExecute, "execute, or plan: nothing may run")
	flags.BoolVar(&f.offline, "offline", false, "no network, whatever the wish says")
	flags.BoolVar(&f.strict, "strict", false, "demand a clean tree and full observation, whatever the wish says")
	flags.BoolVar(&f.allowUnobserved, "allow-unobserved", false, "accept that attempts are known from the output only, for a command on an engine where they cannot be observed")
	flags.StringVar(&f.baseline, "baseline", "", "run on this `revision` first: no more tests may fail than there")
	flags.StringVar(&f.commit, "commit", "", "run the files of this `revision` from a private checkout; implies --strict")
	flags.IntVar(&f.repeats, "prove-deterministic", 1, "run everything `N` times, with the same outcome each time")
	flags.StringVar(&f.tools, "tools", "", "registry of tools, a `file`: no other command may run")
	flags.BoolVar(&f.noTools, "no-tools", false, "run nothing: tools are switched off")
	flags.StringVar(&f.junit, "junit", "", "`file` for a report in JUnit XML")
	flags.StringVar(&f.summary, "summary", "", "`file` for a summary in Markdown, - for stdout, github for the summary of the job")
	flags.StringVar(&f.sign, "sign", "", "sign the evidence with the private key in this `file` (PEM)")
	flags.BoolVarP(&f.live, "live", "v", false, "show the output of the commands while they run")
	flags.BoolVar(&f.keep, "keep", false, "keep the records of the runs")
	a.settingFlags(cmd, false, append([]string{"image", "allow_unlocked"}, gateKeys...)...)
	cmd.SetUsageFunc(groupedUsage)
	return cmd
}

// check refuses flags that make no sense together, and finds the wish or the command.
func (f *gateFlags) check(a *app, cmd *cobra.Command, args []string) error {
	path, dash := cmd.CommandPath(), cmd.ArgsLenAtDash()
	switch {
	case dash >= 0 && len(args[dash:]) == 0:
		return usagef(path, "gate run: there is no command after --")
	case dash > 0:
		return usagef(path, "gate run: a wish and a command do not go together")
	case dash == 0:
		f.command = args
	case len(args) > 1:
		return usagef(path, "gate run: %q: give one wish, or a command after --", args[1])
	case len(args) == 1:
		f.wishFile = args[0]
	default:
		f.wishFile = defaultLock
	}
	return f.checkFlags(a, cmd)
}

// checkFlags refuses values that cannot be.
func (f *gateFlags) checkFlags(a *app, cmd *cobra.Command) error {
	path, given := cmd.CommandPath(), cmd.Flags().Changed
	if f.mode != modePlan && f.mode != modeExecute {
		return usagef(path, "gate run: --mode %q: must be plan or execute", f.mode)
	}
	if f.repeats < 1 || f.repeats > maxRepeats {
		return usagef(path, "gate run: --prove-deterministic %d: must be between 1 and %d", f.repeats, maxRepeats)
	}
	for _, name := range []string{"out", "baseline", "commit", "tools", "junit", "summary", "sign", "image"} {
		if flag := cmd.Flags().Lookup(name); given(name) && flag.Value.String() == "" {
			return usagef(path, "gate run: --%s is empty", name)
		}
	}
	if err := f.checkWishFlags(a, path); err != nil {
		return err
	}
	if v, ok := a.given["json"]; ok && v.Text != "false" && f.summary == "-" {
		return usagef(path, "gate run: --json and --summary - do not go together: both are for stdout")
	}
	if f.summary == summaryGitHub && lookup(a.environ, githubSummary) == "" {
		return usagef(path, "gate run: --summary github: %s is not set", githubSummary)
	}
	return nil
}

// checkWishFlags refuses flags that a wish or a command does not take.
func (f *gateFlags) checkWishFlags(a *app, path string) error {
	switch {
	case f.seal && f.command != nil:
		return usagef(path, "gate run: --seal is for a wish; a command is sealed on the spot")
	case f.allowUnobserved && f.command == nil:
		return usagef(path, "gate run: --allow-unobserved is for a command; a wish says it with allow_unobserved")
	case f.allowUnobserved && (f.strict || f.commit != ""):
		return usagef(path, "gate run: --allow-unobserved and --strict do not go together: strict demands full observation")
	}
	for _, key := range []string{"image", "allow_unlocked"} {
		if v, ok := a.given[key]; ok && f.command == nil && !f.seal {
			return usagef(path, "gate run: %s does not go with a sealed wish, which says what it runs in", v.Name)
		}
	}
	return nil
}

func (a *app) gate(ctx context.Context, f gateFlags) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	runner, err := a.runner(s)
	if err != nil {
		return err
	}
	defer runner.Close()
	h, live, err := a.gateHarness(ctx, runner, s, f.live, f.keep, f.tools)
	if err != nil {
		return err
	}
	defer live.ended()
	job, err := h.Load(ctx, f.document())
	if err != nil {
		return err
	}
	var key []byte // its problems are reported before anything runs
	if f.sign != "" {
		var warning string
		if key, warning, err = job.ReadKey(f.sign); err != nil {
			return err
		}
		if warning != "" {
			a.say("warning: " + warning)
		}
	}
	report, runErr := h.Run(ctx, job)
	live.ended()
	if report.Verdict.Schema == "" {
		return runErr // there is no verdict
	}
	var signErr error
	if key != nil && runErr == nil {
		signErr = gate.Sign(ctx, report.Dir, key)
	}
	signed := key != nil && runErr == nil && signErr == nil
	a.code = gateCode(report.Verdict)
	// An error decides the exit code, not the verdict.
	err = errors.Join(runErr, signErr, f.writeReports(a, report))
	if err != nil {
		a.code = exitCode(nil, err)
	}
	return errors.Join(err, a.present(gated{report.Verdict, report.Dir, signed}, a.isQuiet(s), s, func() []string {
		return render.Gate(report, render.GateView{Seconds: live.seconds, Signed: signed, Hint: a.repeatFlags}, a.palette())
	}))
}

// document is what the flags ask for.
func (f *gateFlags) document() gate.Document {
	d := gate.Document{
		Wish: f.wishFile, Command: f.command, Seal: f.seal, Out: f.out, Replace: f.replace, Offline: f.offline, Strict: f.strict,
		AllowUnobserved: f.allowUnobserved, Repeats: f.repeats, Baseline: f.baseline, Commit: f.commit,
		PlanOnly: f.mode == modePlan, NoTools: f.noTools,
	}
	for _, file := range []string{f.junit, f.summary} {
		if file != "" && file != "-" && file != summaryGitHub {
			d.Reports = append(d.Reports, file)
		}
	}
	return d
}

// gateCode is the exit code of a verdict.
func gateCode(v evidence.Verdict) int {
	switch v.Status {
	case evidence.Pass:
		return 0
	case evidence.NeedInfo:
		return exitNeedInfo
	case evidence.Blocked:
	}
	return exitProblem
}

// gated is the JSON of `gate run --json`.
type gated struct {
	evidence.Verdict
	// Dir is the gate directory; Signed says that there is an attestation.
	Dir    string `json:"dir"`
	Signed bool   `json:"signed"`
}

// gateLive shows a gate while it runs, and measures its commands.
type gateLive struct {
	// seconds are those of the commands themselves, by index.
	seconds map[int]float64
	// ended is called when nothing runs any more.
	ended func()
}

// gateHarness returns the harness of a command, which shows a gate while it runs.
func (a *app) gateHarness(ctx context.Context, runner *sandbox.Runner, s settings.Settings, show, keep bool, tools string) (*gate.Harness, *gateLive, error) {
	g := &gateLive{seconds: map[int]float64{}}
	o := gate.Options{Request: s.Request(), Keep: keep, Policy: s.Policy()}
	if tools != "" {
		registry, sum, err := gateTools(tools)
		if err != nil {
			return nil, nil, err
		}
		o.Tools, o.ToolRegistry = registry, sum
	}
	o.Hooks.Kill = a.streams.Kill
	shown := s
	shown.Quiet = s.Quiet || !show
	live := a.connect(&o.IO, shown)
	waiting := a.tellWaiting(s)
	o.Hooks.Waiting = waiting.say
	o.Progress = func(event gate.Event) {
		if event.Stage == execute.StageEnd && event.Set == "" && event.Result != nil {
			g.seconds[event.Gate] = event.Result.DurationSeconds
		}
		if text := render.GateStep(event); text != "" && a.errTerminal && !s.Quiet {
			fmt.Fprintf(live.err, "sandbox: %s\n", terminal.Line(text)) // the summary reports a stderr that is gone
		}
	}
	announced := func() {}
	if !s.Quiet {
		announced = live.announceEnd(ctx)
	}
	g.ended = sync.OnceFunc(func() {
		waiting.end()
		announced()
		a.ended()
		_ = live.finish() // the evidence has all output
	})
	h, err := gate.New(a.watched(runner), o)
	return h, g, err
}

// maxRegistry bounds a registry of tools.
const maxRegistry = 4 << 20

// gateTools reads the registry that the commands of a gate are checked against, and its
// SHA-256.
func gateTools(file string) (registry.Registry, string, error) {
	text, err := fsx.Read(file, maxRegistry)
	if err != nil {
		return registry.Registry{}, "", &fileError{fileTools, file, err}
	}
	tools, err := registry.Parse(text, file)
	if err != nil {
		return registry.Registry{}, "", &hintedError{err, fileHints[fileTools]}
	}
	sum := sha256.Sum256(text)
	return tools, hex.EncodeToString(sum[:]), nil
}
