package machine

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/sandbox"
)

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
		RunE: a.WithRunner(func(ctx context.Context, s settings.Settings, runner *sandbox.Runner) error {
			report, err := runner.GPUs(ctx)
			if err != nil {
				return err
			}
			return a.Show(s, report, func() error {
				return a.PrintTables(render.GPUs(report, time.Now())...)
			})
		}),
	}
	a.SettingFlags(cmd, "json")
	return cmd
}
