package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/sandbox/gpu"
)

func newGPUsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gpus",
		Short: "List the GPUs, who has them, and who waits",
		Long: `List the GPUs that runs can have, the runs that have them, and those that wait.

A GPU is free, held by one run, shared by runs with --gpu-share, or quarantined: not
lent, for the reason shown, until a later look finds it well. Nothing is changed.`,
		Example: "  sandbox gpus\n  sandbox gpus --json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.gpus(cmd.Context()) },
	}
	a.settingFlags(cmd, false, "json")
	return cmd
}

func (a *app) gpus(ctx context.Context) error {
	s, runner, err := a.openRunner()
	if err != nil {
		return err
	}
	defer runner.Close()
	report, err := runner.GPUs(ctx)
	if err != nil {
		return err
	}
	if s.JSON {
		return a.printJSON(report)
	}
	if len(report.GPUs) == 0 {
		if err := a.print("no GPU; looked at:\n  %s\n", strings.Join(report.LookedAt, "\n  ")); err != nil {
			return err
		}
	} else if err := a.printTable([]string{"GPU", "NAME", "UUID", "MEMORY", "STATE", "HOLDER"}, gpuRows(report.GPUs)); err != nil {
		return err
	}
	if len(report.Queue) == 0 {
		return nil
	}
	var rows [][]string
	for _, t := range report.Queue {
		state := t.State
		if t.Aside {
			state = "aside"
		}
		rows = append(rows, []string{fmt.Sprint(t.Number), t.RunID, t.Want, state, t.Since.UTC().Format(time.RFC3339), processOf(t)})
	}
	if err := a.print("\n"); err != nil {
		return err
	}
	return a.printTable([]string{"ARRIVAL", "RUN", "WANTS", "STATE", "SINCE", "PROCESS"}, rows)
}

// gpuRows is one line for each GPU, and one more for each further holder.
func gpuRows(gpus []gpu.Listed) [][]string {
	var rows [][]string
	for _, g := range gpus {
		memory := "-"
		if g.TotalBytes != gpu.Unknown {
			memory = units.BytesSize(float64(g.TotalBytes))
			if g.UsedBytes != gpu.Unknown {
				memory = units.BytesSize(float64(g.UsedBytes)) + " / " + memory
			}
		}
		row := []string{g.ID, orDash(g.Name), orDash(g.UUID), memory, g.State, orDash(g.Reason)}
		for i, t := range g.Holders {
			held := fmt.Sprintf("%s since %s, %s", t.RunID, t.Since.UTC().Format(time.RFC3339), processOf(t))
			switch {
			case i > 0:
				rows = append(rows, row)
				row = []string{"", "", "", "", "", held}
			case g.Reason != "":
				row[5] = held + "; " + g.Reason
			default:
				row[5] = held
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func processOf(t gpu.Ticket) string {
	return fmt.Sprintf("process %d of %s on %s", t.PID, t.User, t.Host)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
