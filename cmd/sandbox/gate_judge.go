package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/render"
)

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

// noGate gives a folder that is no gate directory its hint.
func noGate(err error) error {
	var directory *gate.DirectoryError
	if errors.As(err, &directory) && directory.Hint() == "" {
		return &hintedError{err, "give the folder that a gate left, such as " + defaultOut}
	}
	return err
}
