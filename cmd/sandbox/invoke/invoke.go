package invoke

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/sandbox"
)

// fieldHints are the hints for the fields of a tool and of a sweep.
var fieldHints = map[string]string{
	"output":     "give a directory for the artifacts of this call alone",
	"config":     "give a file that the tool can read, with --tool-config",
	"axes":       axisHint,
	"axis":       axisHint,
	"seeds":      "give seeds, such as --seeds 1,2,5-7",
	"sweep":      "see how a sweep is described with: sandbox sweep --help",
	"directory":  "each run has a directory of its own, named after its values and seed",
	"root":       "give the directory of the tool's own files, or leave --root out",
	"executable": "give a command such as 'python -m tool.cli', quoted as for a shell",
}

const axisHint = "give axes such as --axis brightness=0.8,1.0"

// toolFlags are the flags of a tool that are not settings.
type toolFlags struct {
	exec, output, root string
	// adapter is nil if it was not given.
	adapter   *string
	timeout   time.Duration
	env       cli.EnvFlags
	egress    cli.EgressFlags
	labels    cli.LabelFlags
	artifacts artifactFlags
}

// invokeKeys are the settings that are flags of a tool; its time limit is its own.
var invokeKeys = slices.DeleteFunc(slices.Clone(cli.RequestKeys), func(key string) bool { return key == "timeout" })

// register adds the flags that say how the tool runs.
func (f *toolFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(cli.Duration(&f.timeout), "timeout", fmt.Sprintf("time limit of the tool (default %v)", invoke.DefaultTimeout))
	flags.StringVar(&f.root, "root", "", "`directory` of the tool's own files, and where it starts")
	f.artifacts.register(cmd)
	f.env.Register(flags)
	f.egress.Register(flags)
	f.labels.Register(flags)
}

// complete adds to a request what every call has.
func (f *toolFlags) complete(a *cli.App, req *sandbox.Request) (err error) {
	req.Secrets, req.Labels = f.env.Secrets(), f.labels.Read()
	req.Egress, err = f.egress.Read(a)
	return err
}

func (f *toolFlags) check(cmd *cobra.Command, required ...string) error {
	return cli.Check(cmd, cli.Required(required...),
		cli.Wrong(cmd.Flags().Changed("timeout") && f.timeout <= 0, "--timeout must be positive"),
		cli.NotEmpty(cli.Directory, "root"))
}

// options describe the tool, without its containers.
func (f *toolFlags) options(a *cli.App, s settings.Settings) (o invoke.Options, err error) {
	o = invoke.Options{Executable: f.exec, Root: f.root, Timeout: cmp.Or(f.timeout, invoke.DefaultTimeout)}
	if f.timeout == 0 && s.Max.Timeout > 0 {
		o.Timeout = min(o.Timeout, s.Max.Timeout) // a default does not exceed the ceiling of the settings
	}
	if o.Env, err = f.env.Read(a); err == nil {
		o.Verify, err = f.artifacts.options()
	}
	return o, err
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

var profileFile = cli.FileKind{Noun: "profile of artifacts", Hint: "give a YAML file that begins with schema: evalbox/artifacts/v1"}

// options reads the profile that the flags name.
func (f artifactFlags) options() (opts invoke.VerifyOptions, err error) {
	if f.compat {
		opts.Mode = invoke.Compat
	}
	if f.profile != "" {
		opts.Profile, err = cli.ReadFile(profileFile, f.profile, invoke.ParseProfile)
	}
	return opts, err
}

type invokeFlags struct {
	toolFlags
	config       string
	seed         *invoke.Seed
	dryRun, keep bool
}

// NewInvoke returns the command `invoke`.
func NewInvoke(a *cli.App) *cobra.Command {
	var f invokeFlags
	cmd := &cobra.Command{
		Use:   "invoke --exec COMMAND --tool-config FILE --output DIR",
		Short: "Call a tool that declares its artifacts, and check them",
		Long: `Call a tool, a black box with a command line, and check what it leaves. The words of
--exec are split as a shell splits them, nothing is expanded, and then follow

  --config FILE --output DIR [--adapter NAME] [--seed N]

with absolute paths. The tool runs in a fresh container: FILE is read-only, the
directory of --root, if there is one, is read-only and where it starts, and DIR is the
only place that outlives it. DIR is created if it is missing, and must not hold any of
the artifacts yet.

A tool that exits with 0 must leave manifest.json and trace_pack.jsonl. They are
checked, and hashed; so is adapter_metadata.json if there is one, what --profile
declares, and what the manifest lists.

The exit code is the tool's, except: 1 it exited with 0 but its artifacts are missing
or wrong, or a limit ended it, 2 wrong usage, 124 time limit, 125 refused or the
sandbox failed, 126 and 127 it cannot be executed or does not exist, 130 interrupted,
137 out of memory.`,
		Example: `  sandbox invoke --exec 'python -m tool.cli' --root ~/tool --tool-config c.json --output out
  sandbox invoke --exec /opt/tool --tool-config c.json --output out --seed 42 --json | jq .verification
  sandbox invoke --exec 'python -m tool.cli' --tool-config c.json --output out --dry-run`,
		Args: cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if f.config == "" && a.ConfigFile != "" { // the former name of --tool-config, for one release
				if err := cmd.Flags().Set("tool-config", a.ConfigFile); err != nil {
					return err
				}
				a.ConfigFile = ""
			}
			return f.check(cmd, "exec", "tool-config", "output")
		},
		RunE: a.With(func(ctx context.Context, s settings.Settings, _ []string) error { return run(ctx, a, s, f) }),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.exec, "exec", "", "`command` that calls the tool (required)")
	flags.StringVar(&f.config, "tool-config", "", "`file` with the tool's configuration (required)")
	flags.StringVarP(&f.output, "output", "o", "", "`directory` for the artifacts, which is created if it is missing (required)")
	flags.Var(cli.Optional(&f.adapter, "string", cli.Text), "adapter", "`name` of an adapter of the tool")
	flags.Var(cli.Optional(&f.seed, "N", invoke.ParseSeed), "seed", "seed `N` for the tool, a whole number of 64 bits, signed or unsigned")
	f.register(cmd)
	flags.BoolVar(&f.dryRun, "dry-run", false, "check everything, print what would be run as JSON, and run nothing")
	a.SettingFlags(cmd, append(slices.Clone(invokeKeys), "json", "quiet", "raw")...)
	flags.BoolVar(&f.keep, "keep", false, "leave the container behind for inspection")
	cmd.SetUsageFunc(cli.GroupedUsage)
	return cmd
}

