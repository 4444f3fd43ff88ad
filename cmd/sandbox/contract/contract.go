package contract

import (
	"context"
	_ "embed" // for go:embed
	"fmt"
	"maps"
	"os"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/harness/contract/registry"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/policy"
)

// contractKeys are the settings of the rules for contracts.
var contractKeys = []string{"tool_registry", "profiles", "strict"}

// The files of contracts.
var (
	contractFile = cli.FileKind{Noun: "contract", Hint: "give the path of a contract, or - for stdin; make one with: sandbox contract new"}
	approvalFile = cli.FileKind{Noun: "approval", Hint: "make one with: sandbox contract approve"}
	registryFile = cli.FileKind{Noun: "registry", Hint: "leave --registry out for the shipped one, which is a pattern for your own"}
	profilesFile = cli.FileKind{Noun: "profiles", Hint: "leave --profiles out for the shipped ones, which are a pattern for your own"}
)

// New returns the command `contract`.
func New(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "contract",
		Short: "Write, check and approve contracts",
		Long: `Write, check and approve code execution contracts. 'sandbox exec' carries one out.

No container is involved.`,
		Example: `  sandbox contract new --tool python > contract.yaml
  sandbox contract validate contract.yaml
  sandbox contract approve contract.yaml --by Ada --reason "release" -o approval.yaml`,
		Args: cobra.ArbitraryArgs,
		RunE: cli.UnknownOrHelp,

		SuggestionsMinimumDistance: 2,
	}
	cmd.AddCommand(newValidate(a), newNew(a), newApprove(a), newTools(a), newSchema(a))
	return cmd
}

// rulesOf are the rules of the settings for contracts.
func rulesOf(s settings.Settings) (contract.Rules, error) {
	rules := contract.Rules{Strict: s.Strict, OpenAllowlist: s.OpenAllowlist}
	var err error
	if rules.Registry, err = registryOf(s); err != nil {
		return rules, err
	}
	if rules.Profiles, err = policy.ParseProfiles(configs.Profiles(), "profiles.yaml"); err != nil || s.Profiles == "" {
		return rules, err
	}
	own, err := parsed(profilesFile, s.Profiles, policy.ParseProfiles)
	maps.Copy(rules.Profiles, own)
	return rules, err
}

// registryOf are the tools that contracts may name.
func registryOf(s settings.Settings) (registry.Registry, error) {
	if s.ToolRegistry == "" {
		return registry.Parse(configs.Tools(), "tools.yaml")
	}
	return parsed(registryFile, s.ToolRegistry, registry.Parse)
}

// parsed reads and parses a file of a kind.
func parsed[T any](kind cli.FileKind, path string, parse func(text []byte, source string) (T, error)) (value T, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return value, kind.Error(path, err)
	}
	if value, err = parse(text, path); err != nil {
		return value, cli.WithHint(err, kind.Hint)
	}
	return value, nil
}

// withTools runs a command that only needs the registry.
func withTools(a *cli.App, do func(s settings.Settings, tools registry.Registry) error) func(*cobra.Command, []string) error {
	return a.With(func(_ context.Context, s settings.Settings, _ []string) error {
		tools, err := registryOf(s)
		if err != nil {
			return err
		}
		return do(s, tools)
	})
}

//go:embed new.yaml.tmpl
var contractTemplate string

func newNew(a *cli.App) *cobra.Command {
	var tool string
	cmd := &cobra.Command{
		Use:   "new [--tool TOOL]",
		Short: "Print a contract to begin with",
		Long: `Print a contract to begin with. It is valid, and its comments explain every field and its
default.`,
		Example: "  sandbox contract new > contract.yaml\n  sandbox contract new --tool pytest > contract.yaml",
		Args:    cobra.NoArgs,
		RunE: withTools(a, func(_ settings.Settings, tools registry.Registry) error {
			found, err := findTool(tools, tool)
			if err != nil {
				return err
			}
			return printContract(a, found)
		}),
	}
	cmd.Flags().StringVar(&tool, "tool", "python", "ID or name of a `tool` of the registry")
	a.SettingFlags(cmd, "tool_registry")
	return cmd
}

func printContract(a *cli.App, tool registry.Tool) error {
	pad := func(line string) string { return fmt.Sprintf("%-37s", line) } // up to the column of the comments
	page, err := template.New("contract").Funcs(template.FuncMap{"pad": pad}).Parse(contractTemplate)
	if err != nil {
		return err
	}
	command, arguments := tool.Scope.Commands[0], "[]"
	if strings.HasPrefix(command, "pytest") {
		arguments = `[-p, "no:cacheprovider"]` // the cache would be in a read-only directory
	}
	var text strings.Builder
	if err := page.Execute(&text, map[string]any{
		"Tool": "tool_id: " + tool.ID, "Name": tool.Name, "Command": fmt.Sprintf("  command: %q", command), "Arguments": "  arguments: " + arguments,
	}); err != nil {
		return err
	}
	return a.Print("%s", text.String())
}

// findTool finds a tool that may be used by its ID or its name.
func findTool(tools registry.Registry, name string) (registry.Tool, error) {
	var known []string
	for _, t := range tools.Tools() {
		if t.ID == name || t.Name == name {
			if t.Status == registry.Blocked {
				return t, cli.WithHint(fmt.Errorf("Tool '%s' is blocked", t.Name), "see the others with: sandbox contract tools") //nolint:staticcheck // the sentence of a refused contract
			}
			return t, nil
		}
		known = append(known, t.ID, t.Name)
	}
	hint := "see all with: sandbox contract tools"
	if near := settings.Nearest(name, known); near != "" {
		hint = "did you mean " + near + "?"
	}
	return registry.Tool{}, cli.WithHint(fmt.Errorf("--tool %q: the registry has no such tool", name), hint)
}

func newTools(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tools",
		Short: "List the tools that contracts may name",
		Long: `List the tools of the registry with their commands, and the highest levels of files and
network that they may be used with.`,
		Example: "  sandbox contract tools\n  sandbox contract tools --registry tools.yaml --json",
		Args:    cobra.NoArgs,
		RunE: withTools(a, func(s settings.Settings, tools registry.Registry) error {
			var rows [][]string
			for _, t := range tools.Tools() {
				rows = append(rows, []string{t.ID, t.Name, string(t.Status), string(t.Scope.Filesystem), string(t.Scope.Network), strings.Join(t.Scope.Commands, " ")})
			}
			return a.ShowTable(s, tools.Tools(), []string{"ID", "NAME", "STATUS", "FILES", "NETWORK", "COMMANDS"}, rows)
		}),
	}
	a.SettingFlags(cmd, "tool_registry", "json")
	return cmd
}

func newSchema(a *cli.App) *cobra.Command {
	return a.SchemaCommand(&cobra.Command{
		Use:     "schema [--outcome]",
		Short:   "Print the JSON Schema of contracts or of outcomes",
		Long:    "Print the JSON Schema (draft 2020-12) of contracts, or with --outcome that of outcomes.",
		Example: "  sandbox contract schema > contract.schema.json\n  sandbox contract schema --outcome",
	}, contract.ContractSchemaJSON, "outcome", "that of outcomes", contract.OutcomeSchemaJSON)
}
