package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/images/packages"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/terminal"
)

func newLock(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "lock [NAME...]",
		Short: "Record what images are, so that runs refuse others",
		Long: `Record what images are now: their ID, what they stand on and what is installed in them.
Without a name, the default of the catalog. A name that is not in the catalog is a
reference or an ID of the engine.

Once there is a lock, a run refuses an image that is not the locked one. The packages
are read without running anything of the image. What changed since the former entry
goes to stdout.`,
		Example: "  sandbox image lock debian\n  sandbox image lock --lock images.lock debian",
		Args:    cobra.ArbitraryArgs,
		RunE: with(a, func(ctx context.Context, t *tools, names []string) error {
			path, err := t.settings.PlaceOfLock()
			if err != nil {
				return err
			}
			if len(names) == 0 {
				names = []string{t.catalog.Default}
			}
			for _, name := range names {
				change, err := lock.Put(ctx, t.store(), t.catalog, path, name)
				if err != nil {
					return err
				}
				if err := t.PrintAll(render.LockChange(change, path)); err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

// settleLock locks an image that was just created or found, and says so on stderr.
// Where the lock holds another one, it says how they differ, and the exit code
// becomes that of a problem. An account without a place for a lock has none.
func (t *tools) settleLock(ctx context.Context, name string) error {
	path := t.settings.LockPath()
	if path == "" {
		fmt.Fprintln(t.Err, "the image is not locked: this account has no folder for configuration; name a file with --lock")
		return nil
	}
	change, err := lock.Settle(ctx, t.store(), t.catalog, path, name)
	var differs *lock.UnlockedError
	switch {
	case errors.As(err, &differs) && differs.Diff != nil:
		t.Code = cli.ExitProblem
		if differs.Diff.Empty() {
			fmt.Fprintln(t.Err, "the packages are those of the locked image; files or configuration differ")
		}
		for _, line := range differs.Diff.Lines() {
			fmt.Fprintf(t.Err, "  %s\n", terminal.Line(line))
		}
		return err
	case err != nil:
		return err
	case change.Changed && change.Before != nil:
		fmt.Fprintf(t.Err, "image %s is locked anew in %s, because its recipe has changed\n", name, path)
	case change.Changed:
		fmt.Fprintf(t.Err, "image %s is locked in %s\n", name, path)
	}
	return nil
}

func newVerify(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify [NAME...]",
		Short: "Check that images still are what was locked",
		Long: `Compare images with the lock: ID, content and, read again from the image, the packages.
Without a name, all locked ones. Nothing of the images is run.

The exit code is 0 when all are the same, 1 when something differs, and 125 when
something could not be compared.`,
		Example: "  sandbox image verify\n  sandbox image verify debian --json",
		Args:    cobra.ArbitraryArgs,
		RunE:    with(a, func(ctx context.Context, t *tools, args []string) error { return t.verify(ctx, args) }),
	}
	a.SettingFlags(cmd, "json")
	return cmd
}

// verify shows the comparisons also after an error.
func (t *tools) verify(ctx context.Context, names []string) error {
	path, err := t.settings.LockToWrite()
	if err != nil {
		return err
	}
	held, there, err := t.settings.Lock()
	if err == nil && !there {
		err = cli.WithHint(fmt.Errorf("image lock %s: %w", path, fs.ErrNotExist), "lock an image with: sandbox image lock NAME")
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
		v, err := lock.Verify(ctx, t.store(), t.catalog, held, name)
		if ctx.Err() != nil {
			return err
		}
		if err != nil {
			errs = append(errs, err)
			list = append(list, lock.Verification{Name: name, Diff: packages.Compare(nil, nil), Error: err.Error()})
			continue
		}
		list = append(list, v)
		if !t.settings.JSON {
			errs = append(errs, t.PrintAll(render.LockVerification(v)))
		}
	}
	if t.settings.JSON {
		errs = append(errs, t.PrintJSON(list))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, v := range list {
		if !v.Same {
			t.Code = cli.ExitProblem
		}
	}
	return nil
}

func newInspect(a *cli.App) *cobra.Command {
	var listPackages, sbom bool
	cmd := &cobra.Command{
		Use:   "inspect [NAME]",
		Short: "Show what an image is and what is installed in it",
		Long: `Show what an image is: its ID, base, platform, age, whether it is the locked one, and
what is installed in it. Without a name, the default of the catalog. Nothing of the
image is run.

--sbom prints its bill of materials instead, as CycloneDX 1.6 JSON. The same image
gives the same bytes.`,
		Example: `  sandbox image inspect debian
  sandbox image inspect debian --packages
  sandbox image inspect debian --sbom > debian.cdx.json`,
		Args: cobra.MaximumNArgs(1),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Check(cmd, cli.Wrong(listPackages && sbom, "give --packages or --sbom, not both"))
		},
		RunE: with(a, func(ctx context.Context, t *tools, args []string) error {
			return t.inspect(ctx, nameArgument(args), listPackages, sbom)
		}),
	}
	a.SettingFlags(cmd, "json")
	cmd.Flags().BoolVar(&listPackages, "packages", false, "list the packages: kind, name, version")
	cmd.Flags().BoolVar(&sbom, "sbom", false, "print the bill of materials (CycloneDX)")
	return cmd
}

// inspectedImage is the JSON of `image inspect --json`.
type inspectedImage struct {
	lock.Entry

	Digest    string `json:"digest"`
	SizeBytes int64  `json:"size_bytes"`
	Locked    bool   `json:"locked"`
	// LockedID is the ID in the lock if that holds another image, else empty.
	LockedID       string `json:"locked_id"`
	Python         string `json:"python"`
	PackageCount   int    `json:"package_count"`
	PackagesSHA256 string `json:"packages_sha256"`
	// Packages are only there when they were asked for.
	Packages packages.List `json:"packages,omitempty"`
}

func (t *tools) inspect(ctx context.Context, name string, listPackages, sbom bool) error {
	held, _, err := t.settings.Lock()
	if err != nil {
		return err
	}
	d, err := lock.Inspect(ctx, t.store(), t.catalog, held, name)
	if err != nil {
		return err
	}
	switch {
	case sbom:
		return cli.ReaderGone(lock.WriteSBOM(t.Out, d.Entry))
	case t.settings.JSON:
		v := inspectedImage{Entry: d.Entry, Digest: d.Digest, SizeBytes: d.SizeBytes, Locked: d.Locked, LockedID: d.LockedID, Python: d.Python,
			PackageCount: len(d.Entry.Packages), PackagesSHA256: d.Entry.Packages.SHA256()}
		if listPackages {
			v.Packages = d.Entry.Packages
		}
		return t.PrintJSON(v)
	case listPackages:
		var rows [][]string
		for _, p := range d.Entry.Packages {
			rows = append(rows, []string{string(p.Kind), p.Name, p.Version, p.Arch})
		}
		return t.PrintTable([]string{"KIND", "NAME", "VERSION", "ARCH"}, rows)
	}
	return t.PrintAll(render.Image(d, t.settings.LockPath()))
}
