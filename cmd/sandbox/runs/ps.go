package runs

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// listedContainer is one container as `ps --json` prints it.
type listedContainer struct {
	RunID     string    `json:"run_id"`
	Name      string    `json:"name"`
	Container string    `json:"container"`
	Image     string    `json:"image"`
	Running   bool      `json:"running"`
	Status    string    `json:"status"`
	Created   time.Time `json:"created"`
	// Swept says that `gc` would remove it, Reason why or why not.
	Swept  bool   `json:"would_be_swept"`
	Reason string `json:"reason"`
}

// NewPs returns the command `ps`.
func NewPs(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List the containers of runs on the engine",
		Long: `List the containers of runs that the engine has, of every controller, and whether the
process that owns each of them still lives.`,
		Example: "  sandbox ps",
		Args:    cobra.NoArgs,
		RunE: a.WithRunner(func(ctx context.Context, s settings.Settings, runner *sandbox.Runner) error {
			containers, err := runner.Containers(ctx)
			if err != nil {
				return err
			}
			report, err := runner.GC(ctx, sandbox.GCOptions{DryRun: true})
			if err != nil {
				return err
			}
			all := withOwners(containers, report)
			var rows [][]string
			for _, c := range all {
				rows = append(rows, []string{c.RunID, c.Name, c.Status, c.Image, c.Reason})
			}
			return a.ShowTable(s, all, []string{"RUN", "NAME", "STATUS", "IMAGE", "OWNER"}, rows)
		}),
	}
	a.SettingFlags(cmd, "json")
	return cmd
}

// withOwners joins the containers of the engine with what gc says of their owners. A
// container that came or went in between has no reason.
func withOwners(containers []engine.Found, report sandbox.GCReport) []listedContainer {
	removed, left := map[string]string{}, map[string]string{}
	for _, c := range report.Removed {
		removed[c.Container] = c.Reason
	}
	for _, c := range report.Left {
		left[c.Container] = c.Reason
	}
	all := []listedContainer{}
	for _, c := range containers {
		reason, swept := removed[c.Name]
		if !swept {
			reason = left[c.Name]
		}
		all = append(all, listedContainer{
			RunID: c.Labels[spec.LabelRun], Name: c.Labels[spec.LabelName], Container: c.Name,
			Image: c.Image, Running: c.Running, Status: c.Status, Created: c.CreatedAt, Swept: swept, Reason: reason,
		})
	}
	return all
}
