package main

import (
	_ "embed" // for go:embed
	"fmt"
	"maps"
	"os"
	"strings"
	"text/template"

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

// rulesOf are the rules of the settings for contracts.
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
func registryOf(s settings.Settings) (registry.Registry, error) {
	text, name := configs.Tools(), "tools.yaml"
	var err error
	if s.ToolRegistry != "" {
		if text, err = os.ReadFile(s.ToolRegistry); err != nil {
			return registry.Registry{}, &fileError{fileRegistry, s.ToolRegistry, err}
		}
		name = s.ToolRegistry
	}
	registry, err := registry.Parse(text, name)
	if err != nil {
		return registry.Registry{}, &hintedError{err, fileHints[fileRegistry]}
	}
	return registry, nil
}

// profilesOf are the shipped limit profiles, and those of the user's file beside them.
func profilesOf(s settings.Settings) (policy.Profiles, error) {
	all, err := policy.ParseProfiles(configs.Profiles(), "profiles.yaml")
	if err != nil || s.Profiles == "" {
		return all, err
	}
	text, err := os.ReadFile(s.Profiles)
	if err != nil {
		return nil, &fileError{fileProfiles, s.Profiles, err}
	}
	own, err := policy.ParseProfiles(text, s.Profiles)
	if err != nil {
		return nil, &hintedError{err, fileHints[fileProfiles]}
	}
	maps.Copy(all, own)
	return all, nil
}

//go:embed contract_new.yaml.tmpl
var contractTemplate string

func newContractNewCommand(a *app) *cobra.Command {
	var tool string
	cmd := &cobra.Command{
		Use:   "new [--tool TOOL]",
		Short: "Print a contract to begin with",
		Long: `Print a contract to begin with: it is valid, and its comments say what every field means
and what it is when it is left out.`,
		Example: "  sandbox contract new > contract.yaml\n  sandbox contract new --tool pytest > contract.yaml",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return a.newContract(tool) },
	}
	cmd.Flags().StringVar(&tool, "tool", "python", "ID or name of a `tool` of the registry")
	a.settingFlags(cmd, false, "tool_registry")
	return cmd
}

func (a *app) newContract(name string) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	registry, err := registryOf(s)
	if err != nil {
		return err
	}
	tool, err := findTool(registry, name)
	if err != nil {
		return err
	}
	page, err := template.New("contract").Funcs(template.FuncMap{"pad": padded}).Parse(contractTemplate)
	if err != nil {
		return err
	}
	var text strings.Builder
	if err := page.Execute(&text, map[string]any{
		"Tool": "tool_id: " + tool.ID, "Name": tool.Name, "Command": fmt.Sprintf("  command: %q", tool.Scope.Commands[0]),
		"Arguments": "  arguments: " + startArguments(tool.Scope.Commands[0]),
	}); err != nil {
		return err
	}
	return a.print("%s", text.String())
}

// padded fills a line up to the column of the comments.
func padded(line string) string { return fmt.Sprintf("%-37s", line) }

// startArguments are arguments to begin with: some commands fail at level minimal
// without any.
func startArguments(command string) string {
	if strings.HasPrefix(command, "pytest") {
		return `[-p, "no:cacheprovider"]` // the cache would be in a read-only directory
	}
	return "[]"
}

// findTool finds a tool that may be used by its ID or its name.
func findTool(registry registry.Registry, name string) (contract.Tool, error) {
	var known []string
	for _, t := range registry.Tools() {
		if t.ID == name || t.Name == name {
			if t.Status == contract.ToolBlocked {
				return t, &hintedError{fmt.Errorf("Tool '%s' is blocked", t.Name), "see the others with: sandbox contract tools"} //nolint:staticcheck // the sentence of a refused contract
			}
			return t, nil
		}
		known = append(known, t.ID, t.Name)
	}
	hint := "see all with: sandbox contract tools"
	if near := settings.Nearest(name, known); near != "" {
		hint = "did you mean " + near + "?"
	}
	return contract.Tool{}, &hintedError{fmt.Errorf("--tool %q: the registry has no such tool", name), hint}
}

func newContractToolsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tools",
		Short: "List the tools that contracts may name",
		Long: `List the tools of the registry with their commands, and the highest levels of files and
network that they may be used with.`,
		Example: "  sandbox contract tools\n  sandbox contract tools --registry tools.yaml --json",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return a.listTools() },
	}
	a.settingFlags(cmd, false, "tool_registry", "json")
	return cmd
}

func (a *app) listTools() error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	registry, err := registryOf(s)
	if err != nil {
		return err
	}
	if s.JSON {
		return a.printJSON(append([]contract.Tool{}, registry.Tools()...))
	}
	var rows [][]string
	for _, t := range registry.Tools() {
		rows = append(rows, []string{t.ID, t.Name, string(t.Status), t.Scope.Filesystem, t.Scope.Network, strings.Join(t.Scope.Commands, " ")})
	}
	return a.printTable([]string{"ID", "NAME", "STATUS", "FILES", "NETWORK", "COMMANDS"}, rows)
}

func newContractSchemaCommand(a *app) *cobra.Command {
	return a.schemaCommand(&cobra.Command{
		Use:     "schema [--outcome]",
		Short:   "Print the JSON Schema of contracts or of outcomes",
		Long:    "Print the JSON Schema (draft 2020-12) of contracts, or with --outcome that of outcomes.",
		Example: "  sandbox contract schema > contract.schema.json\n  sandbox contract schema --outcome",
	}, contract.ContractSchemaJSON, "outcome", "that of outcomes", contract.OutcomeSchemaJSON)
}

// schemaCommand completes a command that prints a JSON Schema, or another one with a flag.
func (a *app) schemaCommand(cmd *cobra.Command, schema []byte, flag, help string, other []byte) *cobra.Command {
	chosen := cmd.Flags().Bool(flag, false, help)
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(*cobra.Command, []string) error {
		if *chosen {
			schema = other
		}
		_, err := a.streams.Out.Write(schema)
		return readerGone(err)
	}
	return cmd
}
