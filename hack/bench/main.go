//go:build linux

// Command bench measures what a run costs, beside other ways to start the same program under
// the same restrictions:
//
//	go -C hack run ./bench [-case pass,import] [-n 20] [-json FILE]
//	go -C hack run ./bench -publish FILE...
//
// Paths are relative to hack.
//
// Every figure of a case is measured in the same process in turn, so that other load on the
// machine affects all of them, and what is printed are ratios. The command line of docker run
// is built from the plan that `sandbox run --dry-run` prints; the bundle of runc and gVisor is
// the one of a container of evalbox. So the sides cannot drift apart. Nothing is left behind.
//
// With -publish it writes docs/performance.md's figures and drawings from files of -json.
//
// It needs root, and the tools of `hack/setup.sh bench-tools`. It exits with 0 even if targets
// are missed, and with 1 if it could not measure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// budget bounds the whole program, in case a run hangs.
const budget = 90 * time.Minute

type options struct {
	cases         string
	rounds        int
	sandbox, json string
	publish       bool
}

func main() {
	var o options
	flag.StringVar(&o.cases, "case", "", "the `cases` to measure, with commas (default all: "+strings.Join(caseNames(), ",")+")")
	flag.IntVar(&o.rounds, "n", 20, "`number` of times that each side is measured")
	flag.StringVar(&o.sandbox, "sandbox", "../bin/sandbox", "the `program` to measure")
	flag.StringVar(&o.json, "json", "", "write all samples to this `file`")
	flag.BoolVar(&o.publish, "publish", false, "write docs/performance from the files of -json that are named, one for each engine")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	if err := run(ctx, o, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1) //nolint:gocritic // run has cleaned up
	}
}

func run(ctx context.Context, o options, files []string) error {
	if o.publish {
		return publish(documents, files)
	}
	if len(files) > 0 {
		return fmt.Errorf("unexpected argument %q; files come with -publish", files[0])
	}
	chosen, err := o.chosen()
	if err != nil {
		return err
	}
	r, err := measure(ctx, o, chosen)
	if err != nil {
		return err
	}
	if o.json != "" {
		if err := r.write(o.json); err != nil {
			return err
		}
	}
	return r.print(os.Stdout)
}

// chosen returns the cases to measure.
func (o options) chosen() ([]benchCase, error) {
	if o.rounds < 1 {
		return nil, errors.New("-n must be at least 1")
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("runc and gVisor need root: run it through make bench, or with sudo")
	}
	if _, err := os.Stat(o.sandbox); err != nil {
		return nil, fmt.Errorf("program %s is not there; make it with: make build", o.sandbox)
	}
	if o.cases == "" {
		return cases, nil
	}
	var chosen []benchCase
	for _, name := range strings.Split(o.cases, ",") {
		i := slices.Index(caseNames(), name)
		if i < 0 {
			return nil, fmt.Errorf("-case: %q is none of %s", name, strings.Join(caseNames(), ", "))
		}
		chosen = append(chosen, cases[i])
	}
	return chosen, nil
}

func caseNames() []string {
	var names []string
	for _, c := range cases {
		names = append(names, c.name)
	}
	return names
}
