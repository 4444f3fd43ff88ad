package image

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/prune"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/policy"
)

// pruneFlags are the flags of `image prune`.
type pruneFlags struct {
	keep      policy.Size
	unusedFor time.Duration
	dryRun    bool
}

func newPrune(a *cli.App) *cobra.Command {
	f := pruneFlags{keep: 20 * policy.GiB, unusedFor: time.Hour}
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove images of evalbox that nothing needs",
		Long: `Remove images of evalbox, the longest unused first, until the rest fits into --keep-bytes.
Never removed are images that the lock or the user's own lock holds, that a container
uses, that another image stands on, that were used or made a short while ago, and those
that have a name, or a digest of a registry, which is not of evalbox.

Sizes are the engine's: layers that images share are counted for each. When an image
was used is known for the runs of this user.`,
		Example: "  sandbox image prune --dry-run\n  sandbox image prune --keep-bytes 5GB",
		Args:    cobra.NoArgs,
		RunE:    with(a, func(ctx context.Context, t *tools, _ []string) error { return t.prune(ctx, f) }),
	}
	flags := cmd.Flags()
	flags.Var(cli.Size(&f.keep), "keep-bytes", "what the images may hold together, such as 5GB")
	flags.Var(cli.Duration(&f.unusedFor), "unused-for", "keep what was used or made more recently")
	flags.BoolVar(&f.dryRun, "dry-run", false, "only say what would be removed")
	a.SettingFlags(cmd, "json")
	return cmd
}

// prune shows the removed images also after an error.
func (t *tools) prune(ctx context.Context, f pruneFlags) error {
	locks, err := t.settings.AllLocks()
	if err != nil {
		return err
	}
	usage, err := images.DefaultUsageDir()
	if err != nil {
		return cli.WithHint(err, "set HOME: when images were used is remembered in the user's cache folder")
	}
	report, err := prune.Images(ctx, t.api, locks, prune.Options{
		KeepBytes: int64(f.keep), UnusedFor: f.unusedFor, DryRun: f.dryRun, UsageDir: usage, Now: time.Now(),
	})
	if t.settings.JSON {
		if report.Removed == nil {
			return err // nothing is known
		}
		return errors.Join(err, t.PrintJSON(report))
	}
	return errors.Join(err, t.PrintAll(render.Pruned(report, f.dryRun)))
}
