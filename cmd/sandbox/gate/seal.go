package gate

import (
	"cmp"
	"context"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/text"
)

// defaultLock is the file name of a sealed wish.
const defaultLock = evidence.WishLockFile

func newSeal(a *cli.App) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "seal WISH.yaml [-o wish.lock.json]",
		Short: "Seal a wish, so that it can be run",
		Long: `Seal a wish: check it, look up what its names stand for now (the ID of the image, the
hashes of its toolchain), and write all of it with a hash into a lock. A gate runs
the sealed commands and nothing else: a changed lock must be sealed again.

The hash finds changes, not forgers. Nothing is run.`,
		Example: "  sandbox gate seal wish.yaml\n  sandbox gate seal ci/wish.yaml -o ci/wish.lock.json",
		Args:    cobra.ExactArgs(1),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Check(cmd, cli.NotEmpty(": give a file, or leave it out", "output"))
		},
		RunE: a.With(func(ctx context.Context, s settings.Settings, args []string) error {
			return sealWish(ctx, a, s, args[0], cmp.Or(output, filepath.Join(filepath.Dir(args[0]), defaultLock)))
		}),
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVarP(&output, "output", "o", "", "`file` for the lock (default: "+defaultLock+" beside the wish)")
	a.SettingFlags(cmd, "image", "allow_unlocked")
	return cmd
}

func sealWish(ctx context.Context, a *cli.App, s settings.Settings, file, output string) error {
	runner, err := s.Runner(a.Logger())
	if err != nil {
		return err
	}
	defer runner.Close()
	h, err := gate.New(runner, gate.Options{Request: s.Request(), Policy: s.Policy()})
	if err != nil {
		return err
	}
	lock, warnings, err := h.SealFile(ctx, file)
	for _, warning := range warnings {
		a.Say("%s", "warning: "+warning)
	}
	if err != nil {
		return err
	}
	encoded, err := lock.JSON()
	if err == nil {
		err = writeReport(output, encoded)
	}
	if err != nil {
		return err
	}
	return a.Print("sealed %s: %s, %s on %s, in %s\n", lock.Wish.Name, lock.SHA256, text.Count(len(lock.Wish.GateCommands), "command"), lock.Toolchain.ImageID, output)
}
