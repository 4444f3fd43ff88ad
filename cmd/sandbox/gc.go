package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/sandbox"
)

func newGCCommand(a *app) *cobra.Command {
	var opts sandbox.SweepOptions
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove containers whose owner is gone",
		Long: `Remove the containers that runs, or the reading of images, left behind because the
process that owned them died.
The container of a live owner is never touched, nor anything that is not ours.`,
		Example: "  sandbox gc --dry-run\n  sandbox gc --kept",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.gc(cmd.Context(), opts) },
	}
	cmd.Flags().BoolVar(&opts.DryRun, "dry-run", false, "only say what would be removed")
	cmd.Flags().BoolVar(&opts.Kept, "kept", false, "also what --keep left behind")
	a.settingFlags(cmd, false, "json")
	return cmd
}

// gc shows what was done also when something failed.
func (a *app) gc(ctx context.Context, opts sandbox.SweepOptions) error {
	s, runner, err := a.openRunner()
	if err != nil {
		return err
	}
	defer runner.Close()
	report, sweepErr := runner.Sweep(ctx, opts)
	if sweepErr != nil && len(report.Removed)+len(report.Left) == 0 {
		return sweepErr
	}
	if err := a.printReport(report, opts, s.JSON); err != nil {
		return err
	}
	return sweepErr
}

func (a *app) printReport(report sandbox.SweepReport, opts sandbox.SweepOptions, asJSON bool) error {
	if asJSON {
		// Lists are never null.
		report.Removed = append([]sandbox.Swept{}, report.Removed...)
		report.Left = append([]sandbox.Swept{}, report.Left...)
		return a.printJSON(report)
	}
	verb := "removed"
	if opts.DryRun {
		verb = "would remove"
	}
	for _, swept := range report.Removed {
		if err := a.print("%s %s: %s\n", verb, swept.Container, swept.Reason); err != nil {
			return err
		}
	}
	for _, left := range report.Left {
		if err := a.print("left %s: %s\n", left.Container, left.Reason); err != nil {
			return err
		}
	}
	return a.print("%s %d, left %d\n", verb, len(report.Removed), len(report.Left))
}
