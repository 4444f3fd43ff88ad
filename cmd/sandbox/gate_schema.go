package main

import (
	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/gate/wish"
)

func newGateSchemaCommand(a *app) *cobra.Command {
	var lock bool
	cmd := &cobra.Command{
		Use:     "schema [--lock]",
		Short:   "Print the JSON Schema of wishes or of their locks",
		Long:    "Print the JSON Schema (draft 2020-12) of wishes, or with --lock that of sealed ones.",
		Example: "  sandbox gate schema > wish.schema.json\n  sandbox gate schema --lock",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			text := wish.SchemaJSON
			if lock {
				text = wish.LockSchemaJSON
			}
			_, err := a.streams.Out.Write(text)
			return readerGone(err)
		},
	}
	cmd.Flags().BoolVar(&lock, "lock", false, "that of sealed wishes")
	return cmd
}
