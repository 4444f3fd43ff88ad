package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evalbox/evalbox/internal/settings"
)

// requestKeys are the settings that every command has as flags which runs
// programs.
var requestKeys = []string{
	"image", "allow_unlocked", "timeout", "grace", "memory", "cpus",
	"gpus", "gpu_driver", "gpu_share", "gpu_wait", "network", "user", "runtime", "transfer",
	"pids_limit", "shm_size", "tmp_size", "scratch_size", "disk", "output_limit",
}

// groupedUsage shows the flags of a command in groups: its own, those of the runs that it
// makes, and those of what it prints. Dozens in one list hide each other.
func groupedUsage(cmd *cobra.Command) error {
	own, runs, output := newFlagGroup(), newFlagGroup(), newFlagGroup()
	cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		key := settings.KeyOf(flag)
		switch {
		case slices.Contains(requestKeys, key):
			runs.AddFlag(flag)
		case key != "" || flag.Name == "help":
			output.AddFlag(flag)
		default:
			own.AddFlag(flag)
		}
	})
	text := fmt.Sprintf("Usage:\n  %s\n\nExamples:\n%s\n", cmd.UseLine(), cmd.Example)
	for _, group := range []struct {
		title string
		flags *pflag.FlagSet
	}{
		{"Flags", own}, {"Flags of each run", runs}, {"Flags of the output", output}, {"Global Flags", cmd.InheritedFlags()},
	} {
		text += "\n" + group.title + ":\n" + strings.TrimRight(group.flags.FlagUsages(), "\n") + "\n"
	}
	_, err := fmt.Fprint(cmd.OutOrStderr(), text)
	return err
}

func newFlagGroup() *pflag.FlagSet {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.SortFlags = false
	return flags
}