// makeOutput creates a missing directory. undo removes it again if nothing is in it.
func makeOutput(dir string) (undo func(), err error) {
	var made []string
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if _, err := os.Lstat(at); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		made = append(made, at)
	}
	undo = func() {
		for _, at := range made {
			_ = os.Remove(at) // it stays if it has anything
		}
	}
	if len(made) > 0 {
		err = os.MkdirAll(dir, 0o755)
	}
	return undo, err
}

func run(ctx context.Context, a *cli.App, s settings.Settings, f invokeFlags) error {
	a.FieldHints = fieldHints
	o, err := f.options(a, s)
	if err != nil {
		return err
	}
	x, err := a.Begin(ctx, s, cli.Piped)
	if err != nil {
		return err
	}
	defer x.Close()
	o.Request, o.IO, o.Hooks = s.Request(), x.IO, x.Hooks
	o.Request.Keep = f.keep
	if err := f.complete(a, &o.Request); err != nil {
		return err
	}
	tool, err := invoke.New(x.Box, o)
	if err != nil {
		return err
	}
	inv := invoke.Invocation{Config: f.config, OutputDir: f.output, Adapter: f.adapter, Seed: f.seed}
	undo, err := makeOutput(f.output)
	if err != nil {
		undo()
		return cli.OutputError(f.output, err)
	}
	if f.dryRun {
		defer undo()
		plan, err := tool.Plan(ctx, inv)
		if err != nil {
			return err
		}
		return a.PrintJSON(plan)
	}
	job := trial.Job{Kind: tool.Trial().Kind(), Name: filepath.Base(f.output)}
	if f.seed != nil {
		if n, unsigned := f.seed.Uint64(); unsigned {
			job.Seed = &n
		}
	}
	document, err := invoke.JobSpec(inv)
	if err != nil {
		return err
	}
	ctx, record := x.Trial(ctx, job, document)
	res, err := tool.Run(ctx, inv)
	end, wireErr := res.Trial(record.Job())
	record.Record(ctx, err, end)
	if res.RunID == "" {
		undo()
		return errors.Join(x.Ended(), cmp.Or(err, res.Err())) // nothing ran: there is no result to show
	}
	return errors.Join(x.Finish(cli.ExitCode(&end, err), res, nil, func() []string { return render.Call(res) }), wireErr)
}

// NewArtifacts returns the command `artifacts`.
func NewArtifacts(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "artifacts",
		Short: "Check and hash what a tool left",
		Long: `Check and hash the artifacts of a tool, as 'sandbox invoke' does after a run. Nothing
is run, and no file is changed.`,
	}
	cmd.AddCommand(newVerify(a), newHash(a))
	return cmd
}

