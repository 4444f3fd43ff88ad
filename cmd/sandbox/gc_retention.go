package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/contract"
)

// retentionFlags are the flags of `gc` that are about records.
type retentionFlags struct {
	class     string
	olderThan time.Duration
}

func (f *retentionFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.class, "retention", "", "delete records of contracts of this `class` instead: session or evidence")
	cmd.Flags().Var(&durationFlag{&f.olderThan}, "older-than", "with --retention: only those that are older, such as 720h (required)")
}

// check refuses flags that make no sense together.
func (f retentionFlags) check(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	switch {
	case given("retention") && f.class != contract.RetainSession && f.class != contract.RetainEvidence:
		return usagef(cmd.CommandPath(), "gc: --retention %q: must be session or evidence", f.class)
	case given("retention") != given("older-than"):
		return usagef(cmd.CommandPath(), "gc: --retention and --older-than go together")
	case given("retention") && given("kept"):
		return usagef(cmd.CommandPath(), "gc: --retention and --kept do not go together")
	}
	return nil
}

// expiredReport is what `gc --retention --json` prints.
type expiredReport struct {
	Removed []contract.Expired `json:"removed"`
	// Left are records of contracts that are as old and have no outcome, because
	// whoever ran them ended first: they are of no class.
	Left []string `json:"left"`
}

// expire deletes records. It goes on after one that cannot be deleted.
func (a *app) expire(f retentionFlags, dry bool) error {
	s, store, err := a.openStore()
	if err != nil {
		return err
	}
	expired, err := contract.FindExpired(store, f.class, time.Now().Add(-f.olderThan))
	errs := []error{err}
	report := expiredReport{Removed: []contract.Expired{}}
	verb := "removed"
	if dry {
		verb = "would remove"
	}
	for _, e := range expired {
		if !dry {
			if err := store.Remove(e.RunID); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		report.Removed = append(report.Removed, e)
		if !s.JSON {
			errs = append(errs, a.print("%s %s: %s, execution %s\n", verb, e.RunID, e.Created.Local().Format(time.DateTime), e.ExecutionID))
		}
	}
	report.Left = withoutOutcome(store, time.Now().Add(-f.olderThan))
	if s.JSON {
		return errors.Join(append(errs, a.printJSON(report))...)
	}
	errs = append(errs, a.print("%s %s\n", verb, fmt.Sprintf("%d of class %s", len(report.Removed), f.class)))
	if len(report.Left) > 0 {
		errs = append(errs, a.print("left, because they have no outcome and so no class: sandbox rm %s\n", strings.Join(report.Left, " ")))
	}
	return errors.Join(errs...)
}

// withoutOutcome are the records of contracts, made before a time, that will never have
// an outcome.
func withoutOutcome(store *record.Store, before time.Time) []string {
	records, _ := store.List() // what cannot be read was told already
	left := []string{}
	for _, each := range records {
		if each.State == record.Running || !each.Created.Before(before) {
			continue
		}
		if c := contractOf(each); c != nil && c.outcome == nil && len(c.unread) == 0 {
			left = append(left, each.ID)
		}
	}
	return left
}
