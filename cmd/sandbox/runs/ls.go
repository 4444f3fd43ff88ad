package runs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/sandbox/record"
)

const (
	runsSchema = "evalbox/runs/v1"
	// newest is the number of runs that a terminal shows without --limit.
	newest = 20
	// maxMeasured bounds the files that are looked at to find out the sizes of a few records, and
	// maxMeasuredLong those for a list of more than fewRuns.
	maxMeasured, maxMeasuredLong, fewRuns = 100_000, 10_000, 100
)

// runsDocument is the JSON of `ls`.
type runsDocument struct {
	Schema string      `json:"schema"`
	Runs   []listedRun `json:"runs"`
}

// listedRun is one run as `ls --json` prints it.
type listedRun struct {
	RunID  string            `json:"run_id"`
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
	State  string            `json:"state"`
	// Status is empty until the run has a result; ExitCode is then null.
	Status          string    `json:"status"`
	ExitCode        *int      `json:"exit_code"`
	StartedAt       time.Time `json:"started_at"`
	DurationSeconds float64   `json:"duration_seconds"`
	Score           *float64  `json:"score"`
	ScoreUnfinished bool      `json:"score_unfinished"`
	Command         []string  `json:"command"`
	Dir             string    `json:"dir"`
	// SizeBytes is what the record takes on the disk; null if it was not measured, because the
	// records of the list have too many files.
	SizeBytes *int64 `json:"size_bytes"`
	// Contract is null for a run that was no contract.
	Contract *listedContract `json:"contract"`

	// text is the status for people, and ended says that there is a result.
	text  string
	ended bool
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

func listed(record record.Record, c *contract.Recorded) listedRun {
	job := record.Spec.Job
	run := listedRun{
		RunID: record.ID, Name: job.Name, Labels: job.Labels, State: string(record.State), StartedAt: record.Created,
		Command: c.Command(record), Dir: record.Dir, Contract: listedOf(c), text: render.RecordStatus(record, c),
	}
	if run.Labels == nil {
		run.Labels = map[string]string{}
	}
	if res := record.Result; res != nil {
		run.ended, run.Status, run.ExitCode = true, res.Status.String(), &res.ExitCode
		run.Score, run.ScoreUnfinished, run.DurationSeconds = res.Score, res.ScoreUnfinished, res.DurationSeconds
		if at, err := time.Parse(time.RFC3339Nano, res.StartedAt); err == nil { // otherwise it never started
			run.StartedAt = at
		}
	}
	return run
}

// lsFlags are the flags of `ls`.
type lsFlags struct {
	selection

	limit          *int
	sort, format   string
	quiet, noTrunc bool
}

// orders are the values of --sort. The last run of an order is the one with the most of it.
var orders = map[string]func(a, b listedRun) int{
	"started":  func(a, b listedRun) int { return a.StartedAt.Compare(b.StartedAt) },
	"duration": func(a, b listedRun) int { return cmp.Compare(a.DurationSeconds, b.DurationSeconds) },
	"size":     func(a, b listedRun) int { return cmp.Compare(bytesOf(a), bytesOf(b)) },
	"name":     func(a, b listedRun) int { return strings.Compare(a.Name, b.Name) },
}

func bytesOf(run listedRun) int64 {
	if run.SizeBytes == nil {
		return -1
	}
	return *run.SizeBytes
}

// NewLs returns the command `ls`.
func NewLs(a *cli.App) *cobra.Command {
	var f lsFlags
	cmd := &cobra.Command{
		Use:   "ls [flags]",
		Short: "List recorded runs, the newest last",
		Long: `List recorded runs, the newest last. A terminal shows the newest 20, cut to its width,
with the short form of each ID; a pipe gets all runs and whole texts.

SIZE is what the record of a run takes on the disk. Outputs that went to a directory of
--final are not part of it. A long list has the sizes of its last runs; --sort size measures all.`,
		Example: `  sandbox ls --status failed,lost --since 1h
  sandbox ls --name 'train*' --label exp=e1 -n 0
  sandbox ls --sort size
  sandbox rm $(sandbox ls -q --status failed)
  sandbox ls --format '{{.ID}} {{.Status}} {{.Label "exp"}}'`,
		Args: cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			_, known := orders[f.sort]
			return cli.Check(cmd, f.check,
				cli.Wrong(!known, "--sort %q: must be started, duration, size or name", f.sort),
				cli.Apart("quiet", "json"), cli.Apart("quiet", "format"), cli.Apart("format", "json"))
		},
		RunE: a.With(func(_ context.Context, s settings.Settings, _ []string) error { return list(a, s, f) }),
	}
	flags := cmd.Flags()
	flags.VarP(cli.Optional(&f.limit, "number", readCount), "limit", "n", "only the last of them, 0 for all (default 20 at a terminal, otherwise all)")
	f.register(cmd)
	flags.Var(sinceFlag(&f.Since), "since", "only runs that began at most this long ago, or after a time")
	flags.StringVar(&f.sort, "sort", "started", "order by `key`: started, duration, size or name")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "only IDs")
	flags.StringVar(&f.format, "format", "", "`template` in Go's syntax for each run, or table; fields: ID Name Labels State Status ExitCode Score Duration Size Started Command Dir")
	flags.BoolVar(&f.noTrunc, "no-trunc", false, "whole IDs and texts, also at a terminal")
	cli.Choices(cmd, "sort", slices.Sorted(maps.Keys(orders))...)
	a.SettingFlags(cmd, "json")
	return cmd
}

