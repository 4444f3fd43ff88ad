package main

import "github.com/spf13/cobra"

func newImageEnsureCommand(a *app) *cobra.Command {
	var flags buildFlags
	cmd := &cobra.Command{
		Use:   "ensure [NAME]",
		Short: "Make an image of the catalog unless the engine has it",
		Long: `Make an image of the catalog unless the engine has it; without a name, the default.
The ID of the image goes to stdout, the progress to stderr.

A base in a registry is pulled by its digest; then the image is built on it. The
credentials are those of docker login.

An image that the lock has no entry for is locked, and so is one whose recipe in the
catalog has changed. An entry of the same recipe stands: if the image is another one,
as after --force, the exit code is 1 and runs refuse the image until it is accepted
with 'sandbox image lock'.`,
		Example: "  sandbox image ensure debian",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.ensureImage(cmd.Context(), nameArgument(args), flags)
		},
	}
	cmd.Flags().BoolVar(&flags.force, "force", false, "make it again although it is there")
	flags.register(cmd)
	return cmd
}
