package runs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/sandbox/record"
)

// listedRun is one run as `ls --json` prints it.
type listedRun struct {
	ID              string    `json:"id"`
	Name            string    `json:"name"`
	State           string    `json:"state"`
	Created         time.Time `json:"created"`
	Status          string    `json:"status"`
	ExitCode        *int      `json:"exit_code"`
	Score           *float64  `json:"score"`
	ScoreUnfinished bool      `json:"score_unfinished"`
	DurationSeconds float64   `json:"duration_seconds"`
	Command         []string  `json:"command"`
	Dir             string    `json:"dir"`
	// Contract is null for a run that was no contract.
	Contract *listedContract `json:"contract"`
}

// listedContract is the contract of one run as `ls --json` prints it.
type listedContract struct {
	ExecutionID string `json:"execution_id"`
	ToolID      string `json:"tool_id"`
	// Success is null without an outcome.
	Success *bool  `json:"success"`
	Error   string `json:"error"`
	// Outcome is the file; empty without one.
	Outcome string `json:"outcome"`
}

func listedOf(c *contract.Recorded) *listedContract {
	if c == nil {
		return nil
	}
	l := &listedContract{ExecutionID: c.Contract.ExecutionID, ToolID: c.Contract.ToolID}
	if o := c.Outcome; o != nil {
		l.ExecutionID, l.ToolID, l.Success, l.Error = o.ExecutionID, o.ToolID, &o.Success, o.Error
		l.Outcome = filepath.Join(c.Dir, contract.OutcomeFile)
	}
	return l
}

// NewLs returns the command `ls`.
func NewLs(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List recorded runs, oldest first",
		Example: "  sandbox ls\n  sandbox ls --json",
		Args:    cobra.NoArgs,
		RunE:    a.With(func(_ context.Context, s settings.Settings, _ []string) error { return list(a, s) }),
	}
	a.SettingFlags(cmd, "json")
	return cmd
}

// list shows the records that can be read, and then reports the others.
func list(a *cli.App, s settings.Settings) error {
	store, err := s.Store()
	if err != nil {
		return err
	}
	records, unreadable := store.ListBrief()
	runs := []listedRun{}
	var statuses []string
	for _, record := range records {
		c := contract.OfRecord(record)
		runs = append(runs, listed(record, c))
		statuses = append(statuses, render.RecordStatus(record, c))
	}
	return errors.Join(a.Show(s, runs, func() error {
		var rows [][]string
		for i, run := range runs {
			score, duration := "-", "-"
			if run.Score != nil {
				score = text.Number(*run.Score)
				if run.ScoreUnfinished {
					score = render.Unfinished + score
				}
			}
			if records[i].Result != nil {
				duration = text.Seconds(run.DurationSeconds)
			}
			rows = append(rows, []string{run.ID, run.Name, text.Fit(statuses[i], 40), score, duration,
				run.Created.Local().Format(time.DateTime), text.Fit(strings.Join(run.Command, " "), 60)})
		}
		return a.PrintTable([]string{"ID", "NAME", "STATUS", "SCORE", "DURATION", "CREATED", "COMMAND"}, rows)
	}), unreadable)
}

func listed(record record.Record, c *contract.Recorded) listedRun {
	run := listedRun{
		ID: record.ID, Name: record.Spec.Job.Name, State: string(record.State), Created: record.Created,
		Command: c.Command(record), Dir: record.Dir, Contract: listedOf(c),
	}
	if res := record.Result; res != nil {
		run.Status, run.ExitCode = res.Status.String(), &res.ExitCode
		run.Score, run.ScoreUnfinished, run.DurationSeconds = res.Score, res.ScoreUnfinished, res.DurationSeconds
	}
	return run
}

// NewShow returns the command `show`.
func NewShow(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show how a run ended",
		Long: `Show how a run ended: the result, the limits that were enforced, the outputs and the
traceback; of a contract also what came out otherwise, and where its outcome is. With
--json: the result itself. The beginning of an ID is enough.`,
		Example: "  sandbox show 20260102t150405-1a2b3c4d5e\n  sandbox show 20260102t150405-1a --json | jq .score",
		Args:    cobra.ExactArgs(1),
		RunE: a.With(func(_ context.Context, s settings.Settings, args []string) error {
			store, each, err := find(s, args[0])
			switch {
			case err != nil:
				return err
			case s.JSON && each.Result == nil:
				return cli.WithHint(fmt.Errorf("run %s: has no result: it is %s", each.ID, each.State), hintOf(each))
			}
			return a.Show(s, each.Result, func() error {
				return a.Print("%s", render.Record(each, contract.OfRecord(each), finalOf(store, each.Spec.Job.Final, each.ID)))
			})
		}),
	}
	a.SettingFlags(cmd, "json")
	return cmd
}