// list shows the records that can be read, and then reports the others.
func list(a *cli.App, s settings.Settings, f lsFlags) error {
	layout, err := layoutOf(f.format)
	if err != nil {
		return err
	}
	store, err := s.Store()
	if err != nil {
		return err
	}
	records, unreadable := store.ListBrief()
	runs := []listedRun{}
	for _, each := range records {
		if c := contract.OfRecord(each); f.matches(each, c) {
			runs = append(runs, listed(each, c))
		}
	}
	if f.sort == "size" {
		measure(store, runs, math.MaxInt)
	}
	slices.SortStableFunc(runs, orders[f.sort])
	all := len(runs)
	switch people := a.OutTerminal && !s.JSON && !f.quiet; {
	case f.limit != nil && *f.limit > 0:
		runs = runs[max(0, all-*f.limit):]
	case f.limit == nil && people:
		runs = runs[max(0, all-newest):]
	}
	if f.sort != "size" && !f.quiet {
		most := maxMeasured
		if len(runs) > fewRuns {
			most = maxMeasuredLong
		}
		measure(store, runs, most)
	}
	err = a.Show(s, runsDocument{runsSchema, runs}, func() error {
		switch {
		case f.quiet:
			for _, run := range runs {
				if err := a.Print("%s\n", run.RunID); err != nil {
					return err
				}
			}
			return nil
		case layout != nil:
			return printLayout(a, layout, runs)
		}
		return printRuns(a, runs, f.noTrunc)
	})
	if len(runs) < all && !s.JSON {
		a.Say("%d of %s; all: %s", len(runs), text.Count(all, "run"), a.RepeatFlags("sandbox ls -n 0"))
	}
	return errors.Join(err, unreadable)
}

// measure finds out the sizes of records, the last one first. It looks at no more than most files.
func measure(store *record.Store, runs []listedRun, most int) {
	for i := range slices.Backward(runs) {
		if most <= 0 {
			return
		}
		size, seen, whole := store.Size(runs[i].RunID, most)
		if most -= seen; whole {
			runs[i].SizeBytes = &size
		}
	}
}

