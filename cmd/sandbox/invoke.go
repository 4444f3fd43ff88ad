package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/policy"
)

// invokeFlags are the flags of `invoke` that are not settings.
type invokeFlags struct {
	exec, config, output string
	adapter              string
	seed                 int64
	timeout              time.Duration
	root, engine         string
	env, envFiles        []string
	artifacts            artifactFlags
	dryRun, keep         bool
}

// artifactFlags are the demands on artifacts.
type artifactFlags struct {
	compat  bool
	profile string
}

func (f *artifactFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.compat, "compat", false, "take any value of step and step_id in a trace")
	flags.StringVar(&f.profile, "profile", "", "YAML `file` that declares further artifacts")
}

// maxProfile bounds a profile of artifacts.
const maxProfile = 4 << 20

// options reads the profile that the flags name.
func (f artifactFlags) options() (opts invoke.VerifyOptions, err error) {
	if f.compat {
		opts.Mode = invoke.Compat
	}
	if f.profile == "" {
		return opts, nil
	}
	text, err := fsx.Read(f.profile, maxProfile)
	if err != nil {
		return opts, &fileError{fileArtifacts, f.profile, err}
	}
	if opts.Profile, err = invoke.ParseProfile(text, f.profile); err != nil {
		return opts, &hintedError{err, fileHints[fileArtifacts]}
	}
	return opts, nil
}

// invokeKeys are the settings that are flags of `invoke`; its time limit is its own.
var invokeKeys = slices.DeleteFunc(slices.Clone(requestKeys), func(key string) bool { return key == "timeout" })

// hostKeys are those among them that also hold on the host.
var hostKeys = []string{"grace"}

func newInvokeCommand(a *app) *cobra.Command {
	var f invokeFlags
	cmd := &cobra.Command{
		Use:   "invoke --exec COMMAND --config FILE --output DIR",
		Short: "Call a tool that declares its artifacts, and check them",
		Long: `Call a tool, a black box with a command line, and check what it leaves. The words of
--exec are split as a shell splits them, nothing is expanded, and then follow

  --config FILE --output DIR [--adapter NAME] [--seed N]

with absolute paths. The tool runs in a fresh container: FILE is read-only, the
folder of --root, if there is one, is read-only and where it starts, and DIR is the
only place that outlives it. DIR must exist, and hold none of the artifacts yet.

A tool that exits with 0 must leave manifest.json and trace_pack.jsonl. They are
checked, and hashed; so is adapter_metadata.json if there is one, what --profile
declares, and what the manifest lists.

--engine host runs the tool as a process of yours, with nothing around it: only
time and what is kept of its output are bounded. The result says so.

--config is the tool's here. A settings file is ./sandbox.yaml or the user's.

The exit code is the tool's, except: 1 it exited with 0 but its artifacts are missing
or wrong, or a limit ended it, 2 wrong usage, 124 time limit, 125 refused or the
sandbox failed, 126 and 127 it cannot be executed or does not exist, 130 interrupted,
137 out of memory.`,
		Example: `  sandbox invoke --exec 'python -m tool.cli' --root ~/tool --config c.json --output out
  sandbox invoke --exec /opt/tool --config c.json --output out --seed 42 --json | jq .verification
  sandbox invoke --exec 'python -m tool.cli' --config c.json --output out --dry-run`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(a, cmd); err != nil {
				return err
			}
			return a.invoke(cmd.Context(), cmd, f)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.exec, "exec", "", "`command` that calls the tool (required)")
	flags.StringVar(&f.config, "config", "", "`file` with the tool's configuration (required)")
	flags.StringVar(&f.output, "output", "", "existing `folder` for the artifacts (required)")
	flags.StringVar(&f.adapter, "adapter", "", "`name` of an adapter of the tool")
	flags.Int64Var(&f.seed, "seed", 0, "seed `N` for the tool")
	f.registerTool(cmd)
	flags.BoolVar(&f.dryRun, "dry-run", false, "check everything, print what would be run as JSON, and run nothing")
	a.settingFlags(cmd, false, append(slices.Clone(invokeKeys), "json", "quiet", "raw")...)
	flags.BoolVar(&f.keep, "keep", false, "leave the container behind for inspection")
	cmd.SetUsageFunc(groupedUsage)
	return cmd
}

// registerTool adds the flags that say how the tool is run.
func (f *invokeFlags) registerTool(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(&durationFlag{&f.timeout}, "timeout", fmt.Sprintf("time limit of the tool (default %v)", invoke.DefaultTimeout))
	flags.StringVar(&f.root, "root", "", "`folder` of the tool's own files, and where it starts")
	flags.StringVar(&f.engine, "engine", invoke.EngineSandbox, "where the tool runs: sandbox, or host for tools that you trust")
	f.artifacts.register(cmd)
	flags.StringArrayVarP(&f.env, "env", "e", nil, "environment variable `NAME=VALUE`, or NAME for the caller's value, if it has one")
	flags.StringArrayVar(&f.envFiles, "env-file", nil, "`file` of environment variables")
}

// check refuses flags that make no sense together.
func (f *invokeFlags) check(a *app, cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	for _, required := range []struct{ flag, value string }{{"exec", f.exec}, {"config", f.config}, {"output", f.output}} {
		if !given(required.flag) {
			return usagef(cmd.CommandPath(), "invoke: --%s is missing", required.flag)
		}
	}
	return f.checkTool(a, cmd)
}

