// Command sandbox runs one untrusted program in one fresh container and reports
// exactly what happened.
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

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/cmd/sandbox/root"
)

func main() { os.Exit(start()) }

func start() int {
	runs := &cli.Runs{}
	ctx, kill, release := cli.Interrupts(context.Background(), runs, os.Exit)
	return Run(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Kill: kill, Ended: release, Runs: runs})
}

// Run runs one command line, without the program's name, and returns the exit
// code. It reads the environment and the current directory, and never exits.
func Run(ctx context.Context, args []string, streams cli.Streams) int {
	a := cli.New(streams)
	return a.Execute(ctx, root.New(a), args)
}
