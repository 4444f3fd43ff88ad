package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/text"
)

// newRootCommand builds the tree of all commands.
func newRootCommand(a *app) *cobra.Command {
	var showVersion bool
	root := &cobra.Command{
		Use:   "sandbox",
		Short: "Run one untrusted program in one fresh container",
		Long: `Run one untrusted program in one fresh container, and say truthfully what happened.

The program gets no network, no capabilities, a read-only root file system, and
bounded memory, processors, processes, time, disk and output. It finds its input
in ./input and leaves what it wants to keep in ./final.`,
		Example: `  sandbox run train.py                          run a script
  sandbox run --input data train.py --epochs 3  with a folder as ./input
  sandbox run -- python3 -c 'print(1)'          run any command of the image
  sandbox ls                                    what ran before
  sandbox doctor                                what works on this machine`,
		Args:             cobra.ArbitraryArgs,
		SilenceErrors:    true,
		SilenceUsage:     true,
		PersistentPreRun: func(cmd *cobra.Command, _ []string) { a.command = cmd.CommandPath() },
		RunE: func(cmd *cobra.Command, args []string) error {
			if showVersion && len(args) == 0 {
				return a.version(cmd.Context(), false)
			}
			return unknownOrHelp(cmd, args)
		},

		SuggestionsMinimumDistance: 2,
	}
	root.PersistentFlags().StringVar(&a.configFile, "config", "", "settings `file` instead of ./sandbox.yaml")
	root.PersistentFlags().BoolVar(&a.verbose, "verbose", false, "log every step to stderr")
	a.settingFlags(root, true, "context", "host", "state_dir", "catalog", "lock")
	root.Flags().BoolVar(&showVersion, "version", false, "show the versions, as 'sandbox version' does")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef(cmd.CommandPath(), "%s: %s", subject(cmd), flagText(err))
	})
	root.AddGroup(
		&cobra.Group{ID: "run", Title: "Run:"},
		&cobra.Group{ID: "evaluate", Title: "Evaluate solutions:"},
		&cobra.Group{ID: "records", Title: "Look at runs:"},
		&cobra.Group{ID: "machine", Title: "Look after the machine:"},
	)
	grouped(root, "run", newRunCommand(a), newExecCommand(a), newContractCommand(a),
		newInvokeCommand(a), newSweepCommand(a), newArtifactsCommand(a), newGateCommand(a), newReplayCommand(a), newParseCommand(a))
	grouped(root, "evaluate", newEvaluateCommand(a), newBatchCommand(a), newCheckCommand(a), newRankCommand(a), newSubmissionCommand(a))
	grouped(root, "records", newLsCommand(a), newShowCommand(a), newLogsCommand(a), newRmCommand(a))
	grouped(root, "machine", newDoctorCommand(a), newImageCommand(a), newPsCommand(a), newGPUsCommand(a), newGCCommand(a),
		newConfigCommand(a), newVersionCommand(a))
	root.SetHelpCommand(newHelpCommand())
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		// cobra shows the help, as a success, for a shell it does not know.
		completion.Args, completion.RunE = cobra.ArbitraryArgs, unknownOrHelp
	}
	usageArgs(root)
	return root
}

// subject names a command in a message, which begins with "sandbox: " already.
func subject(cmd *cobra.Command) string { return strings.TrimPrefix(cmd.CommandPath(), "sandbox ") }

// flagText is an error of a flag without the words of the library that read it.
func flagText(err error) string {
	var invalid *pflag.InvalidValueError
	var number *strconv.NumError
	if !errors.As(err, &invalid) {
		return err.Error()
	}
	reason := invalid.Unwrap()
	if errors.As(reason, &number) {
		reason = errors.New("must be a whole number")
		if number.Func == "ParseBool" {
			reason = errors.New("must be true or false")
		}
	}
	return fmt.Sprintf("--%s %q: %v", invalid.GetFlag().Name, invalid.GetValue(), reason)
}

func grouped(root *cobra.Command, group string, commands ...*cobra.Command) {
	for _, c := range commands {
		c.GroupID = group
		root.AddCommand(c)
	}
}

// unknownOrHelp runs a command that only holds others.
func unknownOrHelp(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	text := fmt.Sprintf("%s: unknown command %q", subject(cmd), args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return &usageError{text, "did you mean " + strings.Join(near, " or ") + "?"}
	}
	return usagef(cmd.CommandPath(), "%s", text)
}

// newHelpCommand is cobra's, but an unknown topic is wrong usage.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Explain a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			topic, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usagef(cmd.Root().CommandPath(), "unknown command %q", strings.Join(args, " "))
			}
			return topic.Help()
		},
	}
}

// usageArgs makes every complaint about the number of arguments a usageError.
func usageArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				if len(args) > 0 && !cmd.HasSubCommands() && strings.HasPrefix(err.Error(), "unknown command") {
					// cobra takes every argument where there can be none for a command.
					err = fmt.Errorf("takes no argument, and %q is one", args[0])
				}
				return usagef(cmd.CommandPath(), "%s: %s", subject(cmd), text.OneLine(err.Error()))
			}
			return nil
		}
	}
	for _, below := range cmd.Commands() {
		usageArgs(below)
	}
}

// requestKeys are the settings that every command has as flags which runs
// programs.
var requestKeys = []string{
	"image", "allow_unlocked", "timeout", "grace", "memory", "cpus",
	"gpus", "gpu_driver", "gpu_share", "gpu_wait", "network", "user", "runtime", "transfer",
	"pids_limit", "shm_size", "tmp_size", "scratch_size", "disk", "output_limit",
}

// groupedUsage shows the flags of a command in groups: its own, those of its runs, and those
// of its output. Dozens of flags in one list hide each other.
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
