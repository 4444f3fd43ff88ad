package main

import (
	"cmp"
	"context"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/text"
)

// defaultLock is the file name of a sealed wish.
const defaultLock = evidence.WishLockFile

func newGateSealCommand(a *app) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "seal WISH.yaml [-o wish.lock.json]",
		Short: "Seal a wish, so that it can be run",
		Long: `Seal a wish: check it, look up what its names stand for now (the ID of the image, the
hashes of its toolchain), and write all of it with a hash into a lock. A gate runs
what was sealed and nothing else: whoever changes the lock has to seal again.

The hash finds changes, not forgers. Nothing is run.`,
		Example: "  sandbox gate seal wish.yaml\n  sandbox gate seal ci/wish.yaml -o ci/wish.lock.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("output") && output == "" {
				return usagef(cmd.CommandPath(), "gate seal: --output is empty: give a file, or leave it out")
			}
			return a.sealWish(cmd.Context(), args[0], output)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVarP(&output, "output", "o", "", "`file` for the lock (default: "+defaultLock+" beside the wish)")
	a.settingFlags(cmd, false, "image", "allow_unlocked")
	return cmd
}

func (a *app) sealWish(ctx context.Context, file, output string) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	runner, err := a.runner(s)
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
		a.say("warning: " + warning)
	}
	if err != nil {
		return err
	}
	output = cmp.Or(output, filepath.Join(filepath.Dir(file), defaultLock))
	encoded, err := lock.JSON()
	if err == nil {
		err = writeReport(output, encoded)
	}
	if err != nil {
		return err
	}
	return a.print("sealed %s: %s, %s on %s, in %s\n", lock.Wish.Name, lock.SHA256, text.Count(len(lock.Wish.GateCommands), "command"), lock.Toolchain.ImageID, output)
}
