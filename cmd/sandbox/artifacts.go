package main

import "github.com/spf13/cobra"

func newArtifactsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "artifacts",
		Short: "Check and hash what a tool left",
		Long: `Check and hash the artifacts of a tool, as 'sandbox invoke' does after a run. Nothing
is run, and no file is changed.`,
		Args: cobra.ArbitraryArgs,
		RunE: unknownOrHelp,

		SuggestionsMinimumDistance: 2,
	}
	cmd.AddCommand(newArtifactsVerifyCommand(a), newArtifactsHashCommand(a))
	return cmd
}
