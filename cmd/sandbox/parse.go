package main

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/result"
)

// parseFlags describe output that was produced elsewhere.
type parseFlags struct {
	stdout, stderr string
	exitCode       int
	timedOut       bool
	duration       time.Duration
}

func newParseCommand(a *app) *cobra.Command {
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
			given := cmd.Flags().Changed
			for _, name := range []string{"stdout", "stderr", "exit-code"} {
				if !given(name) && !(name == "exit-code" && f.timedOut) {
					return usagef(cmd.CommandPath(), "parse: --%s is missing", name)
				}
			}
			if f.stdout == "-" && f.stderr == "-" {
				return usagef(cmd.CommandPath(), "parse: only one of --stdout and --stderr can be -")
			}
			return a.parse(f)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.stdout, "stdout", "", "`file` with what the script printed")
	flags.StringVar(&f.stderr, "stderr", "", "`file` with its errors")
	flags.IntVar(&f.exitCode, "exit-code", -1, "its exit code")
	flags.BoolVar(&f.timedOut, "timed-out", false, "a time limit ended it")
	flags.Var(&durationFlag{&f.duration}, "duration", "how long it ran, such as 1.5s; a bare number is seconds")
	return cmd
}

// durationFlag reads durations as settings do.
type durationFlag struct{ target *time.Duration }

func (f *durationFlag) String() string {
	if f.target == nil || *f.target == 0 {
		return "" // the zero value is not shown
	}
	return f.target.String()
}

func (f *durationFlag) Set(text string) error {
	d, err := settings.ReadDuration(text)
	if err == nil && d < 0 {
		err = errors.New("must not be negative")
	}
	*f.target = d
	return err
}

func (f *durationFlag) Type() string { return "duration" }

func (a *app) parse(f parseFlags) error {
	stdout, err := a.readStream(f.stdout)
	if err != nil {
		return err
	}
	stderr, err := a.readStream(f.stderr)
	if err != nil {
		return err
	}
	return a.printJSON(result.BuildEvaluation(result.ExecutionRawResult{
		Stdout: result.DecodeUTF8(stdout), Stderr: result.DecodeUTF8(stderr),
		ExitCode: f.exitCode, DurationSeconds: f.duration.Seconds(), TimedOut: f.timedOut,
	}))
}

// maxParsed bounds a stream that is parsed, in bytes, far above the limit of a run.
const maxParsed = 512 << 20

func (a *app) readStream(name string) ([]byte, error) {
	source := a.streams.In
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, &fileError{fileStream, name, err}
		}
		defer file.Close()
		source = file
	}
	data, err := io.ReadAll(io.LimitReader(source, maxParsed+1))
	if err == nil && len(data) > maxParsed {
		err = errors.New("has more than 512 MiB")
	}
	if err != nil {
		return nil, &fileError{fileStream, name, err}
	}
	return data, nil
}
