package runs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/record"
)

// NewGC returns the command `gc`.
func NewGC(a *cli.App) *cobra.Command {
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
evidence what left files, or was approved or referred to. Trials of all harnesses that
are as old leave the log of trials, whatever the class. Records and trials are kept
until somebody deletes them.`,
		Example: "  sandbox gc --dry-run\n  sandbox gc --kept\n  sandbox gc --retention session --older-than 24h",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := retention.check(cmd); err != nil {
				return err
			}
			if retention.class != "" {
				return a.With(func(_ context.Context, s settings.Settings, _ []string) error {
					return expire(a, s, retention, opts.DryRun)
				})(cmd, args)
			}
			return a.WithRunner(func(ctx context.Context, s settings.Settings, runner *sandbox.Runner) error {
				return collect(ctx, a, s, runner, opts)
			})(cmd, args)
		},
	}
	cmd.Flags().BoolVar(&opts.DryRun, "dry-run", false, "only say what would be removed")
	cmd.Flags().BoolVar(&opts.Kept, "kept", false, "also what --keep left behind")
	retention.register(cmd)
	a.SettingFlags(cmd, "json")
	return cmd
}

// collect shows the removed containers also after an error.
func collect(ctx context.Context, a *cli.App, s settings.Settings, runner *sandbox.Runner, opts sandbox.GCOptions) error {
	report, gcErr := runner.GC(ctx, opts)
	if gcErr != nil && len(report.Removed)+len(report.Left) == 0 {
		return gcErr
	}
	if err := printReport(a, report, opts, s.JSON); err != nil {
		return err
	}
	if opts.DryRun {
		return gcErr
	}
	settled, err := contract.SettleAbandoned(runner.Store())
	if len(settled) > 0 && !s.JSON {
		err = errors.Join(err, a.Print("abandoned contracts that have an outcome now: %s\n", strings.Join(settled, " ")))
	}
	return errors.Join(gcErr, err)
}

func printReport(a *cli.App, report sandbox.GCReport, opts sandbox.GCOptions, asJSON bool) error {
	if asJSON {
		// Lists are never null.
		report.Removed = append([]sandbox.Collected{}, report.Removed...)
		report.Left = append([]sandbox.Collected{}, report.Left...)
		return a.PrintJSON(report)
	}
	verb := removing(opts.DryRun)
	var lines []string
	for _, c := range report.Removed {
		lines = append(lines, fmt.Sprintf("%s %s: %s", verb, c.Container, c.Reason))
	}
	for _, c := range report.Left {
		lines = append(lines, fmt.Sprintf("left %s: %s", c.Container, c.Reason))
	}
	return a.PrintAll(append(lines, fmt.Sprintf("%s %d, left %d", verb, len(report.Removed), len(report.Left))))
}

func removing(dry bool) string {
	if dry {
		return "would remove"
	}
	return "removed"
}

// retentionFlags are the flags of `gc` that are about records.
type retentionFlags struct {
	class     string
	olderThan time.Duration
}

func (f *retentionFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.class, "retention", "", "delete records of contracts of this `class` instead: session or evidence")
	cmd.Flags().Var(cli.Duration(&f.olderThan), "older-than", "with --retention: only those that are older, such as 720h (required)")
}

// check refuses flags that contradict each other.
func (f retentionFlags) check(cmd *cobra.Command) error {
	known := f.class == contract.RetainSession || f.class == contract.RetainEvidence
	return cli.Check(cmd,
		cli.Wrong(cmd.Flags().Changed("retention") && !known, "--retention %q: must be session or evidence", f.class),
		cli.Together("retention", "older-than"), cli.Apart("retention", "kept"))
}

// expiredReport is the JSON of `gc --retention --json`.
type expiredReport struct {
	Removed []contract.Expired `json:"removed"`
	// Left are records of contracts that are as old and have no outcome, because their
	// process ended first. Without an outcome they have no class.
	Left []string `json:"left"`
}

// expire deletes records. It goes on after one that cannot be deleted.
func expire(a *cli.App, s settings.Settings, f retentionFlags, dry bool) error {
	store, err := s.Store()
	if err != nil {
		return err
	}
	expired, err := contract.FindExpired(store, f.class, time.Now().Add(-f.olderThan))
	errs := []error{err}
	report := expiredReport{Removed: []contract.Expired{}}
	verb := removing(dry)
	for _, e := range expired {
		if !dry {
			if err := store.Remove(e.RunID); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		report.Removed = append(report.Removed, e)
		if !s.JSON {
			errs = append(errs, a.Print("%s %s: %s, execution %s\n", verb, e.RunID, e.Created.Local().Format(time.DateTime), e.ExecutionID))
		}
	}
	trials, err := expireTrials(store.Dir(), time.Now().Add(-f.olderThan), dry)
	if errs = append(errs, err); trials > 0 && !s.JSON {
		errs = append(errs, a.Print("%s %s from the log\n", verb, text.Count(trials, "trial")))
	}
	report.Left = withoutOutcome(store, time.Now().Add(-f.olderThan))
	if s.JSON {
		return errors.Join(append(errs, a.PrintJSON(report))...)
	}
	errs = append(errs, a.Print("%s %d of class %s\n", verb, len(report.Removed), f.class))
	if len(report.Left) > 0 {
		errs = append(errs, a.Print("left, because they have no outcome and so no class: sandbox rm %s\n", strings.Join(report.Left, " ")))
	}
	return errors.Join(errs...)
}

// expireTrials removes the trials that ended before a time, and returns their number.
func expireTrials(stateDir string, before time.Time, dry bool) (int, error) {
	dir := cli.TrialsDir(stateDir)
	if !fsx.IsDir(dir) {
		return 0, nil
	}
	log, err := trial.OpenLog(dir)
	if err != nil {
		return 0, err
	}
	return log.Expire(before, dry)
}

// withoutOutcome are the records of contracts, made before a time, that will never have
// an outcome.
func withoutOutcome(store *record.Store, before time.Time) []string {
	records, _ := store.ListBrief() // FindExpired has reported unreadable ones
	left := []string{}
	for _, each := range records {
		if each.State == record.Running || !each.Created.Before(before) {
			continue
		}
		if c := contract.OfRecord(each); c != nil && c.Outcome == nil && len(c.Unread) == 0 {
			left = append(left, each.ID)
		}
	}
	return left
}
