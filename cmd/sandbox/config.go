package main

import "github.com/spf13/cobra"

func newConfigCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show every setting and where it came from",
		Long: `Show every setting, its value and where it came from.

Flags win over SANDBOX_* variables, these over ./sandbox.yaml (or the file of
--config), this over the user's file, that over the shipped defaults. The key
memory is the flag --memory and the variable SANDBOX_MEMORY; max.memory is
SANDBOX_MAX_MEMORY.`,
		Example: `  sandbox config
  SANDBOX_MEMORY=8g sandbox config --json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			s, err := a.settings()
			if err != nil {
				return err
			}
			if s.JSON {
				return a.printJSON(s.origins)
			}
			var rows [][]string
			for _, o := range s.origins {
				rows = append(rows, []string{o.Key, o.Value, o.Source})
			}
			return a.printTable([]string{"KEY", "VALUE", "SOURCE"}, rows)
		},
	}
	a.settingFlags(cmd, false, "json")
	return cmd
}
