package runs

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/sandbox/record"
)

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

// whyKept says how to stop a run whose record stays because it runs.
func whyKept(store *record.Store, id string, err error) error {
	each, getErr := store.Get(id)
	switch {
	case getErr != nil || !errors.Is(err, record.ErrRunning):
		return err
	case each.State == record.Lost:
		return cli.WithHint(err, "its owner is gone; give the folder back with: sandbox gc")
	}
	return cli.WithHint(err, "interrupt its 'sandbox run', or: docker stop "+each.Spec.Job.ContainerName())
}
