package machine

import (
	"context"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
)

// version is set when a release is built (-X github.com/evalbox/evalbox/cmd/sandbox/machine.version=…).
var version = "dev"

// versionReport is the JSON of `version --json`.
type versionReport struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
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
		Use:     "version",
		Short:   "Show the versions of sandbox and of the engine",
		Example: "  sandbox version --json",
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
	return a.Print("sandbox %s (%s, %s)\nengine: %s\n", v.Version, v.Go, v.Platform, engine)
}

// ownVersion is the version of the release, or else that of the toolchain.
func ownVersion() versionReport {
	v := versionReport{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if main := build.Main.Version; v.Version == "dev" && main != "" && main != "(devel)" {
		v.Version = main
	}
	for _, s := range build.Settings {
		if s.Key == "vcs.revision" {
			v.Revision = s.Value
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
	engine, err := s.OpenEngine(a.Logger())
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
