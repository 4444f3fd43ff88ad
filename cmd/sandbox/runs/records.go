package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/sandbox/outcome"
	"github.com/evalbox/evalbox/sandbox/record"
)

// NewShow returns the command `show`.
func NewShow(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show [RUN]",
		Short: "Show how a run ended",
		Long: `Show how a run ended: the result, the limits that were enforced, the outputs and the
traceback; of a contract also what came out otherwise, and where its outcome is. Outputs
that another run has replaced, or that are not there any more, are marked. With --json:
the result itself. Without an argument: the last run.

` + handleHelp,
		Example: "  sandbox show\n  sandbox show train\n  sandbox show 1a2b --json | jq .score",
		Args:    cobra.MaximumNArgs(1),
		RunE: a.With(func(_ context.Context, s settings.Settings, args []string) error {
			store, each, err := find(s, handleOf(args))
			switch {
			case err != nil:
				return err
			case s.JSON && each.State == record.Unreadable:
				return each.Damage
			case s.JSON && each.Result == nil:
				return cli.WithHint(fmt.Errorf("run %s: has no result: it is %s", each.ID, each.State), hintOf(each))
			}
			return a.Show(s, each.Result, func() error {
				shown := render.Record(each, contract.OfRecord(each), nowIn(store, each), sizeOf(store, each.ID))
				return a.Print("%s", shown)
			})
		}),
	}
	a.SettingFlags(cmd, "json")
	return cli.TakesHandles(cmd)
}

// handleHelp is the part of a help on how runs are named.
const handleHelp = `RUN is the ID of a run, the beginning of one, the part after its "-" or some of that, a
name that only one run has, last or -1 for the last run, -2 for the one before it.`

// handleOf is the only argument of a command, or else the last run.
func handleOf(args []string) string {
	if len(args) == 0 {
		return record.Last
	}
	return args[0]
}

// find opens the records and returns that of a handle.
func find(s settings.Settings, handle string) (*record.Store, record.Record, error) {
	store, err := s.Store()
	if err != nil {
		return nil, record.Record{}, err
	}
	each, err := store.Get(handle)
	return store, each, err
}

// eachRun calls do for the run of each handle, one after the other, and goes on after an error. All
// handles are read first: what do does to one run does not change which one "last" is.
func eachRun(s settings.Settings, handles []string, do func(store *record.Store, id string) error) error {
	store, err := s.Store()
	if err != nil {
		return err
	}
	var errs []error
	var ids []string
	for _, handle := range handles {
		id, err := store.Find(handle)
		errs = append(errs, err)
		if err == nil && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	for _, id := range ids {
		errs = append(errs, do(store, id))
	}
	return errors.Join(errs...)
}

// sizeOf is what a record takes on the disk; empty if that is not known.
func sizeOf(store *record.Store, id string) string {
	if size, _, whole := store.Size(id, maxMeasured); whole {
		return text.Size(size)
	}
	return ""
}

// NewRm returns the command `rm`. It goes on after a record that cannot be removed.
func NewRm(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rm RUN...",
		Short: "Delete the records of runs",
		Long: `Delete the records of runs, with their logs and the outputs that have not come to a --final.
The record of a running program is refused. So is a run whose outputs have still to come to
its --final: 'sandbox adopt' moves them there. A run whose record is damaged is
ended first, with all that the engine has of it. For records by age, number or status see
'sandbox prune'.

` + handleHelp,
		Example: "  sandbox rm 1a2b3c4d5e\n  sandbox rm $(sandbox ls -q --status failed)",
		Args:    cobra.MinimumNArgs(1),
		RunE: a.With(func(ctx context.Context, s settings.Settings, handles []string) error {
			return eachRun(s, handles, func(store *record.Store, id string) error {
				if state, err := store.State(id); err == nil && state == record.Unreadable && store.IsOpen(id) {
					if err := finishLost(ctx, a, s, id); err != nil {
						return err
					}
				}
				if err := store.Remove(id); err != nil {
					return whyKept(store, id, err)
				}
				return a.Print("%s\n", id)
			})
		}),
	}
	return cli.TakesHandles(cmd)
}

// finishLost finishes a run whose own process died; a run whose record is damaged ends with all that belongs to it.
func finishLost(ctx context.Context, a *cli.App, s settings.Settings, id string) error {
	x, err := a.Begin(ctx, s, cli.Hidden)
	if err != nil {
		return err
	}
	defer x.Close()
	if res, err := x.Box.Adopt(ctx, id, x.Hooks); res == nil && !errors.Is(err, outcome.ErrOwnerDied) {
		return err
	}
	return nil
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
	case each.State == record.Finished:
		return cli.WithHint(err, "move them there with: sandbox adopt "+each.ID)
	}
	return cli.WithHint(err, "stop it with: sandbox stop "+each.ID)
}
