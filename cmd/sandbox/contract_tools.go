package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/contract"
)

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