// checkTool refuses flags of the tool that make no sense together.
func (f *invokeFlags) checkTool(a *app, cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	if given("timeout") && f.timeout <= 0 {
		return usagef(cmd.CommandPath(), "%s: --timeout must be positive", subject(cmd))
	}
	if given("root") && f.root == "" {
		return usagef(cmd.CommandPath(), "%s: --root is empty: give a folder, or leave it out", subject(cmd))
	}
	switch f.engine {
	case invoke.EngineSandbox:
		return nil
	case invoke.EngineHost:
	default:
		return usagef(cmd.CommandPath(), "%s: --engine %q: must be sandbox or host", subject(cmd), f.engine)
	}
	if f.keep {
		return usagef(cmd.CommandPath(), "%s: --keep does not go with --engine host: there is no container", subject(cmd))
	}
	for _, key := range invokeKeys {
		if v, ok := a.given[key]; ok && !slices.Contains(hostKeys, key) {
			return usagef(cmd.CommandPath(), "%s: %s does not go with --engine host: nothing on the host would hold to it", subject(cmd), v.Name)
		}
	}
	return nil
}

func (a *app) invoke(ctx context.Context, cmd *cobra.Command, f invokeFlags) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	verify, err := f.artifacts.options()
	if err != nil {
		return err
	}
	inv := invoke.Invocation{Config: f.config, OutputDir: f.output}
	if cmd.Flags().Changed("adapter") {
		inv.Adapter = &f.adapter
	}
	if cmd.Flags().Changed("seed") {
		inv.Seed = &f.seed
	}
	place, err := a.placeOf(ctx, s, f)
	if err != nil {
		return err
	}
	defer place.close()
	runner, err := f.tool(a, cmd, place.option, f.limit(s), verify.Profile)
	if err != nil {
		return err
	}
	if f.dryRun {
		return a.planInvocation(ctx, runner, inv)
	}
	if f.engine == invoke.EngineHost {
		a.warnHost()
	}
	place.begin()
	res, runErr := runner.Run(ctx, inv)
	place.ended()
	if runErr != nil && res.Schema == "" {
		return runErr // it was refused, or nothing is known of it
	}
	call := invoke.NewCall(res, runErr)
	if runErr == nil || call.Reason == invoke.ReasonMissingArtifact {
		runErr = errors.Join(runErr, call.Check(ctx, verify))
	}
	a.ended() // signals end us from here on, as only showing is left
	a.code = invokedCode(call, runErr)
	return a.present(call, a.isQuiet(s), s, func() []string { return render.Call(call) })
}

// planInvocation prints the plan of a call.
func (a *app) planInvocation(ctx context.Context, runner *invoke.Runner, inv invoke.Invocation) error {
	plan, err := runner.Plan(ctx, inv)
	if err != nil {
		var failed *invoke.InvocationError
		if errors.As(err, &failed) {
			a.code = invokedCode(invoke.Call{Reason: failed.Reason}, err)
		}
		return err
	}
	return a.printJSON(plan)
}

// warnHost warns that the host protects nothing.
func (a *app) warnHost() {
	fmt.Fprintln(a.streams.Err, "sandbox: warning: --engine host: the tool runs on this machine, and nothing keeps it from your files and the network")
}

// tool makes the runner that the flags describe.
func (f *invokeFlags) tool(a *app, cmd *cobra.Command, where invoke.Option, limit time.Duration, profile invoke.Profile) (*invoke.Runner, error) {
	env, err := environment(f.env, f.envFiles, a.environ, cmd.CommandPath())
	if err != nil {
		return nil, err
	}
	if err := f.checkCeiling(a, limit); err != nil {
		return nil, err
	}
	options := []invoke.Option{where, invoke.WithTimeout(limit), invoke.WithProfile(profile), invoke.WithEnv(env)}
	if f.root != "" {
		options = append(options, invoke.WithRoot(f.root))
	}
	return invoke.New(f.exec, options...)
}

// checkCeiling refuses a time limit above that of the settings on the host, where it is
// the one limit that holds. In the sandbox the plan does so.
func (f *invokeFlags) checkCeiling(a *app, limit time.Duration) error {
	if f.engine != invoke.EngineHost {
		return nil
	}
	s, err := a.settings()
	if err != nil {
		return err
	}
	if most := s.Max.Timeout; most > 0 && limit > most {
		return &policy.FieldError{Field: "timeout", Value: limit.String(), Rule: fmt.Sprintf("above the policy's maximum of %v", most)}
	}
	return nil
}

// limit is the time limit: the flag's, or the tool's own default below the ceiling of
// the settings.
func (f invokeFlags) limit(s settings.Settings) time.Duration {
	switch {
	case f.timeout > 0:
		return f.timeout
	case s.Max.Timeout > 0:
		return min(invoke.DefaultTimeout, s.Max.Timeout)
	}
	return invoke.DefaultTimeout
}

// invokedCode is the exit code of a call.
func invokedCode(call invoke.Call, err error) int {
	switch {
	case err == nil && call.OK:
		return 0
	case err == nil:
		return exitProblem
	}
	switch call.Reason {
	case invoke.ReasonMissingArtifact:
		return exitProblem
	case invoke.ReasonTimeout:
		return exitTimeLimit
	case invoke.ReasonCanceled:
		return exitInterrupted
	case invoke.ReasonNonzeroExit:
		return programCode(*call.ExitCode)
	case invoke.ReasonLimit:
		if code := programCode(*call.ExitCode); code != 0 {
			return code
		}
		return exitProblem
	case invoke.ReasonCannotExecute:
		if errors.Is(err, invoke.ErrNotExecutable) {
			return exitNotExecutable
		}
		return exitNotFound
	case invoke.ReasonUnverified:
		return exitCode(nil, err)
	case invoke.ReasonNotWritten, invoke.ReasonEngine:
	}
	return exitSandbox
}
