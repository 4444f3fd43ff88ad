package main

import (
	_ "embed" // for go:embed
	"fmt"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/settings"
)

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
		return `[-p, "no:cacheprovider"]` // the cache would be in a folder that is read-only
	}
	return "[]"
}

// findTool finds a tool that may be used by its ID or its name.
func findTool(registry contract.Registry, name string) (contract.Tool, error) {
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
