package evaluate

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/result"
)

// parseFlags describe output that was produced elsewhere.
type parseFlags struct {
	stdout, stderr string
	exitCode       int
	timedOut       bool
	duration       time.Duration
}

// NewParse returns the command `parse`.
func NewParse(a *cli.App) *cobra.Command {
	var f parseFlags
	cmd := &cobra.Command{
		Use:   "parse --stdout FILE --stderr FILE --exit-code N [--timed-out]",
		Short: "Evaluate output that was produced elsewhere",
		Long: `Find the score, the error and the traceback in the output of a script that was run
elsewhere, and print them as JSON. No container is involved.

FILE is - for stdin. Bytes that are not UTF-8 are replaced. With --timed-out the
exit code is -1 unless given.`,
		Example: `  sandbox parse --stdout out.log --stderr err.log --exit-code 1
  sandbox parse --stdout - --stderr /dev/null --exit-code 0 < out.log`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			required := []string{"stdout", "stderr", "exit-code"}
			if f.timedOut {
				required = required[:2]
			}
			if err := cli.Check(cmd, cli.Required(required...),
				cli.Wrong(f.stdout == "-" && f.stderr == "-", "only one of --stdout and --stderr can be -")); err != nil {
				return err
			}
			return parse(a, f)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.stdout, "stdout", "", "`file` with what the script printed")
	flags.StringVar(&f.stderr, "stderr", "", "`file` with its errors")
	flags.IntVar(&f.exitCode, "exit-code", -1, "its exit code")
	flags.BoolVar(&f.timedOut, "timed-out", false, "a time limit ended it")
	flags.Var(cli.Duration(&f.duration), "duration", "how long it ran, such as 1.5s; a bare number is seconds")
	return cmd
}

func parse(a *cli.App, f parseFlags) error {
	stdout, err := a.ReadStream(f.stdout)
	if err != nil {
		return err
	}
	stderr, err := a.ReadStream(f.stderr)
	if err != nil {
		return err
	}
	return a.PrintJSON(result.BuildEvaluation(result.ExecutionRawResult{
		Stdout: result.DecodeUTF8(stdout), Stderr: result.DecodeUTF8(stderr),
		ExitCode: f.exitCode, DurationSeconds: f.duration.Seconds(), TimedOut: f.timedOut,
	}))
}
