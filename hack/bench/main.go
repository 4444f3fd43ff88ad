// Command bench measures the cost of a run, compares it with docker run under the
// same restrictions, and prints each figure with its target:
//
//	go run ./hack/bench [-n 20] [-megabytes 100] [-batch-n 5] [-scripts 40]
//
// The docker command line is built from the plan that `sandbox run --dry-run`
// prints, so the two sides cannot drift apart. The sides are measured in turn, so
// that other load on the machine affects both. Nothing is left behind.
//
// It exits with 0 even if targets are missed, and with 1 if it could not measure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine"
	boxdocker "github.com/evalbox/evalbox/sandbox/engine/docker"
)

// budget bounds the whole program, in case a run hangs.
const budget = 10 * time.Minute

func main() {
	options := options{}
	flag.IntVar(&options.pairs, "n", 20, "`number` of cold runs of each kind")
	flag.IntVar(&options.outputPairs, "output-n", 3, "`number` of runs of each kind that print a lot")
	flag.IntVar(&options.megabytes, "megabytes", 100, "how much those print, in `MB`")
	flag.IntVar(&options.batchPairs, "batch-n", 5, "`number` of batches of each kind")
	flag.IntVar(&options.scripts, "scripts", 40, "`number` of scripts in a batch")
	flag.StringVar(&options.sandbox, "sandbox", "bin/sandbox", "the `program` to measure")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	if err := run(ctx, options); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1) //nolint:gocritic // run has cleaned up
	}
}

type options struct {
	pairs, outputPairs, megabytes int
	batchPairs, scripts           int
	sandbox                       string
}

func (o options) check() error {
	if o.pairs < 1 || o.outputPairs < 1 || o.megabytes < 1 || o.batchPairs < 1 || o.scripts < 1 {
		return errors.New("all numbers must be at least 1")
	}
	if _, err := os.Stat(o.sandbox); err != nil {
		return fmt.Errorf("program %s is not there; make it with: make build", o.sandbox)
	}
	return nil
}

// run measures everything and prints one table.
func run(ctx context.Context, o options) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	// Everything that the measured runs write goes here, and is deleted at the end.
	dir, err := os.MkdirTemp("", "evalbox-bench-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	program, err := filepath.Abs(o.sandbox)
	if err != nil {
		return err
	}
	b := bench{options: o, cli: cli{program: program, stateDir: filepath.Join(dir, "state")}}
	if b.docker, err = newDocker(ctx, b.cli, dir); err != nil {
		return err
	}
	engine, err := boxdocker.FromEnv()
	if err != nil {
		return err
	}
	b.library, err = sandbox.New(sandbox.WithEngine(engine), sandbox.WithStateDir(b.cli.stateDir))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.library.Close()) }()

	info, err := b.library.Info(ctx)
	if err != nil {
		return err
	}
	b.info = info
	fmt.Printf("%s %s, API %s, %s, cgroup v%d, %s, %d processors\n\n", info.Name, info.Version, info.APIVersion,
		info.StorageDriver, info.Host.CgroupVersion, info.Host.DefaultRuntime, info.Host.CPUs)

	rows, err := b.all(ctx)
	if err != nil {
		return err
	}
	return printTable(os.Stdout, rows)
}

// bench is both sides of the comparison.
type bench struct {
	options options
	cli     cli
	docker  docker
	library *sandbox.Runner
	info    engine.Info
}

func (b bench) all(ctx context.Context) ([]row, error) {
	var rows []row
	for _, measure := range []func(context.Context) ([]row, error){b.cold, b.batch, b.output, b.init, b.parsing} {
		more, err := measure(ctx)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}
