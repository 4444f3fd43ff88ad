package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/normalize"
	"github.com/evalbox/evalbox/harness/gate/spec"
	"github.com/evalbox/evalbox/internal/render"
)

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

func newGateJudgeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "judge DIR",
		Short: "Judge a gate directory again",
		Long: `Make the verdict of a gate directory anew from its evidence, on any machine. Nothing
is run or changed; what is missing or was changed blocks.

The exit code is that of the verdict: 0 PASS, 1 BLOCKED, 3 NEED_INFO; 125 when DIR
cannot be read.`,
		Example: "  sandbox gate judge gate.out\n  sandbox gate judge gate.out --json | jq .findings",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.judgeGate(cmd.Context(), args[0]) },
	}
	a.settingFlags(cmd, false, "json")
	return cmd
}

func (a *app) judgeGate(ctx context.Context, dir string) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	v, err := gate.Judge(ctx, dir)
	if err != nil {
		return noGate(err)
	}
	a.code = gateCode(v)
	if s.JSON {
		return a.printJSON(v)
	}
	for _, line := range render.Findings(v, a.repeatFlags) {
		if err := a.print("%s\n", line); err != nil {
			return err
		}
	}
	return a.print("%s\n", statusLine(v))
}

// statusLine is a verdict in one line.
func statusLine(v evidence.Verdict) string {
	if v.Status == evidence.Pass {
		return string(v.Status)
	}
	return string(v.Status) + ": " + string(v.StopReason)
}

// noGate gives an error about a gate directory a hint.
func noGate(err error) error {
	var directory *gate.DirectoryError
	if errors.As(err, &directory) && directory.Hint() == "" {
		return &hintedError{err, "give the folder that a gate left, such as " + defaultOut}
	}
	return err
}

// normalizeFlags are the flags of `gate normalize`.
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

func newGateSchemaCommand(a *app) *cobra.Command {
	return a.SchemaCommand(&cobra.Command{
		Use:     "schema [--lock]",
		Short:   "Print the JSON Schema of wishes or of their locks",
		Long:    "Print the JSON Schema (draft 2020-12) of wishes, or with --lock that of sealed ones.",
		Example: "  sandbox gate schema > wish.schema.json\n  sandbox gate schema --lock",
	}, spec.SchemaJSON, "lock", "that of sealed wishes", spec.LockSchemaJSON)
}
