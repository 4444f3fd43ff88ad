package runs

import (
	"context"
	"errors"
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
			rows = append(rows, []string{run.ID, run.Name, text.Fit(statuses[i], 40), scoreText(run.Score),
				durationText(records[i]), run.Created.Local().Format(time.DateTime), text.Fit(strings.Join(run.Command, " "), 60)})
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
		run.Score, run.DurationSeconds = res.Score, res.DurationSeconds
	}
	return run
}

func scoreText(score *float64) string {
	if score == nil {
		return "-"
	}
	return text.Number(*score)
}

func durationText(record record.Record) string {
	if record.Result == nil {
		return "-"
	}
	return text.Seconds(record.Result.DurationSeconds)
}
