package main

import (
	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/gate/normalize"
)

// normalizeFlags say what is made of a log.
type normalizeFlags struct {
	roots          []string
	suspects, hash bool
}

func newGateNormalizeCommand(a *app) *cobra.Command {
	var f normalizeFlags
	cmd := &cobra.Command{
		Use:   "normalize FILE",
		Short: "Show a log as a gate records it",
		Long: `Show a log as a gate records it: without what changes from run to run, such as times,
durations, process IDs, addresses and host names. FILE is - for stdin. The lines stay
in their order.

--suspects shows instead what still looks as if it changes; the exit code is then 1
if there is any. --hash shows the hash of the behaviour.`,
		Example: "  pytest -q | sandbox gate normalize -\n  sandbox gate normalize out.log --suspects",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.suspects && f.hash {
				return usagef(cmd.CommandPath(), "gate normalize: --suspects and --hash do not go together")
			}
			return a.normalizeLog(args[0], f)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVar(&f.roots, "root", nil, "absolute `path` of the workspace: paths below it become relative")
	flags.BoolVar(&f.suspects, "suspects", false, "show what still looks as if it changes from run to run")
	flags.BoolVar(&f.hash, "hash", false, "show the hash of the behaviour")
	return cmd
}

func (a *app) normalizeLog(file string, f normalizeFlags) error {
	normalizer, err := normalize.New(nil, normalize.Context{Roots: f.roots})
	if err != nil {
		return err
	}
	text, err := a.readStream(file)
	if err != nil {
		return err
	}
	text = normalizer.Text(text)
	switch {
	case f.hash:
		return a.print("%s\n", normalize.BehaviorHash(text))
	case !f.suspects:
		return a.print("%s", text)
	}
	suspects, all := normalize.Detect(text, nil)
	if all > 0 {
		a.code = exitProblem
	}
	for _, s := range suspects {
		if err := a.print("%d: %s: %s\n", s.Line, s.Detector, s.Text); err != nil {
			return err
		}
	}
	if more := all - len(suspects); more > 0 {
		return a.print("and %d more\n", more)
	}
	return nil
}
