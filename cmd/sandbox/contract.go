package main

import (
	"maps"
	"os"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/policy"
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

// rulesOf are what the settings check contracts against.
func rulesOf(s settings.Settings) (contract.Rules, error) {
	rules := contract.Rules{Strict: s.Strict, OpenAllowlist: s.OpenAllowlist}
	var err error
	if rules.Registry, err = registryOf(s); err != nil {
		return rules, err
	}
	rules.Profiles, err = profilesOf(s)
	return rules, err
}

// registryOf are the tools that contracts may name.
func registryOf(s settings.Settings) (contract.Registry, error) {
	text, name, err := shippedOr(s.ToolRegistry, fileRegistry)
	if err != nil {
		return contract.Registry{}, err
	}
	registry, err := contract.ParseRegistry(text, name)
	if err != nil {
		return contract.Registry{}, &hintedError{err, fileHints[fileRegistry]}
	}
	return registry, nil
}

// profilesOf are the shipped limit profiles, and those of the user's file beside them.
func profilesOf(s settings.Settings) (policy.Profiles, error) {
	text, name, err := shippedOr("", fileProfiles)
	if err != nil {
		return nil, err
	}
	all, err := policy.ParseProfiles(text, name)
	if err != nil || s.Profiles == "" {
		return all, err
	}
	if text, name, err = shippedOr(s.Profiles, fileProfiles); err != nil {
		return nil, err
	}
	own, err := policy.ParseProfiles(text, name)
	if err != nil {
		return nil, &hintedError{err, fileHints[fileProfiles]}
	}
	maps.Copy(all, own)
	return all, nil
}
