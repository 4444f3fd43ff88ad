package main

import "github.com/spf13/cobra"

func newGateCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gate",
		Short: "Run tests and keep the evidence that they passed",
		Long: `Run the tests of a workspace in fresh containers, keep the evidence, and judge it.
No test, no pass: PASS needs a sealed wish, every command with the exit code that is
expected of it, at least one test that really ran, nothing tried that the boundary
forbids, and complete evidence. Everything else is BLOCKED, or NEED_INFO if something
to run it with is missing.

'sandbox replay' runs the same again and compares.`,
		Example: `  sandbox gate run -- pytest -q
  sandbox gate seal wish.yaml
  sandbox gate run wish.lock.json --out gate.out
  sandbox gate verify gate.out`,
		Args: cobra.ArbitraryArgs,
		RunE: unknownOrHelp,

		SuggestionsMinimumDistance: 2,
	}
	cmd.AddCommand(newGateSealCommand(a), newGateRunCommand(a), newGateJudgeCommand(a), newGateVerifyCommand(a),
		newGateNormalizeCommand(a), newGateSchemaCommand(a))
	return cmd
}
