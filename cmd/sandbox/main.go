// Command sandbox runs one untrusted program in one fresh container and says
// truthfully what happened.
//
//	sandbox run --input data train.py
//	sandbox run -- python3 -c 'print(1)'
//
// Run `sandbox --help` for all commands, and `sandbox config` for every setting
// and where it came from. The exit codes are listed at [cli.ExitCode].
package main

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/cmd/sandbox/contract"
	"github.com/evalbox/evalbox/cmd/sandbox/evaluate"
	"github.com/evalbox/evalbox/cmd/sandbox/gate"
	"github.com/evalbox/evalbox/cmd/sandbox/image"
	"github.com/evalbox/evalbox/cmd/sandbox/invoke"
	"github.com/evalbox/evalbox/cmd/sandbox/machine"
	"github.com/evalbox/evalbox/cmd/sandbox/mcp"
	"github.com/evalbox/evalbox/cmd/sandbox/runs"
)

func main() { os.Exit(start()) }

func start() int {
	runs := &cli.Runs{}
	ctx, kill, release, stop := cli.Interrupts(context.Background(), runs, os.Exit)
	defer stop()
	return Run(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Kill: kill, Ended: release, Runs: runs})
}

// Run runs one command line, without the program's name, and returns the exit
// code. It reads the environment and the current directory, and never exits.
func Run(ctx context.Context, args []string, streams cli.Streams) int {
	a := cli.New(streams)
	return a.Execute(ctx, newRootCommand(a), args)
}

// newRootCommand builds the tree of all commands.
func newRootCommand(a *cli.App) *cobra.Command {
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
		PersistentPreRun: func(cmd *cobra.Command, _ []string) { a.Command = cmd.CommandPath() },
		RunE: func(cmd *cobra.Command, args []string) error {
			if showVersion && len(args) == 0 {
				return machine.PrintVersion(cmd.Context(), a, false)
			}
			return cli.UnknownOrHelp(cmd, args)
		},
	}
	root.PersistentFlags().StringVar(&a.ConfigFile, "config", "", "settings `file` instead of ./sandbox.yaml")
	root.PersistentFlags().BoolVar(&a.Verbose, "verbose", false, "log every step to stderr")
	a.Given.Add(root.PersistentFlags(), "context", "host", "state_dir", "catalog", "lock")
	root.Flags().BoolVar(&showVersion, "version", false, "show the versions, as 'sandbox version' does")
	root.SetFlagErrorFunc(cli.FlagError)
	root.AddGroup(
		&cobra.Group{ID: "run", Title: "Run:"},
		&cobra.Group{ID: "evaluate", Title: "Evaluate solutions:"},
		&cobra.Group{ID: "records", Title: "Look at runs:"},
		&cobra.Group{ID: "machine", Title: "Look after the machine:"},
	)
	for _, c := range []struct {
		group string
		cmd   *cobra.Command
	}{
		{"run", runs.NewRun(a)},
		{"run", contract.NewExec(a)},
		{"run", contract.New(a)},
		{"run", contract.NewAdapter(a)},
		{"run", invoke.NewInvoke(a)},
		{"run", invoke.NewSweep(a)},
		{"run", invoke.NewArtifacts(a)},
		{"run", gate.New(a)},
		{"run", gate.NewReplay(a)},
		{"run", mcp.New(a)},
		{"run", evaluate.NewParse(a)},
		{"run", cli.NewInit(evaluate.NewInitTask(a), cli.Maker(contract.New(a), "contract"), cli.Maker(gate.New(a), "wish"))},
		{"evaluate", evaluate.NewEvaluate(a)},
		{"evaluate", evaluate.NewBatch(a)},
		{"evaluate", evaluate.NewCheck(a)},
		{"evaluate", evaluate.NewRank(a)},
		{"evaluate", evaluate.NewSubmission(a)},
		{"records", runs.NewLs(a)},
		{"records", runs.NewShow(a)},
		{"records", runs.NewLogs(a)},
		{"records", runs.NewAdopt(a)},
		{"records", runs.NewRm(a)},
		{"machine", machine.NewDoctor(a)},
		{"machine", image.New(a)},
		{"machine", runs.NewPs(a)},
		{"machine", machine.NewGPUs(a)},
		{"machine", machine.NewPool(a)},
		{"machine", runs.NewGC(a)},
		{"machine", machine.NewConfig(a)},
		{"machine", machine.NewVersion(a)},
	} {
		c.cmd.GroupID = c.group
		root.AddCommand(c.cmd)
	}
	root.SetHelpCommand(&cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Explain a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			topic, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 { // cobra takes it for a success
				return cli.Usagef(cmd.Root().CommandPath(), "unknown command %q", strings.Join(args, " "))
			}
			return topic.Help()
		},
	})
	root.InitDefaultCompletionCmd()
	cli.UsageArgs(root)
	a.Complete(root, map[string]cobra.CompletionFunc{
		"show": a.CompleteRun, "logs": a.CompleteRun, "rm": a.CompleteRuns, "adopt": a.CompleteRun,
		"image ensure": a.CompleteImages, "image build": a.CompleteImages, "image lock": a.CompleteImages,
		"image verify": a.CompleteImages, "image inspect": a.CompleteImages, "image pull": a.CompleteImages,
		"contract new --tool": contract.CompleteTools(a), "adapter list --tool": contract.CompleteTools(a),
	})
	return root
}
