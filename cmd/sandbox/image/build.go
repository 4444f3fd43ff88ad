package image

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox"
	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/images/build"
	"github.com/evalbox/evalbox/images/pull"
)

// buildFlags are the flags of `image ensure` and `image build`.
type buildFlags struct {
	force          bool
	ignoreMovedTag bool
	network, index string
}

func (f *buildFlags) register(cmd *cobra.Command) {
	ignoreMovedTagFlag(cmd, &f.ignoreMovedTag)
	cmd.Flags().StringVar(&f.network, "build-network", "", "`network` for the build of an image with Python requirements, such as host (default: the engine's default)")
	cmd.Flags().StringVar(&f.index, "pip-index", "", "`URL` of the package index for these requirements (default: PyPI); it stays in the image's history")
}

func ignoreMovedTagFlag(cmd *cobra.Command, into *bool) {
	cmd.Flags().BoolVar(into, "ignore-moved-tag", false, "pull the pinned digest although the tag beside it names another one")
}

func newBuild(a *cli.App) *cobra.Command {
	flags := buildFlags{force: true}
	cmd := &cobra.Command{
		Use:   "build [NAME]",
		Short: "Create an image of the catalog, also if the engine has it",
		Long: `Create an image of the catalog, also if the engine has it; without a name, the default.
The image that it replaces is removed unless something uses it. The ID of the new
one goes to stdout, the progress to stderr. As with 'sandbox image ensure --force', a new
one that differs from the locked one of its recipe has to be accepted with
'sandbox image lock'.`,
		Example: `  sandbox image build debian
  sandbox image build python --pip-index https://pypi.example/simple`,
		Args: cobra.MaximumNArgs(1),
		RunE: with(a, func(ctx context.Context, t *tools, args []string) error {
			return t.ensure(ctx, nameArgument(args), flags)
		}),
	}
	flags.register(cmd)
	return cmd
}

// ensureImage makes the image of this name, or the default, and locks it.
func (t *tools) ensure(ctx context.Context, name string, flags buildFlags) error {
	if t.settings.LockPath() != "" { // before minutes of work
		if _, err := t.settings.PlaceOfLock(); err != nil {
			return err
		}
	}
	opts := build.Options{
		Dockerfile: evalbox.DockerfileRunner, Requirements: evalbox.Requirements, Force: flags.force,
		Network: flags.network, PipIndex: flags.index, Pull: pull.Options{IgnoreMovedTag: flags.ignoreMovedTag, Progress: t.Err},
	}
	opts.Pull.TerminalFD, opts.Pull.Terminal = t.progressTerminal()
	image, made, err := build.Ensure(ctx, t.api, t.catalog, name, opts)
	if err != nil {
		return err
	}
	if !made {
		fmt.Fprintf(t.Err, "image %s is there (%s)\n", image.Name, image.Reference)
	}
	if err := t.settleLock(ctx, image.Name); err != nil {
		return err
	}
	return t.Print("%s\n", image.ID)
}

func newEnsure(a *cli.App) *cobra.Command {
	var flags buildFlags
	cmd := &cobra.Command{
		Use:   "ensure [NAME]",
		Short: "Create an image of the catalog unless the engine has it",
		Long: `Create an image of the catalog unless the engine has it; without a name, the default.
The ID of the image goes to stdout, the progress to stderr.

A base in a registry is pulled by its digest; then the image is built on it. The
credentials are those of docker login.

An image that the lock has no entry for is locked, and so is one whose recipe in the
catalog has changed. An entry of the same recipe stands: if the image is another one,
as after --force, the exit code is 1 and runs refuse the image until it is accepted
with 'sandbox image lock'.`,
		Example: "  sandbox image ensure debian",
		Args:    cobra.MaximumNArgs(1),
		RunE: with(a, func(ctx context.Context, t *tools, args []string) error {
			return t.ensure(ctx, nameArgument(args), flags)
		}),
	}
	cmd.Flags().BoolVar(&flags.force, "force", false, "create it again although it is there")
	flags.register(cmd)
	return cmd
}
