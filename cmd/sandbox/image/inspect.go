package image

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/images/packages"
	"github.com/evalbox/evalbox/internal/render"
)

// inspectFlags are the flags of `image inspect`.
type inspectFlags struct{ packages, sbom bool }

func newInspect(a *cli.App) *cobra.Command {
	var f inspectFlags
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
			return cli.Check(cmd, cli.Wrong(f.packages && f.sbom, "give --packages or --sbom, not both"))
		},
		RunE: with(a, func(ctx context.Context, t *tools, args []string) error {
			return t.inspect(ctx, nameArgument(args), f)
		}),
	}
	a.SettingFlags(cmd, "json")
	cmd.Flags().BoolVar(&f.packages, "packages", false, "list the packages: kind, name, version")
	cmd.Flags().BoolVar(&f.sbom, "sbom", false, "print the bill of materials (CycloneDX)")
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

func (t *tools) inspect(ctx context.Context, name string, f inspectFlags) error {
	held, _, err := t.settings.Lock()
	if err != nil {
		return err
	}
	d, err := lock.Inspect(ctx, t.store(), t.catalog, held, name)
	if err != nil {
		return err
	}
	switch {
	case f.sbom:
		return cli.ReaderGone(lock.WriteSBOM(t.Out, d.Entry))
	case t.settings.JSON:
		v := inspectedImage{Entry: d.Entry, Digest: d.Digest, SizeBytes: d.SizeBytes, Locked: d.Locked, LockedID: d.LockedID, Python: d.Python,
			PackageCount: len(d.Entry.Packages), PackagesSHA256: d.Entry.Packages.SHA256()}
		if f.packages {
			v.Packages = d.Entry.Packages
		}
		return t.PrintJSON(v)
	case f.packages:
		var rows [][]string
		for _, p := range d.Entry.Packages {
			rows = append(rows, []string{string(p.Kind), p.Name, p.Version, p.Arch})
		}
		return t.PrintTable([]string{"KIND", "NAME", "VERSION", "ARCH"}, rows)
	}
	return t.PrintAll(render.Image(d, t.settings.LockPath()))
}
