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
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/terminal"
)

func newLock(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
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
			done := lockChanges{Schema: "evalbox/image-locks/v1", Lock: path, Locked: []lockedImage{}}
			for _, name := range names {
				change, err := lock.Put(ctx, t.store(), t.catalog, path, name)
				if err != nil {
					return errors.Join(err, t.showLocked(done))
				}
				done.Locked = append(done.Locked, lockedImage{Entry: change.After, Changed: change.Changed, Diff: change.Diff()})
				if t.settings.JSON {
					continue
				}
				if err := t.PrintAll(render.LockChange(change, path)); err != nil {
					return err
				}
			}
			return t.showLocked(done)
		}),
	}
	a.SettingFlags(cmd, "json")
	return cmd
}

// lockChanges is the JSON of `image lock` and `image unlock`.
type lockChanges struct {
	Schema string `json:"schema"`
	// Lock is the file.
	Lock     string        `json:"lock"`
	Locked   []lockedImage `json:"locked,omitempty"`
	Unlocked []string      `json:"unlocked,omitempty"`
}

// lockedImage is one entry that was written.
type lockedImage struct {
	lock.Entry

	Changed bool          `json:"changed"`
	Diff    packages.Diff `json:"diff"`
}

// showLocked prints the changes for programs; people have read them already.
func (t *tools) showLocked(done lockChanges) error {
	if !t.settings.JSON {
		return nil
	}
	return t.PrintJSON(done)
}

func newUnlock(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unlock NAME...",
		Short: "Remove images from the lock, so that runs refuse them",
		Long: `Remove the entries of these images from the lock. The images stay in the engine.

While the lock file exists, runs refuse an image that it does not have. To run images
without a lock, delete the file; 'sandbox config' shows its path.`,
		Example: "  sandbox image unlock mine",
		Args:    cobra.MinimumNArgs(1),
		// No engine is asked: the image of an entry may be gone.
		RunE: a.With(func(ctx context.Context, s settings.Settings, names []string) error {
			t := &tools{App: a, settings: s}
			path, err := s.PlaceOfLock()
			if err != nil {
				return err
			}
			done := lockChanges{Schema: "evalbox/image-locks/v1", Lock: path, Unlocked: []string{}}
			for _, name := range names {
				if _, err := lock.Drop(ctx, path, name); err != nil {
					return cli.WithHint(errors.Join(err, t.showLocked(done)), "see the locked images with: sandbox image list")
				}
				done.Unlocked = append(done.Unlocked, name)
				if s.JSON {
					continue
				}
				if err := a.Print("unlocked %s in %s\n", name, path); err != nil {
					return err
				}
			}
			return t.showLocked(done)
		}),
	}
	a.SettingFlags(cmd, "json")
	return cmd
}

// settleLock locks an image that was just created or found, and says so on stderr.
// Where the lock holds another one, it says how they differ, and the exit code
// becomes that of a problem. An account without a place for a lock has none.
func (t *tools) settleLock(ctx context.Context, name string) (locked bool, err error) {
	path := t.settings.LockPath()
	if path == "" {
		t.sayUnlockable()
		return false, nil
	}
	_, readErr := lock.Read(path)
	first := errors.Is(readErr, fs.ErrNotExist)
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
		return false, err
	case err != nil:
		return false, err
	case change.Changed && change.Before != nil:
		fmt.Fprintf(t.Err, "image %s is locked anew in %s, because its recipe has changed\n", name, path)
	case change.Changed:
		fmt.Fprintf(t.Err, "image %s is locked in %s\n", name, path)
	}
	if first {
		fmt.Fprintln(t.Err, "from now on, runs refuse every image that is not in the lock; add one of your own with: sandbox image lock NAME")
	}
	return true, nil
}

func (t *tools) sayUnlockable() {
	fmt.Fprintln(t.Err, "the image is not locked: this account has no directory for configuration; name a file with --lock")
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
		errs = append(errs, t.PrintJSON(struct {
			Schema string              `json:"schema"`
			Images []lock.Verification `json:"images"`
		}{"evalbox/image-verification/v1", list}))
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
	Schema string `json:"schema"`
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
		v := inspectedImage{Schema: "evalbox/image/v1", Entry: d.Entry, Digest: d.Digest, SizeBytes: d.SizeBytes, Locked: d.Locked, LockedID: d.LockedID, Python: d.Python,
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
