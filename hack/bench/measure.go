package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	engine "github.com/evalbox/evalbox/sandbox/engine/docker"
)

// cold compares the time and the processor time of a program that does nothing.
func (b bench) cold(ctx context.Context) ([]row, error) {
	program := []string{"python3", "-c", "pass"}
	docker := func() (time.Duration, error) { return timed(b.docker.command(ctx, program...)) }
	ours := b.settled(ctx, func() (time.Duration, error) { return timed(b.cli.command(ctx, []string{"--quiet"}, program...)) })
	library := b.settled(ctx, func() (time.Duration, error) { return b.inProcess(ctx, program) })

	times, err := inTurn(b.options.pairs, docker, ours, library)
	if err != nil {
		return nil, err
	}
	rows := []row{
		compared("library: Run called, result on disk", times[2], times[0], b.target(0.5, 0.65)),
		compared("sandbox run -- python3 -c pass", times[1], times[0], b.target(0.6, 0.75)),
	}
	throughput, err := b.throughput(ctx, program)
	return append(rows, throughput...), err
}

// target returns the limit for the oldest supported engine, or for a current one.
func (b bench) target(floor, current float64) float64 {
	if b.info.APIVersion == engine.OldestAPI {
		return floor
	}
	return current
}

// settled waits after each measurement until the engine has removed the container, so
// that the removal does not count against the next one.
func (b bench) settled(ctx context.Context, measure func() (time.Duration, error)) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		took, err := measure()
		return took, errors.Join(err, b.untilGone(ctx))
	}
}

// untilGone waits until the engine lists no evalbox container.
func (b bench) untilGone(ctx context.Context) error {
	for {
		left, err := b.library.Containers(ctx)
		if err != nil || len(left) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// inProcess measures one run through the library.
func (b bench) inProcess(ctx context.Context, program []string) (time.Duration, error) {
	began := time.Now()
	res, err := b.library.Run(ctx, sandbox.Request{Image: b.docker.image, Command: program})
	if err != nil {
		return 0, err
	}
	took := time.Since(began)
	if res.Status != result.StatusExited || res.ExitCode != 0 {
		return 0, fmt.Errorf("run %s: %s: %s", res.ID, res.Explanation, res.Stderr)
	}
	return took, nil
}

// throughput compares sequential runs until no container is left, in time and in the
// processor time of the whole machine.
func (b bench) throughput(ctx context.Context, program []string) ([]row, error) {
	const n = 10
	var cpu [2][]time.Duration
	side := func(i int, once func() error) func() (time.Duration, error) {
		return func() (time.Duration, error) {
			before, began := busy(), time.Now()
			for range n {
				if err := once(); err != nil {
					return 0, err
				}
			}
			err := b.untilGone(ctx)
			took := time.Since(began)
			cpu[i] = append(cpu[i], (busy()-before)/n)
			return took, err
		}
	}
	docker := side(0, func() error { _, err := timed(b.docker.command(ctx, program...)); return err })
	ours := side(1, func() error { _, err := b.inProcess(ctx, program); return err })
	times, err := inTurn(max(3, b.options.pairs/4), docker, ours)
	if err != nil {
		return nil, err
	}
	return []row{
		compared(fmt.Sprintf("%d runs until no container is left", n), times[1], times[0], 0.75),
		compared("processor time of the machine per run", cpu[1][1:], cpu[0][1:], 0.6), // without the first round
	}, nil
}

// output compares the throughput of a lot of output, and measures the controller's memory.
func (b bench) output(ctx context.Context) ([]row, error) {
	megabytes := b.options.megabytes
	program := []string{"python3", "-c", fmt.Sprintf(`import sys
block = (b"x" * 99 + b"\n") * 10000
for _ in range(%d): sys.stdout.buffer.write(block)`, megabytes)}

	var peak int64
	docker := func() (time.Duration, error) { return timed(b.docker.command(ctx, program...)) }
	ours := func() (time.Duration, error) {
		cmd := b.cli.command(ctx, nil, program...)
		took, err := timed(cmd)
		if err == nil {
			peak = max(peak, peakMemory(cmd.ProcessState))
		}
		return took, err
	}
	times, err := inTurn(b.options.outputPairs, docker, ours)
	if err != nil {
		return nil, err
	}
	rate := func(d time.Duration) string { return fmt.Sprintf("%.0f MB/s", float64(megabytes)/d.Seconds()) }
	ratio := 1 / medianRatio(times[1], times[0])
	name := fmt.Sprintf("%d MB of output", megabytes)
	return []row{
		{what: name + ", rate", ours: rate(median(times[1])), docker: rate(median(times[0])),
			ratio: ratioText(ratio), target: ">= 0.95 x", met: ratio >= 0.95},
		memoryRow(name+", controller memory", peak),
	}, nil
}

func memoryRow(name string, peak int64) row {
	const target = 48 << 20
	r := row{what: name, ours: "unknown", target: "< 48 MiB"}
	if peak > 0 {
		r.ours, r.met = fmt.Sprintf("%.1f MiB", float64(peak)/(1<<20)), peak < target
	}
	return r
}

// parsing times the search for a score, in a usual log and in one designed to be slow
// to search.
func (b bench) parsing(context.Context) ([]row, error) {
	const size = 1 << 20
	usual := strings.Repeat("epoch 17: loss 0.3141, accuracy 0.9265\n", size/39) + "Final Validation Performance: 0.9265\n"
	hostile := strings.Repeat("Final Validation Performance:"+strings.Repeat(" \n", 50)+strings.Repeat("1e", 50), size/229) +
		"\nFinal Validation Performance: 0.9265\n"
	var rows []row
	for _, text := range []struct{ name, text string }{{"usual log", usual}, {"hostile log", hostile}} {
		var times []time.Duration
		for range 20 {
			began := time.Now()
			score, ok := result.ParseScore(text.text)
			times = append(times, time.Since(began))
			if !ok || score != 0.9265 {
				return nil, fmt.Errorf("parsing the %s: the score is %v, want 0.9265", text.name, score)
			}
		}
		typical := median(times)
		rows = append(rows, row{what: "score in 1 MB, " + text.name, ours: milliseconds(typical),
			target: "< 10 ms", met: typical < 10*time.Millisecond})
	}
	return rows, nil
}

// inTurn measures all sides n times, one after the other, after one round that does
// not count. Each round begins with another side, because a run can slow down the
// next one. It returns the times of each side, by round.
func inTurn(n int, sides ...func() (time.Duration, error)) ([][]time.Duration, error) {
	times := make([][]time.Duration, len(sides))
	for round := range n + 1 {
		for i := range sides {
			i = (i + round) % len(sides)
			took, err := sides[i]()
			if err != nil {
				return nil, err
			}
			if round > 0 {
				times[i] = append(times[i], took)
			}
		}
	}
	return times, nil
}
