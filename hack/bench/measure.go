//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sample is what one run of one side took.
type sample struct {
	took time.Duration
	// job, if not 0, is the time from the job sent to the report here.
	job time.Duration
	// cpu is the processor time of the whole machine, until nothing of the run was left.
	cpu time.Duration
	// peakKiB is the peak memory of a command.
	peakKiB int64
	// cold says why there was no container that was waiting; empty if there was or need not be.
	// The first run of a class has none.
	cold string
}

// side is one way to run a task.
type side struct {
	name string
	run  func(ctx context.Context, t task) (sample, error)
	// ready, if not nil, is called before each run, and again after it: a container is waiting
	// for the next.
	ready func(ctx context.Context, t task) error
	// job, if not empty, is the name for the time from the job sent to the report.
	job string
}

// measure measures one case.
func (b *bench) measure(ctx context.Context, c benchCase) (oneCase, error) {
	measured := oneCase{Name: c.name, What: c.what, Unit: c.unit, Against: c.against}
	rounds := b.options.rounds
	if c.rounds > 0 {
		rounds = min(rounds, c.rounds)
	}
	if c.own != nil {
		return measured, c.own(b, ctx, &measured, rounds)
	}
	t, err := c.task(b.dir)
	if err != nil {
		return measured, err
	}
	if t.input != "" {
		defer func() { _ = os.RemoveAll(t.input) }() // b.dir is deleted as well
	}
	var sides []side
	for _, name := range c.sides {
		i := slices.IndexFunc(b.sides(), func(s side) bool { return s.name == name })
		sides = append(sides, b.sides()[i])
	}
	return measured, b.inTurn(ctx, &measured, rounds, t, sides)
}

// inTurn measures all sides n times, one after the other, after one round that does not count.
// Each round begins with another side, because a run can slow down the next one.
func (b *bench) inTurn(ctx context.Context, c *oneCase, n int, t task, sides []side) error {
	for _, s := range sides {
		c.Sides = append(c.Sides, samples{Side: s.name})
		if s.job != "" {
			c.Sides = append(c.Sides, samples{Side: s.job})
		}
	}
	for round := range n + 1 {
		for i := range sides {
			s := sides[(i+round)%len(sides)]
			took, err := b.once(ctx, s, t)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if round == 0 {
				continue
			}
			if took.cold != "" {
				return fmt.Errorf("%s: no container was waiting: %s", s.name, took.cold)
			}
			c.addSample(s.name, took)
			if s.job != "" {
				c.add(s.job, milliseconds(took.job))
			}
		}
	}
	return nil
}

// once measures one run of one side, and returns when nothing of it is left.
func (b *bench) once(ctx context.Context, s side, t task) (sample, error) {
	if s.ready == nil {
		s.ready = func(ctx context.Context, _ task) error { return b.settle(ctx) }
	}
	if err := s.ready(ctx, t); err != nil {
		return sample{}, err
	}
	before := busy()
	took, err := s.run(ctx, t)
	if err != nil {
		return sample{}, err
	}
	if err := errors.Join(s.ready(ctx, t), b.settle(ctx)); err != nil {
		return sample{}, err
	}
	took.cpu = busy() - before
	return took, b.forget()
}

// addSample adds one run of a side.
func (c *oneCase) addSample(name string, s sample) {
	side := c.add(name, milliseconds(s.took))
	side.CPU = append(side.CPU, milliseconds(s.cpu))
	side.PeakKiB = max(side.PeakKiB, s.peakKiB)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// newReport describes what is measured.
func (b *bench) newReport(ctx context.Context) (r report, err error) {
	info, err := b.library.Info(ctx)
	if err != nil {
		return r, err
	}
	version, err := exec.CommandContext(ctx, b.cli.program, "--version").Output()
	if err != nil {
		return r, err
	}
	r.Schema, r.Date = reportSchema, time.Now().UTC().Format(time.DateOnly)
	r.Version, _, _ = strings.Cut(string(version), "\n") // the second line is the engine
	r.Machine.Processors, r.Machine.Kernel = info.Host.CPUs, info.Kernel
	e := &r.Engine
	e.Name, e.Version, e.API, e.Storage, e.Cgroup = info.Name, info.Version, info.APIVersion, info.StorageDriver, info.Host.CgroupVersion
	return r, nil
}

// busy returns the processor time that all processes and the kernel have used since
// boot (/proc/stat in proc(5), in hundredths of a second).
func busy() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var total time.Duration
	for i, field := range strings.Fields(line)[1:] {
		n, err := strconv.ParseInt(field, 10, 64)
		if idle := i == 3 || i == 4; err != nil || idle || i > 6 {
			continue // idle, iowait, and fields that are counted twice
		}
		total += time.Duration(n) * 10 * time.Millisecond
	}
	return total
}