// printRuns prints the table of runs. A column in which no run has anything is left out at a
// terminal.
func printRuns(a *cli.App, runs []listedRun, whole bool) error {
	short := a.OutTerminal && !whole
	header := []string{"ID", "NAME", "STATUS", "SCORE", "DURATION", "SIZE", "STARTED", "COMMAND"}
	empty := map[int]bool{}
	if short {
		empty = map[int]bool{1: true, 3: true}
	}
	var rows [][]string
	for _, run := range runs {
		row := rowOf(run)
		id, started := row.ID, row.Started
		if short {
			id, started = record.ShortID(id), shortTime(run.StartedAt, time.Now())
		}
		cells := []string{id, row.Name, row.Status, cmp.Or(row.Score, "-"), cmp.Or(row.Duration, "-"), cmp.Or(row.Size, "-"), started, row.Command}
		empty[1] = empty[1] && row.Name == ""
		empty[3] = empty[3] && row.Score == ""
		rows = append(rows, cells)
	}
	used := func(cells []string) (kept []string) {
		for i, cell := range cells {
			if !empty[i] {
				kept = append(kept, cell)
			}
		}
		return kept
	}
	for i := range rows {
		rows[i] = used(rows[i])
	}
	if whole {
		return a.PrintWideTable(used(header), rows)
	}
	return a.PrintTable(used(header), rows)
}

// shortTime is a time in at most 12 characters: that of a day, or the date.
func shortTime(at, now time.Time) string {
	at, now = at.Local(), now.Local()
	switch {
	case at.Format(time.DateOnly) == now.Format(time.DateOnly):
		return at.Format(time.TimeOnly)
	case now.Sub(at) < 300*24*time.Hour:
		return at.Format("Jan _2 15:04")
	}
	return at.Format(time.DateOnly)
}

// runRow is a run as texts, for the table and for --format.
type runRow struct {
	ID, Name, State, Status, ExitCode, Score, Duration, Size, Started, Command, Dir string
	// Labels are NAME=VALUE with commas between them.
	Labels string

	labels map[string]string
}

// Label returns the value of a label; empty without it.
func (r runRow) Label(name string) string { return r.labels[name] }

func rowOf(run listedRun) runRow {
	row := runRow{
		ID: run.RunID, Name: run.Name, State: run.State, Status: run.text, Started: run.StartedAt.Local().Format(time.DateTime),
		Command: strings.Join(run.Command, " "), Dir: run.Dir, Labels: render.Labels(run.Labels), labels: run.Labels,
	}
	if run.ExitCode != nil {
		row.ExitCode = strconv.Itoa(*run.ExitCode)
	}
	if run.Score != nil {
		row.Score = text.Number(*run.Score)
		if run.ScoreUnfinished {
			row.Score = render.Unfinished + row.Score
		}
	}
	if run.ended {
		row.Duration = text.Seconds(run.DurationSeconds)
	}
	if run.SizeBytes != nil {
		row.Size = text.Size(*run.SizeBytes)
	}
	return row
}

// layoutOf parses --format. It is nil for the table.
func layoutOf(format string) (*template.Template, error) {
	if format == "" || format == "table" {
		return nil, nil
	}
	layout, err := template.New("--format").Parse(strings.NewReplacer(`\t`, "\t", `\n`, "\n").Replace(format) + "\n")
	if err == nil {
		err = layout.Execute(new(bytes.Buffer), runRow{})
	}
	if err != nil {
		return nil, cli.UsageHint("fields: ID Name Labels State Status ExitCode Score Duration Size Started Command Dir; "+
			"a label: {{.Label \"NAME\"}}", "ls: --format %q: %s", format, strings.TrimPrefix(err.Error(), "template: "))
	}
	return layout, nil
}

func printLayout(a *cli.App, layout *template.Template, runs []listedRun) error {
	for _, run := range runs {
		var line bytes.Buffer
		if err := layout.Execute(&line, rowOf(run)); err != nil {
			return fmt.Errorf("--format: %w", err)
		}
		if err := a.Print("%s", line.String()); err != nil {
			return err
		}
	}
	return nil
}
