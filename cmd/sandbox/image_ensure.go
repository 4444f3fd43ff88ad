package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox"
	"github.com/evalbox/evalbox/images"
)

func newImageEnsureCommand(a *app) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "ensure [NAME]",
		Short: "Make an image of the catalog unless the engine has it",
		Long: `Make an image of the catalog unless the engine has it; without a name, the default.
The ID of the image goes to stdout, the progress to stderr.

An image that the lock has no entry for is locked, and so is one whose recipe in the
catalog has changed. An entry of the same recipe stands: if the image is another one,
as after --force, the exit code is 1 and runs refuse the image until it is accepted
with 'sandbox image lock'.`,
		Example: "  sandbox image ensure debian",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.ensureImage(cmd.Context(), nameArgument(args), force)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "make it again although it is there")
	return cmd
}

func (a *app) ensureImage(ctx context.Context, name string, force bool) error {
	s, catalog, api, err := a.imageTools(ctx)
	if err != nil {
		return err
	}
	defer api.Close()
	opts := images.EnsureOptions{Dockerfile: evalbox.DockerfileRunner, Force: force, Progress: a.streams.Err}
	opts.TerminalFD, opts.Terminal = a.progressTerminal()
	image, made, err := images.Ensure(ctx, api, catalog, name, opts)
	if err != nil {
		return err
	}
	if !made {
		fmt.Fprintf(a.streams.Err, "image %s is there (%s)\n", image.Name, image.Reference)
	}
	if err := a.settleLock(ctx, s, catalog, api, image.Name); err != nil {
		return err
	}
	return a.print("%s\n", image.ID)
}
