package runs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
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

// pruneFlags are the flags of `prune`.
type pruneFlags struct {
	selection

	olderThan     *time.Duration
	keepLast      *int
	dryRun, force bool
}

// prunedDocument is the JSON of `prune`.
type prunedDocument struct {
	Schema string `json:"schema"`
	// DryRun says that nothing was removed.
	DryRun     bool        `json:"dry_run"`
	FreedBytes int64       `json:"freed_bytes"`
	Runs       []listedRun `json:"runs"`
}

// NewPrune returns the command `prune`.
func NewPrune(a *cli.App) *cobra.Command {
	var f pruneFlags
	cmd := &cobra.Command{
		Use:   "prune [flags]",
		Short: "Delete the records of old runs",
		Long: `Delete the records of finished runs, with their logs and the outputs that have not come to
a --final. Only runs that all flags choose are deleted; at least one of --older-than,
--keep-last, --status, --name and --label must be given. A run without a result stays. The
command asks first; without a terminal it needs --force or --dry-run.`,
		Example: `  sandbox prune --older-than 30d --dry-run
  sandbox prune --older-than 7d --status failed
  sandbox prune --keep-last 100 --force`,
		Args: cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			chosen := false
			for _, name := range []string{"older-than", "keep-last", "status", "name", "label"} {
				chosen = chosen || cmd.Flags().Changed(name)
			}
			return cli.Check(cmd, f.check,
				cli.Wrong(!chosen, "which runs? give --older-than, --keep-last, --status, --name or --label"),
				cli.Wrong(!f.dryRun && !f.force && !canAsk(a), "give --force or --dry-run: there is no terminal to ask at"))
		},
		RunE: a.With(func(ctx context.Context, s settings.Settings, _ []string) error { return prune(ctx, a, s, f) }),
	}
	flags := cmd.Flags()
	flags.Var(cli.Optional(&f.olderThan, "duration", readAge), "older-than", "only runs that began longer ago, such as 30d or 12h")
	flags.Var(cli.Optional(&f.keepLast, "number", readCount), "keep-last", "keep this many of the newest finished runs, whatever the other flags choose")
	f.register(cmd)
	flags.BoolVar(&f.dryRun, "dry-run", false, "only list what would be deleted")
	flags.BoolVarP(&f.force, "force", "f", false, "do not ask")
	a.SettingFlags(cmd, "json")
	return cmd
}

// prunable are the runs of records that the flags choose, oldest first.
func (f *pruneFlags) prunable(records []record.Record) (chosen []listedRun) {
	kept := 0
	if f.keepLast != nil {
		kept = *f.keepLast
	}
	for _, each := range slices.Backward(records) {
		if each.State != record.Finished {
			continue
		}
		if kept > 0 {
			kept--
			continue
		}
		if c := contract.OfRecord(each); f.matches(each, c) {
			chosen = append(chosen, listed(each, c))
		}
	}
	slices.Reverse(chosen)
	return chosen
}

// prune goes on after a record that cannot be removed.
func prune(ctx context.Context, a *cli.App, s settings.Settings, f pruneFlags) error {
	store, err := s.Store()
	if err != nil {
		return err
	}
	if f.olderThan != nil {
		f.Before = time.Now().Add(-*f.olderThan)
	}
	records, err := store.ListBrief()
	errs := []error{err}
	chosen := f.prunable(records)
	measure(store, chosen, math.MaxInt)
	document := prunedDocument{Schema: "evalbox/prune/v1", DryRun: f.dryRun, Runs: []listedRun{}}
	if !f.dryRun && !f.force && len(chosen) > 0 {
		var bytes int64
		for _, run := range chosen {
			bytes += max(0, bytesOf(run))
		}
		yes, err := confirm(ctx, a, fmt.Sprintf("delete %s (%s)?", text.Count(len(chosen), "record"), text.Size(bytes)))
		if err != nil || !yes {
			return errors.Join(append(errs, err)...)
		}
	}
	for _, run := range chosen {
		if ctx.Err() != nil {
			errs = append(errs, context.Cause(ctx))
			break
		}
		if !f.dryRun {
			if err := store.Remove(run.RunID); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		document.Runs = append(document.Runs, run)
		document.FreedBytes += max(0, bytesOf(run))
	}
	verb, freed := removing(f.dryRun), "freed"
	if f.dryRun {
		freed = "would free"
	}
	return errors.Join(append(errs, a.Show(s, document, func() error {
		var lines []string
		for _, run := range document.Runs {
			row := rowOf(run)
			line := fmt.Sprintf("%s %s  %s  %s  %s", verb, row.ID, row.Started, row.Size, row.Status)
			lines = append(lines, render.Cut(strings.TrimRight(line+"  "+row.Name, " "), a.OutWidth()))
		}
		return a.PrintAll(append(lines, fmt.Sprintf("%s %s, %s %s", verb, text.Count(len(document.Runs), "record"), freed, text.Size(document.FreedBytes))))
	}))...)
}

// canAsk reports whether somebody can answer a question.
func canAsk(a *cli.App) bool { return a.InTerminal && a.ErrTerminal }

// confirm asks at the terminal.
func confirm(ctx context.Context, a *cli.App, question string) (bool, error) {
	fmt.Fprintf(a.Err, "sandbox: %s [y/N] ", question)
	answer, err := cli.Interruptibly(ctx, func() (string, error) { return bufio.NewReader(a.In).ReadString('\n') })
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}
