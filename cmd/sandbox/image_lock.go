package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/docker/docker/client"
	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/internal/terminal"
	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/images/packages"
	"github.com/evalbox/evalbox/images/store"
)

func newImageLockCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "lock [NAME...]",
		Short: "Record what images are, so that runs refuse others",
		Long: `Record what images are now: their ID, what they stand on and what is installed in them.
Without a name, the default of the catalog. A name that is none of the catalog is a
reference or an ID of the engine.

Once there is a lock, a run refuses an image that is not the locked one. The packages
are read without running anything of the image. What changed since the former entry
goes to stdout.`,
		Example: "  sandbox image lock debian\n  sandbox image lock --lock images.lock debian",
		Args:    cobra.ArbitraryArgs,
		RunE:    func(cmd *cobra.Command, args []string) error { return a.lockImages(cmd.Context(), args) },
	}
}

func (a *app) lockImages(ctx context.Context, names []string) error {
	s, catalog, api, err := a.imageTools(ctx)
	if err != nil {
		return err
	}
	defer api.Close()
	path, err := a.placeOfLock(s)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		names = []string{catalog.Default}
	}
	for _, name := range names {
		change, err := lock.Put(ctx, store.Docker{APIClient: api}, catalog, path, name)
		if err != nil {
			return err
		}
		if err := a.printLockChange(change, path); err != nil {
			return err
		}
	}
	return nil
}

// printLockChange says on stdout what became of an entry.
func (a *app) printLockChange(change lock.Change, path string) error {
	e := change.After
	switch b := change.Before; {
	case b == nil:
		return a.print("locked %s: %s, %d packages, in %s\n", e.Name, e.ID, len(e.Packages), path)
	case b.ID == e.ID && b.Content == e.Content && b.Reference == e.Reference && change.Diff().Empty():
		return a.print("locked %s: %s, as before, in %s\n", e.Name, e.ID, path)
	default:
		err := a.print("locked %s: %s instead of %s, in %s\n", e.Name, e.ID, b.ID, path)
		return errors.Join(err, a.printDiff(change.Diff()))
	}
}

// printDiff says on stdout how packages differ.
func (a *app) printDiff(diff packages.Diff) error {
	if diff.Empty() {
		return a.print("  the packages are the same\n")
	}
	for _, line := range diff.Lines() {
		if err := a.print("  %s\n", line); err != nil {
			return err
		}
	}
	return nil
}

// settleLock locks an image that was just made or found, and says so on stderr.
// Where the lock holds another one, it says how they differ, and the exit code
// becomes that of a problem. An account without a place for a lock has none.
func (a *app) settleLock(ctx context.Context, s settings, catalog images.Catalog, api client.APIClient, name string) error {
	path := a.lockPath(s)
	if path == "" {
		fmt.Fprintln(a.streams.Err, "the image is not locked: this account has no folder for configuration; name a file with --lock")
		return nil
	}
	change, err := lock.Settle(ctx, store.Docker{APIClient: api}, catalog, path, name)
	var differs *lock.UnlockedError
	switch {
	case errors.As(err, &differs) && differs.Diff != nil:
		a.code = exitProblem
		if differs.Diff.Empty() {
			fmt.Fprintln(a.streams.Err, "the packages are those of the locked image; files or configuration differ")
		}
		for _, line := range differs.Diff.Lines() {
			fmt.Fprintf(a.streams.Err, "  %s\n", terminal.Line(line))
		}
		return err
	case err != nil:
		return err
	case change.Changed && change.Before != nil:
		fmt.Fprintf(a.streams.Err, "image %s is locked anew in %s, because its recipe has changed\n", name, path)
	case change.Changed:
		fmt.Fprintf(a.streams.Err, "image %s is locked in %s\n", name, path)
	}
	return nil
}
