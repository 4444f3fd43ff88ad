package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
)

// batchJobs is how many programs run at once on both sides.
const batchJobs = 2

// batch compares the rate of a batch of scripts that do nothing with that of the same
// number of docker runs, with the same parallelism.
func (b bench) batch(ctx context.Context) ([]row, error) {
	dir := filepath.Join(filepath.Dir(b.cli.stateDir), "batch")
	scripts, err := writeBatch(dir, b.options.scripts)
	if err != nil {
		return nil, err
	}
	docker := func() (time.Duration, error) { return b.dockerBatch(ctx) }
	ours := func() (time.Duration, error) { return b.ourBatch(ctx, dir, scripts) }
	times, err := inTurn(b.options.batchPairs, docker, ours)
	if err != nil {
		return nil, err
	}
	rate := func(d time.Duration) string { return fmt.Sprintf("%.2f/s", float64(b.options.scripts)/d.Seconds()) }
	ratio := medianRatio(times[0], times[1])
	return []row{{
		what: fmt.Sprintf("sandbox batch -j %d, %d scripts, rate", batchJobs, b.options.scripts),
		ours: rate(median(times[1])), docker: rate(median(times[0])), ratio: ratioText(ratio), target: ">= 1.80 x", met: ratio >= 1.8,
	}}, nil
}

const batchTask = `competition_id: bench
task_type: tabular
data_modality: tabular
evaluation_metric: accuracy
metric_direction: maximize
description: Nothing.
`

// writeBatch writes a task, its data and n scripts.
func writeBatch(dir string, n int) (scripts []string, err error) {
	if err := os.MkdirAll(filepath.Join(dir, "input"), 0o755); err != nil {
		return nil, err
	}
	files := map[string]string{"task.yaml": batchTask, "input/data.csv": "id\n1\n"}
	for i := range n {
		name := "s" + strconv.Itoa(i) + ".py"
		scripts, files[name] = append(scripts, filepath.Join(dir, name)), "pass\n"
	}
	for name, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return scripts, err
}

func (b bench) ourBatch(ctx context.Context, dir string, scripts []string) (time.Duration, error) {
	results, work := filepath.Join(dir, "results.jsonl"), filepath.Join(dir, "work")
	if err := errors.Join(os.RemoveAll(results), os.RemoveAll(work)); err != nil {
		return 0, err
	}
	cmd := b.cli.command(ctx, nil, "true")
	cmd.Args = append([]string{b.cli.program, "batch", "--state-dir", b.cli.stateDir, "--task", filepath.Join(dir, "task.yaml"),
		"--jobs", strconv.Itoa(batchJobs), "--workspace", work, "--results", results, "--quiet"}, scripts...)
	return timed(cmd)
}

// dockerBatch starts the next docker run as soon as one has ended, as xargs -P does.
func (b bench) dockerBatch(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(batchJobs)
	for range b.options.scripts {
		group.Go(func() error {
			_, err := timed(b.docker.command(ctx, "python3", "-c", "pass"))
			return err
		})
	}
	err := group.Wait()
	return time.Since(began), err
}
