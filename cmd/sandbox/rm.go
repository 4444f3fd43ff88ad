package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func newRmCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rm ID...",
		Short: "Delete the records of runs",
		Long: `Delete the records of runs, with their logs and the outputs that no --final was given
for. The record of a running program is refused. The beginning of an ID is enough.`,
		Example: "  sandbox rm 20260102t150405-1a2b3c4d5e",
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return a.remove(args) },
	}
}

// remove goes on after a record that cannot be removed.
func (a *app) remove(ids []string) error {
	_, store, err := a.openStore()
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range ids {
		if err := store.Remove(id); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, a.print("%s\n", id))
	}
	return errors.Join(errs...)
}
