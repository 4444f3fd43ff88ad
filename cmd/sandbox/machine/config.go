package machine

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/internal/settings"
)

// NewConfig returns the command `config`.
func NewConfig(a *cli.App) *cobra.Command {
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
		RunE: a.With(func(_ context.Context, s settings.Settings, _ []string) error {
			var rows [][]string
			for _, o := range s.Origins() {
				rows = append(rows, []string{o.Key, o.Value, o.Source})
			}
			err := a.ShowTable(s, s.Origins(), []string{"KEY", "VALUE", "SOURCE"}, rows)
			if err != nil || s.JSON {
				return err
			}
			return printUserFile(a)
		}),
	}
	a.SettingFlags(cmd, "json")
	return cmd
}

// printUserFile says where the user's own settings are, or would be.
func printUserFile(a *cli.App) error {
	file := settings.UserFile()
	if file == "" {
		return a.Print("\nuser's file: none, this account has no folder for configuration\n")
	}
	if _, err := os.Stat(file); err != nil {
		return a.Print("\nuser's file: %s (not there)\n", file)
	}
	return a.Print("\nuser's file: %s\n", file)
}