func newVerify(a *cli.App) *cobra.Command {
	var f artifactFlags
	cmd := &cobra.Command{
		Use:   "verify DIR",
		Short: "Check the artifacts in an output directory",
		Long: `Check the artifacts in an output directory: manifest.json and trace_pack.jsonl, which
must be there, adapter_metadata.json if it is, what --profile declares, and what the
manifest lists, with its hashes where it gives some. All of them must be regular
files; links are not followed. Files of any size are read piece by piece.

The exit code is 1 when something is wrong, and 125 when DIR cannot be read.`,
		Example: "  sandbox artifacts verify out\n  sandbox artifacts verify out --json | jq .problems",
		Args:    cobra.ExactArgs(1),
		PreRunE: func(cmd *cobra.Command, args []string) error {
			return cli.Check(cmd, cli.Wrong(args[0] == "", "DIR is empty"))
		},
		RunE: a.With(func(ctx context.Context, s settings.Settings, args []string) error {
			return verify(ctx, a, s, args[0], f)
		}),
	}
	f.register(cmd)
	a.SettingFlags(cmd, "json")
	return cmd
}

func verify(ctx context.Context, a *cli.App, s settings.Settings, dir string, f artifactFlags) error {
	opts, err := f.options()
	if err != nil {
		return err
	}
	report, err := invoke.Verify(ctx, dir, opts)
	if err != nil {
		var unusable *invoke.ArtifactError
		if errors.As(err, &unusable) {
			return cli.WithHint(err, "give the output directory of a tool")
		}
		return err
	}
	if !report.OK {
		a.Code = cli.ExitProblem
	}
	return a.Show(s, report, func() error {
		var rows [][]string
		for _, artifact := range report.Artifacts {
			records := ""
			if artifact.Records != nil {
				records = strconv.FormatInt(*artifact.Records, 10)
			}
			rows = append(rows, []string{artifact.Path, string(artifact.Role), text.Size(artifact.SizeBytes), records, artifact.SHA256})
		}
		if err := a.PrintTable([]string{"PATH", "ROLE", "SIZE", "RECORDS", "SHA256"}, rows); err != nil {
			return err
		}
		var lines []string
		for _, problem := range report.Problems {
			lines = append(lines, "problem: "+problem.Error())
		}
		return a.PrintAll(append(lines, render.Artifacts(report)))
	})
}

// hashed is one file as `artifacts hash --json` prints it.
type hashed struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
}

func newHash(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hash PATH...",
		Short: "Print the SHA-256 of files",
		Long: `Print the SHA-256 of the bytes of files, as sha256sum does: nothing of them is parsed.
They must be regular files, or links to such, of any size.

The exit code is 125 when one cannot be read; the others are printed.`,
		Example: "  sandbox artifacts hash out/manifest.json out/trace_pack.jsonl",
		Args:    cobra.MinimumNArgs(1),
		RunE: a.With(func(ctx context.Context, s settings.Settings, paths []string) error {
			return printHashes(ctx, a, s, paths)
		}),
	}
	a.SettingFlags(cmd, "json")
	return cmd
}

func printHashes(ctx context.Context, a *cli.App, s settings.Settings, paths []string) error {
	all := []hashed{}
	var unreadable []error
	for _, path := range paths {
		sum, err := invoke.HashArtifact(ctx, path)
		if err != nil {
			unreadable = append(unreadable, err)
			continue
		}
		all = append(all, hashed{path, sum})
		if !s.JSON {
			if err := printSum(a, sum, path); err != nil {
				return err
			}
		}
	}
	if s.JSON {
		unreadable = append(unreadable, a.PrintJSON(struct {
			Schema string   `json:"schema"`
			Hashes []hashed `json:"hashes"`
		}{"evalbox/hashes/v1", all}))
	}
	return errors.Join(unreadable...)
}

// printSum prints a line of sha256sum. A name with a backslash or the end of a line is
// written with a backslash before each, and before the line, so that a name cannot pass
// for two. A program gets the bytes of the name, a terminal nothing that it would obey.
func printSum(a *cli.App, sum, path string) error {
	mark, name := "", strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`).Replace(path)
	if name != path {
		mark = `\`
	}
	if a.OutTerminal {
		name = terminal.Line(name)
	}
	_, err := fmt.Fprintf(a.Out, "%s%s  %s\n", mark, sum, name)
	return cli.ReaderGone(err)
}