// find opens the records and returns the one of an ID.
func find(s settings.Settings, id string) (*record.Store, record.Record, error) {
	store, err := s.Store()
	if err != nil {
		return nil, record.Record{}, err
	}
	each, err := store.Get(id)
	return store, each, err
}

// finalOf is the directory of the outputs of a run.
func finalOf(store *record.Store, asked, id string) string {
	if asked != "" {
		return asked
	}
	each, err := store.Get(id)
	if err != nil {
		return "" // the record is gone
	}
	return filepath.Join(each.Dir, "final")
}

// NewLogs returns the command `logs`.
func NewLogs(a *cli.App) *cobra.Command {
	var goOn, stderr bool
	cmd := &cobra.Command{
		Use:   "logs [flags] ID",
		Short: "Print what a run printed",
		Long: `Print the stdout, or the stderr, of a run. With --follow, go on until it ends.
The beginning of an ID is enough.`,
		Example: "  sandbox logs -f 20260102t150405-1a2b3c4d5e\n  sandbox logs --stderr 20260102t150405-1a",
		Args:    cobra.ExactArgs(1),
		RunE: a.With(func(ctx context.Context, s settings.Settings, args []string) error {
			return logs(ctx, a, s, args[0], goOn, stderr)
		}),
	}
	cmd.Flags().BoolVarP(&goOn, "follow", "f", false, "go on until the run ends")
	cmd.Flags().BoolVar(&stderr, "stderr", false, "its stderr instead of its stdout")
	a.SettingFlags(cmd, "raw")
	return cmd
}

func logs(ctx context.Context, a *cli.App, s settings.Settings, id string, goOn, stderr bool) error {
	store, each, err := find(s, id)
	if err != nil {
		return err
	}
	path := each.StdoutPath()
	if stderr {
		path = each.StderrPath()
	}
	out := a.Out
	if a.OutTerminal && !s.Raw {
		screen := a.Screen()
		defer screen.End() //nolint:errcheck // nothing is left to do about a terminal that went away
		out = screen.Stream(out)
	}
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("run %s: opening its log: %w", each.ID, err)
	}
	defer file.Close()
	if goOn && each.State == record.Lost {
		defer a.Say("the process of run %s died, and its log ends there; for the rest: %s", each.ID, a.RepeatFlags("sandbox adopt "+each.ID))
	}
	if goOn {
		return follow(ctx, store, each.ID, file, out)
	}
	_, err = io.Copy(out, file)
	return cli.ReaderGone(err)
}

// followInterval is how often a running program's log is looked at.
const followInterval = 100 * time.Millisecond

// follow copies a log until its run has ended. A record that is removed
// meanwhile has ended too.
func follow(ctx context.Context, store *record.Store, id string, file io.Reader, out io.Writer) error {
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	for {
		// First the state, then the log: output between the two is not lost.
		each, stateErr := store.Get(id)
		if _, err := io.Copy(out, file); err != nil {
			return cli.ReaderGone(err)
		}
		switch {
		case errors.Is(stateErr, record.ErrNoRecord):
			return nil
		case stateErr != nil:
			return stateErr
		case each.State != record.Running:
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// NewRm returns the command `rm`. It goes on after a record that cannot be removed.
func NewRm(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "rm ID...",
		Short: "Delete the records of runs",
		Long: `Delete the records of runs, with their logs and the outputs that no --final was given
for. The record of a running program is refused. The beginning of an ID is enough.`,
		Example: "  sandbox rm 20260102t150405-1a2b3c4d5e",
		Args:    cobra.MinimumNArgs(1),
		RunE: a.With(func(_ context.Context, s settings.Settings, ids []string) error {
			store, err := s.Store()
			if err != nil {
				return err
			}
			var errs []error
			for _, id := range ids {
				if err := store.Remove(id); err != nil {
					errs = append(errs, whyKept(store, id, err))
					continue
				}
				errs = append(errs, a.Print("%s\n", id))
			}
			return errors.Join(errs...)
		}),
	}
}

// hintOf says how a run without a result gets one.
func hintOf(each record.Record) string {
	if each.State == record.Lost {
		return "finish the run with: sandbox adopt " + each.ID
	}
	return "see what it prints, until it ends, with: sandbox logs -f " + each.ID
}

// whyKept says how to stop a run whose record stays because it runs.
func whyKept(store *record.Store, id string, err error) error {
	each, getErr := store.Get(id)
	switch {
	case getErr != nil || !errors.Is(err, record.ErrRunning):
		return err
	case each.State == record.Lost:
		return cli.WithHint(err, "its owner is gone; finish the run with: sandbox adopt "+each.ID)
	}
	return cli.WithHint(err, "interrupt its 'sandbox run', or: docker stop "+each.Spec.Job.ContainerName())
}
