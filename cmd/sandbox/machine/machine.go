package machine

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/invoke/sweep"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/internal/dockerhost"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/doctor"
	"github.com/evalbox/evalbox/sandbox/metrics"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// NewDoctor returns the command `doctor`.
func NewDoctor(a *cli.App) *cobra.Command {
	deep, gpus := false, false
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what works on this machine, and suggest fixes for the rest",
		Long: `Check the engine, its parts, the state directory and the image, and then run small programs
in the sandbox that try to break each limit. The exit code is 1 if a check failed.

With --engine kubernetes, it checks the cluster instead of the engine's parts: its version, the
permissions, Pod Security admission, NetworkPolicies, runtime classes, GPUs, quota and queue. If
permissions are missing, it prints the Role that has them all, for kubectl apply.

With --deep, more than 150 hostile and honest programs run as well, each with an exact expectation.
That takes a minute or two.

With --gpu, it also reports the NVIDIA devices, the driver, what the engine can hand out
and what nvidia-smi says, and runs a program with one GPU that lists what it sees.`,
		Example: "  sandbox doctor\n  sandbox doctor --gpu\n  sandbox doctor --deep\n  sandbox doctor --json",
		Args:    cobra.NoArgs,
		RunE: a.With(func(ctx context.Context, s settings.Settings, _ []string) error {
			machine, err := machine(a, s)
			if err != nil {
				return err
			}
			if machine.Runner != nil {
				defer machine.Runner.Close()
			}
			machine.Deep, machine.GPU = deep, gpus
			findings, err := doctor.Examine(ctx, machine)
			if err != nil {
				return err
			}
			for i, f := range findings {
				if f.Verdict == doctor.Fail {
					a.Code = cli.ExitProblem
				}
				if f.Err != nil {
					if all := a.Hints(f.Err); len(all) > 0 {
						findings[i].Advice = all[0]
					}
				}
			}
			return a.Show(s, doctorReport{"evalbox/doctor/v1", a.Code == 0, findings}, func() error { return printFindings(a, findings) })
		}),
	}
	cmd.Flags().BoolVar(&deep, "deep", false, "also run hostile and honest programs, each with an exact expectation")
	cmd.Flags().BoolVar(&gpus, "gpu", false, "also report the GPUs, and run a program with one")
	a.SettingFlags(cmd, "image", "runtime", "transfer", "json")
	return cmd
}

// doctorReport is the JSON of `doctor`.
type doctorReport struct {
	Schema string `json:"schema"`
	// OK says that no check failed.
	OK       bool             `json:"ok"`
	Findings []doctor.Finding `json:"findings"`
}

// machine is the machine that the settings describe. The caller closes its runner, if
// there is one.
func machine(a *cli.App, s settings.Settings) (m doctor.Machine, err error) {
	m.Address = s.Engine
	if s.EngineKind == settings.Kubernetes {
		m.Cluster = func(ctx context.Context) []doctor.Finding { return checkCluster(ctx, s) }
	}
	if findEngine(a, s) != nil {
		store, err := s.Store()
		if err != nil {
			return m, err
		}
		m.StateDir = store.Dir()
		return m, nil
	}
	catalog, err := s.Catalog()
	if err != nil {
		return m, err
	}
	if m.Runner, err = a.OpenRunner(s); err != nil {
		return m, err
	}
	m.StateDir, m.Images = m.Runner.Store().Dir(), catalog.Names()
	m.Request = sandbox.Request{Image: s.Image, AllowUnlocked: s.AllowUnlocked, Runtime: s.Runtime, Transfer: s.Transfer}
	return m, nil
}

// findEngine says why the settings name no engine. One that they name need not answer.
func findEngine(a *cli.App, s settings.Settings) error {
	if s.EngineKind != settings.Kubernetes {
		_, err := dockerhost.Find(s.Engine)
		return err
	}
	engine, err := a.OpenEngine(s)
	if err != nil {
		return err
	}
	return engine.Close()
}

func printFindings(a *cli.App, findings []doctor.Finding) error {
	p := render.Palette(a.OutTerminal) && a.Palette()
	paint := map[doctor.Verdict]func(string) string{
		doctor.OK: p.Good, doctor.Warn: p.Odd, doctor.Fail: p.Bad,
		doctor.Info: func(text string) string { return text },
	}
	for _, f := range findings {
		label := paint[f.Verdict](fmt.Sprintf("%-4s", f.Verdict))
		text := fmt.Sprintf("%s  %-17s %s\n", label, f.Check, terminal.Line(f.Seen))
		if f.Advice != "" {
			text += fmt.Sprintf("      %-17s -> %s\n", "", terminal.Line(a.RepeatFlags(f.Advice)))
		}
		if _, err := fmt.Fprint(a.Out, text); err != nil {
			return cli.ReaderGone(err)
		}
	}
	for _, f := range findings {
		if f.Manifest != "" {
			if err := a.Print("\n%s", f.Manifest); err != nil {
				return err
			}
		}
	}
	return nil
}

// NewGPUs returns the command `gpus`.
func NewGPUs(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gpus",
		Short: "List the GPUs, who has them, and who waits",
		Long: `List the GPUs that runs can have, the runs that have them, and those that wait.

A GPU is free, held by one run, shared by runs with --gpu-share, or quarantined: not
lent, for the reason shown, until a later look finds it well. Nothing is changed.
UUIDs, processes and exact times are in the output of --json.`,
		Example: "  sandbox gpus\n  sandbox gpus --json",
		Args:    cobra.NoArgs,
		RunE: a.WithRunner(func(ctx context.Context, s settings.Settings, runner *sandbox.Runner, _ []string) error {
			report, err := runner.GPUs(ctx)
			if err != nil {
				return err
			}
			document := struct {
				Schema string `json:"schema"`
				sandbox.GPUReport
			}{"evalbox/gpus/v1", report}
			return a.Show(s, document, func() error {
				return a.PrintTables(render.GPUs(report, time.Now())...)
			})
		}),
	}
	a.SettingFlags(cmd, "json")
	return cmd
}

