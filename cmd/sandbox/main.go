// Command sandbox runs one untrusted program in one fresh container and says
// truthfully what happened.
//
//	sandbox run --input data train.py
//	sandbox run -- python3 -c 'print(1)'
//
// Run `sandbox --help` for all commands, and `sandbox config` for every setting
// and where it came from. The exit codes are listed at [exitCode].
package main

import (
	"context"
	"errors"
	"io"
	"os"
)

func main() { os.Exit(start()) }

func start() int {
	runs := &runsInFlight{}
	ctx, kill, release, stop := interrupts(context.Background(), runs, os.Exit)
	defer stop()
	return Run(ctx, os.Args[1:], Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Kill: kill, Ended: release, runs: runs})
}

// Streams connect a command to its caller.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Kill is closed when the caller, having ended the context, does not want
	// to wait for the program's grace period either. It may be nil.
	Kill <-chan struct{}
	// Ended is called when a run has ended and only its output is left: an
	// interruption may then end the process. It may be nil.
	Ended func()

	// runs counts the runs that heed Kill; it may be nil.
	runs *runsInFlight
}

// Run runs one command line, without the program's name, and returns the exit
// code. It reads the environment and the current directory, and never exits.
func Run(ctx context.Context, args []string, streams Streams) int {
	a := &app{streams: streams, environ: os.Environ()}
	a.errTerminal, a.outTerminal = isTerminal(streams.Err), isTerminal(streams.Out)
	a.inTerminal = isTerminal(streams.In)
	root := newRootCommand(a)
	root.SetArgs(args)
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	err := root.ExecuteContext(ctx)
	if errors.Is(err, errReaderGone) {
		return a.code
	}
	if err != nil {
		if a.code == 0 {
			a.code = exitCode(nil, err)
		}
		a.report(interrupted(ctx, err))
	}
	return a.code
}
