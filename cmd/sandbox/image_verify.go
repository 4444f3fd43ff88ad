package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/images/packages"
	"github.com/evalbox/evalbox/images/store"
)

func newImageVerifyCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify [NAME...]",
		Short: "Check that images still are what was locked",
		Long: `Compare images with the lock: ID, content and, read again from the image, the packages.
Without a name, all locked ones. Nothing of the images is run.

The exit code is 0 when all are the same, 1 when something differs, and 125 when
something could not be compared.`,
		Example: "  sandbox image verify\n  sandbox image verify debian --json",
		Args:    cobra.ArbitraryArgs,
		RunE:    func(cmd *cobra.Command, args []string) error { return a.verifyImages(cmd.Context(), args) },
	}
	a.settingFlags(cmd, false, "json")
	return cmd
}

// verifyImages shows what could be compared also when something could not.
func (a *app) verifyImages(ctx context.Context, names []string) error {
	s, catalog, api, err := a.imageTools(ctx)
	if err != nil {
		return err
	}
	defer api.Close()
	path, err := a.lockToWrite(s)
	if err != nil {
		return err
	}
	held, there, err := a.lock(s)
	if err == nil && !there {
		err = &hintedError{fmt.Errorf("image lock %s: %w", path, fs.ErrNotExist), "lock an image with: sandbox image lock NAME"}
	}
	if err != nil {
		return err
	}
	if len(names) == 0 {
		names = held.Names()
	}
	list := []lock.Verification{}
	var errs []error
	for _, name := range names {
		v, err := lock.Verify(ctx, store.Docker{APIClient: api}, catalog, held, name)
		if ctx.Err() != nil {
			return err
		}
		if err != nil {
			errs = append(errs, err)
			list = append(list, lock.Verification{Name: name, Diff: packages.Compare(nil, nil), Error: err.Error()})
			continue
		}
		list = append(list, v)
		if !s.JSON {
			errs = append(errs, a.printVerification(v))
		}
	}
	if s.JSON {
		errs = append(errs, a.printJSON(list))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, v := range list {
		if !v.Same {
			a.code = exitProblem
		}
	}
	return nil
}

func (a *app) printVerification(v lock.Verification) error {
	how := "as locked"
	if v.ID != v.LockedID {
		how = fmt.Sprintf("the content is as locked; the lock calls it %s", v.LockedID)
	}
	if v.Same {
		return a.print("ok       %s %s, %d packages, %s\n", v.Name, v.ID, v.Packages, how)
	}
	err := a.print("differs  %s %s, locked is %s\n", v.Name, v.ID, v.LockedID)
	if v.Diff.Empty() {
		return errors.Join(err, a.print("  the packages are the same; files or configuration differ\n"))
	}
	return errors.Join(err, a.printDiff(v.Diff))
}