// NewConfig returns the command `config`.
func NewConfig(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show every setting and where it came from",
		Long: `Show every setting, its value and where it came from.

Flags win over SANDBOX_* variables, these over ./sandbox.yaml (or the file of
--config), this over the user's file, that over the shipped defaults. The key
memory is the flag --memory and the variable SANDBOX_MEMORY; max.memory is
SANDBOX_MAX_MEMORY.`,
		Example: `  sandbox config
  SANDBOX_MEMORY=8g sandbox config --json`,
		Args: cobra.NoArgs,
		RunE: a.With(func(_ context.Context, s settings.Settings, _ []string) error {
			var rows [][]string
			for _, o := range s.Origins() {
				rows = append(rows, []string{o.Key, o.Value, o.Source})
			}
			document := struct {
				Schema   string            `json:"schema"`
				Settings []settings.Origin `json:"settings"`
			}{"evalbox/settings/v1", s.Origins()}
			err := a.ShowTable(s, document, []string{"KEY", "VALUE", "SOURCE"}, rows)
			if err != nil || s.JSON {
				return err
			}
			file := settings.UserFile()
			if file == "" {
				file = "none, this account has no directory for configuration"
			} else if _, err := os.Stat(file); err != nil {
				file += " (not there)"
			}
			return a.Print("\nuser's file: %s\n", file)
		}),
	}
	a.SettingFlags(cmd, "json")
	return cmd
}

// version is set when a release is built (-X github.com/evalbox/evalbox/cmd/sandbox/machine.version=…).
var version = "dev"

// versionReport is the JSON of `version --json`.
type versionReport struct {
	Schema  string `json:"schema"`
	Version string `json:"version"`
	// Revision is the commit, and Date its time; both are empty if the toolchain did not know them.
	Revision string `json:"revision"`
	Date     string `json:"date"`
	// Modified says that the files were not those of the commit.
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// Schemas are the forms of the files that other versions find on a machine.
	Schemas []string `json:"schemas"`
	// Engine is null when it cannot be reached.
	Engine *engineVersion `json:"engine"`
}

type engineVersion struct {
	Name       string `json:"name"`
	Version    string `json:"version"`
	APIVersion string `json:"api_version"`
	Runc       string `json:"runc"`
}

// engineQuestion bounds the question for the engine's version, because our own version is
// useful without it.
const engineQuestion = 3 * time.Second

// NewVersion returns the command `version`.
func NewVersion(a *cli.App) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of sandbox and of the engine",
		Long: `Show the version of sandbox, its commit and the date of that, the version of the engine, and the
forms of the files that sandbox keeps: two versions with the same forms read each other's files.`,
		Example: "  sandbox version\n  sandbox version --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return PrintVersion(cmd.Context(), a, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// PrintVersion prints the versions of sandbox and of the engine.
func PrintVersion(ctx context.Context, a *cli.App, asJSON bool) error {
	v := ownVersion()
	v.Engine = askEngine(ctx, a)
	if asJSON {
		return a.PrintJSON(v)
	}
	engine := "not reachable (see: sandbox doctor)"
	if e := v.Engine; e != nil {
		engine = e.Name + " " + e.Version + ", API " + e.APIVersion + ", runc " + e.Runc
	}
	var about []string
	if v.Revision != "" {
		about = append(about, "commit "+v.Revision[:min(len(v.Revision), 12)]+map[bool]string{true: " and changes"}[v.Modified])
	}
	if v.Date != "" {
		about = append(about, v.Date[:len(time.DateOnly)])
	}
	forms := strings.ReplaceAll(strings.Join(v.Schemas, ", "), "evalbox/", "")
	return a.Print("sandbox %s (%s)\nengine: %s\nfiles: %s\n", v.Version, strings.Join(append(about, v.Go, v.Platform), ", "), engine, forms)
}

// ownVersion describes this program.
func ownVersion() versionReport {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		build = &debug.BuildInfo{}
	}
	return describe(version, build)
}

// describe takes the version of the release, or else that of the module, which is the one that
// `go install` was asked for.
func describe(release string, build *debug.BuildInfo) versionReport {
	v := versionReport{
		Schema: "evalbox/version/v1", Version: release, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Schemas: []string{
			result.SchemaV1, spec.SchemaV1, record.StateSchema, record.JournalSchema, metrics.SchemaV1, lock.SchemaV1, trial.ResultSchemaV1,
			evaluate.ResultSchemaV1, sweep.SchemaV1, evidence.VerdictV1,
		},
	}
	if main := build.Main.Version; release == "dev" && main != "" && main != "(devel)" {
		v.Version = strings.TrimPrefix(main, "v")
	}
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			if at, err := time.Parse(time.RFC3339, s.Value); err == nil {
				v.Date = at.UTC().Format(time.RFC3339)
			}
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// askEngine asks the engine, which need not be there.
func askEngine(ctx context.Context, a *cli.App) *engineVersion {
	ctx, cancel := context.WithTimeout(ctx, engineQuestion)
	defer cancel()
	s, err := a.Settings()
	if err != nil {
		return nil
	}
	engine, err := a.OpenEngine(s)
	if err != nil {
		return nil
	}
	defer func() { _ = engine.Close() }() // it was only asked
	info, err := engine.Info(ctx)
	if err != nil {
		return nil
	}
	return &engineVersion{Name: info.Name, Version: info.Version, APIVersion: info.APIVersion, Runc: info.Runc}
}
