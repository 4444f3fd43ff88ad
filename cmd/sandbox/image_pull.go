package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/images/pull"
)

func newImagePullCommand(a *app) *cobra.Command {
	var opts pull.Options
	cmd := &cobra.Command{
		Use:   "pull NAME|REFERENCE@sha256:...",
		Short: "Pull an image by its digest",
		Long: `Pull an image by its digest: the base of an image of the catalog, or a reference
NAME[:TAG]@sha256:... of any registry. What the engine has is not pulled again.

A tag must still name the digest in the registry. The image must be for the
engine's platform. The credentials are those of docker login. The ID of the image
goes to stdout, the progress to stderr.`,
		Example: `  sandbox image pull python
  sandbox image pull registry.example/team/tools:1.2@sha256:0123...`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if opts.Platform != "" && !strings.Contains(opts.Platform, "/") {
				return usagef("sandbox image pull", "image pull: --platform %q: must be os/architecture, such as linux/arm64", opts.Platform)
			}
			return a.pullImage(cmd.Context(), args[0], opts)
		},
	}
	cmd.Flags().StringVar(&opts.Platform, "platform", "", "`platform` to pull, such as linux/arm64 (default: the engine's)")
	ignoreMovedTagFlag(cmd, &opts.IgnoreMovedTag)
	return cmd
}

func (a *app) pullImage(ctx context.Context, name string, opts pull.Options) error {
	_, catalog, api, err := a.imageTools(ctx)
	if err != nil {
		return err
	}
	defer api.Close()
	opts.Progress = a.streams.Err
	opts.TerminalFD, opts.Terminal = a.progressTerminal()
	image, pulled, err := pull.Named(ctx, api, catalog, name, opts)
	if err != nil {
		return err
	}
	if !pulled {
		fmt.Fprintf(a.streams.Err, "image %s is there\n", image.Reference)
	}
	return a.print("%s\n", image.ID)
}
