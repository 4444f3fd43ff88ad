package main

import (
	"errors"
	"strings"
	"time"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/spf13/cobra"
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

func newLsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List recorded runs, oldest first",
		Example: "  sandbox ls\n  sandbox ls --json",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return a.list() },
	}
	a.settingFlags(cmd, false, "json")
	return cmd
}

// list shows what can be read, and then reports what cannot.
func (a *app) list() error {
	s, store, err := a.openStore()
	if err != nil {
		return err
	}
	records, unreadable := store.List()
	runs := []listedRun{}
	var statuses []string
	for _, record := range records {
		c := contractOf(record)
		runs = append(runs, listed(record, c))
		statuses = append(statuses, c.status(record))
	}
	if s.JSON {
		return errors.Join(a.printJSON(runs), unreadable)
	}
	var rows [][]string
	for i, run := range runs {
		rows = append(rows, []string{run.ID, run.Name, short(statuses[i], 40), scoreText(run.Score),
			durationText(records[i]), run.Created.Local().Format(time.DateTime), short(strings.Join(run.Command, " "), 60)})
	}
	return errors.Join(a.printTable([]string{"ID", "NAME", "STATUS", "SCORE", "DURATION", "CREATED", "COMMAND"}, rows), unreadable)
}

func listed(record record.Record, c *recordedContract) listedRun {
	run := listedRun{
		ID: record.ID, Name: record.Spec.Job.Name, State: string(record.State), Created: record.Created,
		Command: c.command(record), Dir: record.Dir, Contract: c.listed(),
	}
	if res := record.Result; res != nil {
		run.Status, run.ExitCode = res.Status.String(), &res.ExitCode
		run.Score, run.DurationSeconds = res.Score, res.DurationSeconds
	}
	return run
}

// recordStatus is how a run ended, or how far it is.
func recordStatus(record record.Record) string {
	if record.Result == nil {
		return string(record.State)
	}
	return statusText(record.Result, palette(false))
}

func scoreText(score *float64) string {
	if score == nil {
		return "-"
	}
	return formatScore(*score)
}

func durationText(record record.Record) string {
	if record.Result == nil {
		return "-"
	}
	return formatSeconds(record.Result.DurationSeconds)
}

// short cuts text for a column, at a character.
func short(text string, limit int) string {
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return text
}
