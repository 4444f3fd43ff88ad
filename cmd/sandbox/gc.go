package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/sandbox"
)

func newGCCommand(a *app) *cobra.Command {
	var opts sandbox.GCOptions
	var retention retentionFlags
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove containers whose owner is gone",
		Long: `Remove the containers that runs, or the reading of images, left behind because the
process that owned them died.
The container of a live owner is never touched, nor anything that is not ours.
Contracts that were carried out by such a process get their outcome: abandoned.

With --retention the records of contracts of one class are deleted instead, and no
container is looked at: session is what left nothing but streams and an exit code,
evidence what left files, or was approved or referred to. Records are kept until
somebody deletes them.`,
		Example: "  sandbox gc --dry-run\n  sandbox gc --kept\n  sandbox gc --retention session --older-than 24h",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := retention.check(cmd); err != nil {
				return err
			}
			if retention.class != "" {
				return a.expire(retention, opts.DryRun)
			}
			return a.gc(cmd.Context(), opts)
		},
	}
	cmd.Flags().BoolVar(&opts.DryRun, "dry-run", false, "only say what would be removed")
	cmd.Flags().BoolVar(&opts.Kept, "kept", false, "also what --keep left behind")
	retention.register(cmd)
	a.settingFlags(cmd, false, "json")
	return cmd
}

// gc shows what was done also when something failed.
func (a *app) gc(ctx context.Context, opts sandbox.GCOptions) error {
	s, runner, err := a.openRunner()
	if err != nil {
		return err
	}
	defer runner.Close()
	report, sweepErr := runner.GC(ctx, opts)
	if sweepErr != nil && len(report.Removed)+len(report.Left) == 0 {
		return sweepErr
	}
	if err := a.printReport(report, opts, s.JSON); err != nil {
		return err
	}
	if opts.DryRun {
		return sweepErr
	}
	settled, err := contract.SettleAbandoned(runner.Store())
	if len(settled) > 0 && !s.JSON {
		err = errors.Join(err, a.print("abandoned contracts that have an outcome now: %s\n", strings.Join(settled, " ")))
	}
	return errors.Join(sweepErr, err)
}

func (a *app) printReport(report sandbox.GCReport, opts sandbox.GCOptions, asJSON bool) error {
	if asJSON {
		// Lists are never null.
		report.Removed = append([]sandbox.Collected{}, report.Removed...)
		report.Left = append([]sandbox.Collected{}, report.Left...)
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
