package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// groupedUsage shows the flags of a command in groups: its own, those of the runs that it
// makes, and those of what it prints. Dozens in one list hide each other.
func groupedUsage(cmd *cobra.Command) error {
	own, runs, output := newFlagGroup(), newFlagGroup(), newFlagGroup()
	cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		setting, is := flag.Value.(*settingFlag)
		switch {
		case is && slices.Contains(requestKeys, setting.key.name):
			runs.AddFlag(flag)
		case is || flag.Name == "help":
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
