package machine

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/gpu"
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
			return a.Show(s, report, func() error { return printGPUReport(a, report) })
		}),
	}
	a.SettingFlags(cmd, "json")
	return cmd
}

func printGPUReport(a *cli.App, report sandbox.GPUReport) error {
	if err := printGPUs(a, report); err != nil || len(report.Queue) == 0 {
		return err
	}
	var rows [][]string
	for _, t := range report.Queue {
		state := t.State
		if t.Aside {
			state = "aside"
		}
		rows = append(rows, append([]string{t.Want, state}, holderCells(t)...))
	}
	if err := a.Print("\n"); err != nil {
		return err
	}
	return a.PrintTable(append([]string{"WANTS", "STATE"}, holderHeader...), rows)
}

// printGPUs prints one line for each GPU, and one more for each further holder;
// then why some are not lent.
func printGPUs(a *cli.App, report sandbox.GPUReport) error {
	if len(report.GPUs) == 0 {
		return a.Print("no GPU known; looked at:\n  %s\n", strings.Join(report.LookedAt, "\n  "))
	}
	var rows [][]string
	reasons := ""
	for _, g := range report.GPUs {
		row := []string{g.ID, cmp.Or(strings.TrimPrefix(g.Name, "NVIDIA "), "-"), gpuMemory(g.Device), g.State}
		for _, t := range g.Holders {
			rows = append(rows, append(row, holderCells(t)...))
			row = []string{"", "", "", ""}
		}
		if len(g.Holders) == 0 {
			rows = append(rows, append(row, "-", "-", "-", "-"))
		}
		if g.Reason != "" {
			reasons += fmt.Sprintf("GPU %s: %s\n", g.ID, g.Reason)
		}
	}
	err := a.PrintTable(append([]string{"GPU", "MODEL", "MEMORY", "STATE"}, holderHeader...), rows)
	if err != nil || reasons == "" {
		return err
	}
	return a.Print("\n%s", reasons)
}

// gpuMemory is how much of a GPU's memory is used.
func gpuMemory(d gpu.Device) string {
	if d.TotalBytes == gpu.Unknown {
		return "-"
	}
	used := "?"
	if d.UsedBytes != gpu.Unknown {
		used = strconv.FormatInt(d.UsedBytes>>30, 10)
	}
	return fmt.Sprintf("%s/%d GiB", used, d.TotalBytes>>30)
}

// holderHeader names the columns of who holds a GPU or waits. The process and the
// exact time are in the JSON.
var holderHeader = []string{"AGE", "USER", "RUN", "NAME"}

func holderCells(t gpu.Ticket) []string {
	return []string{age(time.Since(t.Since)), cmp.Or(text.Fit(t.User, 12), "-"), t.RunID, cmp.Or(t.Name, "-")}
}

// age is a duration in its greatest unit.
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}
