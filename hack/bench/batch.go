//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
)

const (
	// batchScripts are run on both sides, batchJobs at a time.
	batchScripts, batchJobs = 200, 2
)

const batchTask = `competition_id: bench
task_type: tabular
data_modality: tabular
evaluation_metric: accuracy
metric_direction: maximize
description: Nothing.
`

// batch compares a batch of scripts that do nothing with the same number of docker runs.
// Each sample is the time of one script.
func (b *bench) batch(ctx context.Context, c *oneCase, rounds int) error {
	dir := filepath.Join(b.dir, "batch")
	scripts, err := writeBatch(dir)
	if err != nil {
		return err
	}
	final, remove, err := b.final()
	if err != nil {
		return err
	}
	defer func() { _ = remove() }() // b.dir is deleted as well
	ours := func(ctx context.Context, _ task) (sample, error) { return b.ourBatch(ctx, dir, scripts) }
	xargs := func(ctx context.Context, _ task) (sample, error) {
		args := append([]string{"-P", strconv.Itoa(batchJobs), "-n", "1", "docker"}, b.docker.run(b.empty, final, "", "python3", "-c", "pass")...)
		cmd := exec.CommandContext(ctx, "xargs", args...)
		cmd.Stdin = strings.NewReader(strings.Repeat("x\n", batchScripts))
		return timed(cmd)
	}
	err = b.inTurn(ctx, c, rounds, task{}, []side{{name: sideBatch, run: ours}, {name: sideXargs, run: xargs}})
	c.divide(batchScripts)
	return err
}

// writeBatch writes a task, its data and the scripts.
func writeBatch(dir string) (scripts []string, err error) {
	if err := os.MkdirAll(filepath.Join(dir, "input"), 0o755); err != nil {
		return nil, err
	}
	files := map[string]string{"task.yaml": batchTask, "input/data.csv": "id\n1\n"}
	for i := range batchScripts {
		name := "s" + strconv.Itoa(i) + ".py"
		scripts, files[name] = append(scripts, filepath.Join(dir, name)), "pass\n"
	}
	for name, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return scripts, err
}

func (b *bench) ourBatch(ctx context.Context, dir string, scripts []string) (s sample, err error) {
	results, work := filepath.Join(dir, "results.jsonl"), filepath.Join(dir, "work")
	if err := errors.Join(os.RemoveAll(results), os.RemoveAll(work)); err != nil {
		return s, err
	}
	args := []string{"--task", filepath.Join(dir, "task.yaml"), "--jobs", strconv.Itoa(batchJobs), "--workspace", work,
		"--results", results, "--quiet"}
	began := time.Now()
	if s, err = timed(b.cli.command(ctx, "batch", append(args, scripts...)...)); err != nil {
		return s, err
	}
	err = b.settle(ctx) // docker run returns after the removal
	s.took = time.Since(began)
	return s, err
}

// growth compares runs of processes, and in state directories, that have had 10, 100 and 1,000
// runs.
func (b *bench) growth(ctx context.Context, c *oneCase, rounds int) error {
	t := task{program: []string{"python3", "-c", "pass"}}
	var sides []side
	for _, had := range []struct {
		name string
		runs int
	}{{sideTen, 10}, {sideHundred, 100}, {sideThousand, 1000}} {
		runner, err := b.runner(fmt.Sprintf("growth-%d", had.runs))
		if err != nil {
			return err
		}
		group, running := errgroup.WithContext(ctx)
		group.SetLimit(2)
		for range had.runs {
			group.Go(func() error { _, err := inProcess(running, runner, b.request(t)); return err })
		}
		if err := group.Wait(); err != nil {
			return err
		}
		sides = append(sides, side{name: had.name, run: func(ctx context.Context, t task) (sample, error) { return inProcess(ctx, runner, b.request(t)) }})
	}
	if err := b.settle(ctx); err != nil {
		return err
	}
	return b.inTurn(ctx, c, rounds, t, sides)
}

func (b *bench) waitingMemory(ctx context.Context, c *oneCase, rounds int) error {
	return b.waiting(ctx, rounds, func(name string, kib, _ float64) { c.add(name, kib) })
}

func (b *bench) waitingGoroutines(ctx context.Context, c *oneCase, rounds int) error {
	return b.waiting(ctx, rounds, func(name string, _, goroutines float64) { c.add(name, goroutines) })
}

// waiting measures what each of many runs costs whose programs wait, without an engine.
func (b *bench) waiting(ctx context.Context, rounds int, add func(name string, kib, goroutines float64)) error {
	for range rounds {
		for _, many := range []struct {
			name string
			runs int
		}{{sideTen, 10}, {sideThousand, 1000}} {
			kib, goroutines, err := b.wait(ctx, many.runs)
			if err != nil {
				return err
			}
			add(many.name, kib, goroutines)
		}
	}
	return nil
}

// wait returns the memory and the goroutines of each of n waiting runs.
func (b *bench) wait(ctx context.Context, n int) (kib, goroutines float64, err error) {
	dir, err := os.MkdirTemp(b.dir, "waiting-*")
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var started atomic.Int64
	all, end := make(chan struct{}), make(chan struct{})
	fake := enginetest.NewFake(func(*enginetest.Program) int {
		if started.Add(1) == int64(n) {
			close(all)
		}
		<-end
		return 0
	})
	runner, err := sandbox.New(sandbox.WithEngine(fake), sandbox.WithStateDir(dir))
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, runner.Close()) }()
	memoryBefore, goroutinesBefore := inUse()
	group, running := errgroup.WithContext(ctx)
	for range n {
		group.Go(func() error {
			_, err := inProcess(running, runner, b.request(task{program: []string{"python3", "-c", "pass"}}))
			return err
		})
	}
	select {
	case <-all:
		memory, count := inUse()
		kib, goroutines = (memory-memoryBefore)/float64(n)/1024, float64(count-goroutinesBefore)/float64(n)
	case <-running.Done():
	}
	close(end)
	return kib, goroutines, group.Wait()
}

// inUse returns the bytes of heap and stacks, and the number of goroutines, of this process.
func inUse() (float64, int) {
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return float64(memory.HeapAlloc + memory.StackInuse), runtime.NumGoroutine()
}
