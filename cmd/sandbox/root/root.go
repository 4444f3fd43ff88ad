// Package root builds the tree of all commands of sandbox.
package root

import (
	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/browse"
	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/cmd/sandbox/contract"
	"github.com/evalbox/evalbox/cmd/sandbox/evaluate"
	"github.com/evalbox/evalbox/cmd/sandbox/gate"
	"github.com/evalbox/evalbox/cmd/sandbox/image"
	"github.com/evalbox/evalbox/cmd/sandbox/invoke"
	"github.com/evalbox/evalbox/cmd/sandbox/machine"
	"github.com/evalbox/evalbox/cmd/sandbox/mcp"
	"github.com/evalbox/evalbox/cmd/sandbox/report"
	"github.com/evalbox/evalbox/cmd/sandbox/runs"
)

// New returns the tree of all commands.
func New(a *cli.App) *cobra.Command {
	var showVersion bool
	root := &cobra.Command{
		Use:   "sandbox",
		Short: "Run one untrusted program in one fresh container",
		Long: `Run one untrusted program in one fresh container, and report exactly what happened.

The program gets no network, no capabilities, a read-only root file system, and
bounded memory, processors, processes, time, disk and output. It finds its input
in ./input and leaves what it wants to keep in ./final.

'sandbox help' also lists topics, such as exit-codes, settings, task and wish.`,
		Example: `  sandbox run train.py                          run a script
  sandbox run --input data train.py --epochs 3  with a directory as ./input
  sandbox run -- python3 -c 'print(1)'          run a command inside the image
  sandbox ls                                    list earlier runs
  sandbox doctor                                check this machine`,
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
	a.Given.Add(root.PersistentFlags(), "engine", "context", "host", "state_dir", "catalog", "lock")
	root.Flags().BoolVar(&showVersion, "version", false, "show the versions, as 'sandbox version' does")
	root.SetFlagErrorFunc(cli.FlagError)
	cli.HelpAll(root)
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
		{"records", browse.New(a)},
		{"records", report.New(a)},
		{"records", runs.NewLogs(a)},
		{"records", runs.NewCp(a)},
		{"records", runs.NewStop(a)},
		{"records", runs.NewWait(a)},
		{"records", runs.NewAdopt(a)},
		{"records", runs.NewRm(a)},
		{"records", runs.NewPrune(a)},
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
	root.SetHelpCommand(cli.NewHelp(a))
	cli.CompletionCommand(root)
	cli.UsageArgs(root)
	cli.Complete(a, root, arguments(a))
	return root
}

// arguments completes the arguments of commands, by path.
func arguments(a *cli.App) map[string]cobra.CompletionFunc {
	ids, images, catalog := cli.CompleteRuns(a), cli.CompleteImages(a), cli.CompleteCatalog(a)
	return map[string]cobra.CompletionFunc{
		"sandbox show": ids, "sandbox report": cli.CompleteOrFiles(ids), "sandbox logs": ids, "sandbox rm": ids, "sandbox adopt": ids, "sandbox stop": ids, "sandbox wait": ids, "sandbox cp": cli.CompleteFiles(ids),
		"sandbox image ensure": catalog, "sandbox image build": catalog, "sandbox image pull": catalog,
		"sandbox image lock": images, "sandbox image verify": images, "sandbox image inspect": images, "sandbox image export": images,
		"sandbox image unlock": images, "sandbox image rm": images, "sandbox image push": cli.CompleteFirst(images),
	}
}
