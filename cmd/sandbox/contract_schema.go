package main

import (
	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/contract"
)

func newContractSchemaCommand(a *app) *cobra.Command {
	var outcome bool
	cmd := &cobra.Command{
		Use:     "schema [--outcome]",
		Short:   "Print the JSON Schema of contracts or of outcomes",
		Long:    "Print the JSON Schema (draft 2020-12) of contracts, or with --outcome that of outcomes.",
		Example: "  sandbox contract schema > contract.schema.json\n  sandbox contract schema --outcome",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			text := contract.ContractSchemaJSON
			if outcome {
				text = contract.OutcomeSchemaJSON
			}
			_, err := a.streams.Out.Write(text)
			return readerGone(err)
		},
	}
	cmd.Flags().BoolVar(&outcome, "outcome", false, "that of outcomes")
	return cmd
}
