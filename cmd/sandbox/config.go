package main

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

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
			s.showStateDir()
			a.showLock(s)
			if s.JSON {
				return a.printJSON(s.origins)
			}
			var rows [][]string
			for _, o := range s.origins {
				rows = append(rows, []string{o.Key, o.Value, o.Source})
			}
			err = a.printTable([]string{"KEY", "VALUE", "SOURCE"}, rows)
			return errors.Join(err, a.printUserFile())
		},
	}
	a.settingFlags(cmd, false, "json")
	return cmd
}

// showStateDir shows the folder that is used when none is set.
func (s settings) showStateDir() {
	for i := range s.origins {
		if o := &s.origins[i]; o.Key == "state_dir" && o.Value == "" {
			// Where there is none, commands that need one say so.
			o.Value, _ = s.stateDir()
		}
	}
}

// showLock shows the file that is used when none is set.
func (a *app) showLock(s settings) {
	for i := range s.origins {
		if o := &s.origins[i]; o.Key == "lock" && o.Value == "" {
			// Where there is no place for one, commands that need one say so.
			o.Value = a.lockPath(s)
			if s.Catalog != "" && o.Value == filepath.Join(filepath.Dir(s.Catalog), lockName) {
				o.Source = "beside the catalog"
			}
		}
	}
}

// printUserFile says where the user's own settings are, or would be.
func (a *app) printUserFile() error {
	dir := a.sources().userDir
	if dir == "" {
		return a.print("\nuser's file: none, this account has no folder for configuration\n")
	}
	file := userFile(dir)
	if _, err := os.Stat(file); err != nil {
		return a.print("\nuser's file: %s (not there)\n", file)
	}
	return a.print("\nuser's file: %s\n", file)
}
