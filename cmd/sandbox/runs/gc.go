package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
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
	"github.com/evalbox/evalbox/sandbox/spec"
)

// containersDocument is the JSON of `ps`.
type containersDocument struct {
	Schema     string            `json:"schema"`
	Containers []listedContainer `json:"containers"`
}

// listedContainer is one container as `ps --json` prints it.
type listedContainer struct {
	RunID     string `json:"run_id"`
	Name      string `json:"name"`
	Container string `json:"container"`
	// Image is the name by which the run asked for the image; without its record it is the ID.
	Image     string    `json:"image"`
	ImageID   string    `json:"image_id"`
	Running   bool      `json:"running"`
	Status    string    `json:"status"`
	StartedAt time.Time `json:"started_at"`
	// OwnerPID is the process that owns the run, and Owner whether it is running, gone or, on
	// another machine or in another PID namespace, unknown.
	OwnerPID int    `json:"owner_pid"`
	Owner    string `json:"owner"`
	// SecondsLeft is the time until the time limit of the program; null without a program.
	SecondsLeft *float64 `json:"seconds_left"`
	// Swept says that `gc` would remove it, Reason why or why not.
	Swept  bool   `json:"would_be_swept"`
	Reason string `json:"reason"`
}

// NewPs returns the command `ps`.
func NewPs(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List the containers of runs on the engine",
		Long: `List the containers of runs that the engine has, also those of other users and state
directories: the image, the process that owns the run and whether it still runs, and the time
until the time limit of the program.`,
		Example: "  sandbox ps",
		Args:    cobra.NoArgs,
		RunE: a.WithRunner(func(ctx context.Context, s settings.Settings, runner *sandbox.Runner, _ []string) error {
			containers, err := runner.Containers(ctx)
			if err != nil {
				return err
			}
			report, err := runner.GC(ctx, sandbox.GCOptions{DryRun: true})
			if err != nil {
				return err
			}
			// A container that came or went in between has no reason.
			removed, left := map[string]string{}, map[string]string{}
			for _, c := range report.Removed {
				removed[c.Container] = c.Reason
			}
			for _, c := range report.Left {
				left[c.Container] = c.Reason
			}
			document := containersDocument{"evalbox/containers/v1", []listedContainer{}}
			var rows [][]string
			for _, c := range containers {
				reason, swept := removed[c.Name]
				facts := runner.Facts(c)
				listed := listedContainer{
					RunID: c.Labels[spec.LabelRun], Name: c.Labels[spec.LabelName], Container: c.Name, Image: cmp.Or(facts.Image, c.Image), ImageID: c.Image,
					Running: c.Running, Status: c.Status, StartedAt: c.CreatedAt, OwnerPID: facts.OwnerPID, Owner: facts.Owner,
					Swept: swept, Reason: cmp.Or(reason, left[c.Name]),
				}
				timeLeft := "-"
				if !facts.Until.IsZero() && c.Running {
					seconds := max(0, time.Until(facts.Until).Seconds())
					listed.SecondsLeft, timeLeft = &seconds, text.Seconds(math.Round(seconds))
				}
				document.Containers = append(document.Containers, listed)
				id := listed.RunID
				if a.OutTerminal {
					id = record.ShortID(id)
				}
				rows = append(rows, []string{id, listed.Name, listed.Status, imageName(listed.Image), ownerText(listed), timeLeft})
			}
			return a.ShowTable(s, document, []string{"RUN", "NAME", "STATUS", "IMAGE", "OWNER", "TIME LEFT"}, rows)
		}),
	}
	a.SettingFlags(cmd, "json")
	return cmd
}

// imageName is the name of an image in a table: of one without a name, the beginning of its ID.
func imageName(image string) string {
	if digest, ok := strings.CutPrefix(image, "sha256:"); ok {
		return digest[:min(12, len(digest))]
	}
	return image
}

// ownerText is the process of a run and whether it runs, such as "5648 running".
func ownerText(c listedContainer) string {
	if c.OwnerPID == 0 {
		return c.Owner
	}
	return fmt.Sprintf("%d %s", c.OwnerPID, c.Owner)
}

