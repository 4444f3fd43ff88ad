//go:build linux

// Command faults breaks runs on purpose and judges what is said of them: every step of a
// run by every fault. See docs/reliability.md.
//
//	hack/engine run floor go -C hack run ./faults [-steps a,b] [-faults a,b] [-n 1] [-labs 2] [-time 1h]
//	hack/engine run floor go -C hack run ./faults -soak 30m [-runs 1000] [-workers 16]
//
// It starts engines of its own, the first dockerd and containerd in PATH, and needs root.
// It prints tables, and exits with 1 if the result of a run was wrong, lost, left something
// behind or harmed something, or if a command fails for ever.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.steps, "steps", "", "only these `steps`, separated by commas")
	flag.StringVar(&o.faults, "faults", "", "only these `faults`, separated by commas")
	flag.IntVar(&o.repeat, "n", 1, "`number` of runs in each cell")
	flag.IntVar(&o.labs, "labs", 2, "`number` of engines at once")
	flag.BoolVar(&o.pool, "pool", false, "a container of a pool waits for each run; without the steps before that")
	flag.DurationVar(&o.budget, "time", time.Hour, "`time` after which no more cells begin")
	flag.StringVar(&o.log, "log", "", "`file` that gets one JSON line for each run")
	flag.DurationVar(&o.soak, "soak", 0, "soak instead: many runs, then mixed load for this `time`")
	flag.IntVar(&o.soakRuns, "runs", 1000, "`number` of runs of a soak")
	flag.IntVar(&o.workers, "workers", 16, "`number` of workers of those runs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	carryOut := campaign
	if o.soak > 0 {
		carryOut = soak
	}
	ok, err := carryOut(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
	}
	if err != nil || !ok {
		os.Exit(1) //nolint:gocritic // the campaign has cleaned up
	}
}

type options struct {
	steps, faults, log string
	pool               bool
	repeat, labs       int
	budget             time.Duration

	soak              time.Duration
	soakRuns, workers int
}

// order is one run to carry out.
type order struct {
	step    step
	fault   fault
	program program
}

// orders lists the runs of a campaign.
func (o options) orders() ([]order, error) {
	var all []order
	n := 0
	for range o.repeat {
		for _, g := range grids {
			for _, f := range g.faults {
				for _, s := range g.steps {
					if !named(o.steps, s.name) || !named(o.faults, f.name) || !f.applies(s) || o.pool && s.unpooled {
						continue
					}
					all = append(all, order{s, f, programs[n%len(programs)]})
					n++
				}
				n++ // so that no program keeps to a column
			}
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no fault of these can happen at these steps")
	}
	return all, nil
}

func named(list, name string) bool {
	return list == "" || slices.Contains(strings.Split(list, ","), name)
}

// campaign carries out all orders, prints the table, and reports whether the product held.
func campaign(ctx context.Context, o options) (ok bool, err error) {
	orders, err := o.orders()
	if err != nil {
		return false, err
	}
	bin, err := buildBinaries()
	if err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(bin.dir) }() // a leftover of the suite
	var log *json.Encoder
	if o.log != "" {
		file, err := os.OpenFile(o.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return false, err
		}
		defer file.Close()
		log = json.NewEncoder(file)
	}
	began := time.Now()
	queue := make(chan order)
	reports := make(chan report)
	var work sync.WaitGroup
	errs := make(chan error, o.labs)
	for range min(o.labs, len(orders)) {
		work.Go(func() { errs <- serve(ctx, bin, o.pool, queue, reports) })
	}
	go func() {
		defer close(queue)
		for _, each := range orders {
			if time.Since(began) > o.budget || ctx.Err() != nil {
				return
			}
			select {
			case queue <- each:
			case <-ctx.Done():
				return
			}
		}
	}()
	go func() {
		work.Wait()
		close(reports)
		close(errs)
	}()
	var all []report
	for r := range reports {
		all = append(all, r)
		if log != nil {
			_ = log.Encode(r) // it is only for people
		}
		if r.bad() || r.Err != "" {
			fmt.Printf("%s | %s | %s: %s %s %q %q %s\n%s\n", r.Fault, r.Step, r.Program, r.verdict, r.Why, r.Left, r.Harmed, r.Err, r.Log)
		}
	}
	for each := range errs {
		err = errors.Join(err, each)
	}
	for _, g := range grids {
		fmt.Print(g.table(all))
	}
	fmt.Printf("%s of %d in %v\n", tally(all), len(orders), time.Since(began).Round(time.Second))
	if o.pool {
		waited := 0
		for _, r := range all {
			if r.Waited {
				waited++
			}
		}
		fmt.Printf("%d results are of containers that had waited\n", waited)
	}
	return !slices.ContainsFunc(all, report.bad), err
}

// serve carries out orders on an engine of its own. The queue is drained whatever happens.
func serve(ctx context.Context, bin binaries, pool bool, queue <-chan order, reports chan<- report) error {
	l, err := newLab(ctx, bin)
	if err != nil {
		return err
	}
	l.pool = pool
	for each := range queue {
		r := l.run(ctx, each.step, each.fault, each.program)
		reports <- r
		if r.Err != "" {
			// Nobody knows what the engine is in.
			if err := l.close(); err != nil {
				return err
			}
			if l, err = newLab(ctx, bin); err != nil {
				return err
			}
			l.pool = pool
		}
	}
	return l.close()
}
