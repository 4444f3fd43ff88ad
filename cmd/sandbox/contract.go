package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/configs"
)

func newContractCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "contract",
		Short: "Write, check and approve contracts",
		Long: `Write, check and approve code execution contracts. 'sandbox exec' carries one out.

No container is involved.`,
		Example: `  sandbox contract new --tool python > contract.yaml
  sandbox contract validate contract.yaml
  sandbox contract approve contract.yaml --by Ada --reason "release" -o approval.yaml`,
		Args: cobra.ArbitraryArgs,
		RunE: unknownOrHelp,

		SuggestionsMinimumDistance: 2,
	}
	cmd.AddCommand(newContractValidateCommand(a), newContractNewCommand(a), newContractApproveCommand(a),
		newContractToolsCommand(a), newContractSchemaCommand(a))
	return cmd
}

// shippedOr reads a file of the user, or the shipped one if none is named.
func shippedOr(file, what string) (text []byte, name string, err error) {
	if file == "" {
		if what == fileRegistry {
			return configs.Tools(), "tools.yaml", nil
		}
		return configs.Profiles(), "profiles.yaml", nil
	}
	text, err = os.ReadFile(file)
	if err != nil {
		return nil, file, &fileError{what, file, err}
	}
	return text, file, nil
}