// NewGC returns the command `gc`.
func NewGC(a *cli.App) *cobra.Command {
	var opts sandbox.GCOptions
	var class string
	var olderThan *time.Duration
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Finish runs whose own process died, and remove what is left",
		Long: `Finish the runs whose own process died and whose programs have ended, as 'sandbox
adopt' does. Then remove the containers and temporary files that such runs, or interrupted
image scans, left behind. A program that still runs may run until its time limit. The
container of a live process is never touched, nor anything that evalbox did not create;
'sandbox ps' lists them.
Outputs that have not come to the --final of their run are moved there.
A run whose record is damaged is ended, because nobody can finish it; the record stays.
Contracts that were carried out by such a process get their outcome: abandoned.
To delete the records of old runs see 'sandbox prune'.

With --retention the records of contracts of one class are deleted instead, and no
container is looked at: session is what left nothing but streams and an exit code,
evidence what left files, or was approved or referred to. Trials of all harnesses that
are as old leave the log of trials, whatever the class. Records and trials are kept
until somebody deletes them.`,
		Example: "  sandbox gc --dry-run\n  sandbox gc --kept\n  sandbox gc --retention session --older-than 1d",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			known := class == contract.RetainSession || class == contract.RetainEvidence
			if err := cli.Check(cmd,
				cli.Wrong(cmd.Flags().Changed("retention") && !known, "--retention %q: must be session or evidence", class),
				cli.Together("retention", "older-than"), cli.Apart("retention", "kept")); err != nil {
				return err
			}
			if class != "" {
				return a.With(func(_ context.Context, s settings.Settings, _ []string) error {
					return expire(a, s, class, *olderThan, opts.DryRun)
				})(cmd, args)
			}
			return a.WithRunner(func(ctx context.Context, s settings.Settings, runner *sandbox.Runner, _ []string) error {
				return collect(ctx, a, s, runner, opts)
			})(cmd, args)
		},
	}
	cmd.Flags().BoolVar(&opts.DryRun, "dry-run", false, "only say what would be removed")
	cmd.Flags().BoolVar(&opts.Kept, "kept", false, "also what --keep left behind")
	cmd.Flags().StringVar(&class, "retention", "", "delete records of contracts of this `class` instead: session or evidence")
	cmd.Flags().Var(cli.Optional(&olderThan, "duration", readAge), "older-than", "with --retention: only those that are older, such as 30d (required)")
	a.SettingFlags(cmd, "json")
	return cmd
}

// collect shows the removed containers also after an error.
func collect(ctx context.Context, a *cli.App, s settings.Settings, runner *sandbox.Runner, opts sandbox.GCOptions) error {
	report, gcErr := runner.GC(ctx, opts)
	if gcErr != nil && len(report.Finished)+len(report.Ended)+len(report.Removed)+len(report.Left) == 0 {
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
		report.Finished = append([]sandbox.Collected{}, report.Finished...)
		report.Ended = append([]sandbox.Collected{}, report.Ended...)
		report.Removed = append([]sandbox.Collected{}, report.Removed...)
		report.Left = append([]sandbox.Collected{}, report.Left...)
		return a.PrintJSON(struct {
			Schema string `json:"schema"`
			sandbox.GCReport
		}{"evalbox/gc/v1", report})
	}
	verb := removing(opts.DryRun)
	var lines []string
	for _, c := range report.Finished {
		lines = append(lines, fmt.Sprintf("%s run %s: %s", finishing(opts.DryRun), c.RunID, c.Reason))
	}
	for _, c := range report.Ended {
		lines = append(lines, fmt.Sprintf("%s: %s", ending(opts.DryRun), c.Reason))
	}
	for _, c := range report.Removed {
		lines = append(lines, fmt.Sprintf("%s %s: %s", verb, c.Container, c.Reason))
	}
	kept := "kept"
	if opts.DryRun {
		kept = "would keep"
	}
	counts := fmt.Sprintf("%s %d, %s %d", verb, len(report.Removed), kept, len(report.Left))
	if n := len(report.Ended); n > 0 {
		counts = fmt.Sprintf("%s %d, %s", ending(opts.DryRun), n, counts)
	}
	if n := len(report.Finished); n > 0 {
		counts = fmt.Sprintf("%s %d, %s", finishing(opts.DryRun), n, counts)
	}
	return a.PrintAll(append(lines, counts))
}

// done is the verb of what was done, or would be in a dry run.
func done(dry bool, would, did string) string {
	if dry {
		return "would " + would
	}
	return did
}

func finishing(dry bool) string { return done(dry, "finish", "finished") }
func ending(dry bool) string    { return done(dry, "end", "ended") }
func removing(dry bool) string  { return done(dry, "remove", "removed") }

// expiredReport is the JSON of `gc --retention --json`.
type expiredReport struct {
	Schema  string             `json:"schema"`
	Removed []contract.Expired `json:"removed"`
	// Left are records of contracts that are as old and have no outcome, because their
	// process ended first. Without an outcome they have no class.
	Left []string `json:"left"`
}

// expire deletes records. It goes on after one that cannot be deleted.
func expire(a *cli.App, s settings.Settings, class string, olderThan time.Duration, dry bool) error {
	store, err := s.Store()
	if err != nil {
		return err
	}
	before := time.Now().Add(-olderThan)
	expired, err := contract.FindExpired(store, class, before)
	errs := []error{err}
	report := expiredReport{Schema: "evalbox/gc-retention/v1", Removed: []contract.Expired{}, Left: []string{}}
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
	trials, err := expireTrials(store.Dir(), before, dry)
	if errs = append(errs, err); trials > 0 && !s.JSON {
		errs = append(errs, a.Print("%s %s from the log\n", verb, text.Count(trials, "trial")))
	}
	records, _ := store.ListBrief() // FindExpired has reported unreadable ones
	for _, each := range records {
		if each.State == record.Running || !each.Created.Before(before) {
			continue
		}
		if c := contract.OfRecord(each); c != nil && c.Outcome == nil && len(c.Unread) == 0 {
			report.Left = append(report.Left, each.ID)
		}
	}
	if s.JSON {
		return errors.Join(append(errs, a.PrintJSON(report))...)
	}
	errs = append(errs, a.Print("%s %d of class %s\n", verb, len(report.Removed), class))
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
