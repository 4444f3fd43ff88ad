//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// waitDelay is how long a canceled command may take to end.
const waitDelay = 15 * time.Second

// poolIdle is longer than the benchmark.
const poolIdle = 2 * budget

// cli is the built command, with its own state directory.
type cli struct{ program, stateDir string }

// command returns a command of the CLI with the shipped settings instead of the caller's.
func (c cli) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.program, append([]string{name, "--state-dir", c.stateDir}, args...)...)
	cmd.Env = withoutSettings(os.Environ())
	// A timeout of the benchmark must not leave a container behind.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = waitDelay
	return cmd
}

// run returns a run of a task.
func (c cli) run(ctx context.Context, t task, flags ...string) *exec.Cmd {
	if t.input != "" {
		flags = append(flags, "--input", t.input)
	}
	return c.command(ctx, "run", append(append(flags, "--"), t.program...)...)
}

// startKeeper starts a process that keeps a container ready for the command line.
func (b *bench) startKeeper(ctx context.Context) error {
	b.closers = append(b.closers, func() error {
		_, err := timed(b.keeper.command(context.Background(), "pool", "stop"))
		return err
	})
	_, err := timed(b.keeper.command(ctx, "pool", "start", "--size", "1", "--idle", poolIdle.String()))
	return err
}

// kept says what waits for the command line.
func (b *bench) kept() (sandbox.KeeperStatus, error) {
	store, err := record.Open(b.keeper.stateDir)
	if err != nil {
		return sandbox.KeeperStatus{}, err
	}
	status, err := sandbox.Keeper(store)
	if err == nil && status.Problem != "" {
		err = errors.New("the keeper: " + status.Problem)
	}
	return status, err
}

// keptReady waits until a container waits, unless there has been no run that says for what.
func (b *bench) keptReady(ctx context.Context, _ task) error {
	return poll(ctx, 50*time.Millisecond, func() (bool, error) { // both processes work for an answer
		status, err := b.kept()
		return status.Waiting > 0 || status.Taken+status.Cold == 0, err
	})
}

// keptRun is a run of the CLI that takes the container of the keeper.
func (b *bench) keptRun(ctx context.Context, t task) (sample, error) {
	s, err := timed(b.keeper.run(ctx, t, "--quiet"))
	if err != nil {
		return s, err
	}
	store, err := record.Open(b.keeper.stateDir)
	if err != nil {
		return s, err
	}
	ids, err := store.IDs()
	if err != nil {
		return s, err
	}
	for _, id := range ids { // the others have been forgotten
		run, err := store.Get(id)
		if err != nil {
			return s, err
		}
		if s.cold = whyCold(run.Result); run.Result.Pool == nil {
			s.cold = "no process keeps containers"
		}
	}
	return s, nil
}

func withoutSettings(environ []string) []string {
	var kept []string
	for _, pair := range environ {
		if !strings.HasPrefix(pair, "SANDBOX_") {
			kept = append(kept, pair)
		}
	}
	return kept
}

// plan returns the plan of a dry run.
func (c cli) plan(ctx context.Context) (spec.Spec, error) {
	cmd := c.run(ctx, task{program: []string{"true"}}, "--dry-run")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return spec.Spec{}, fmt.Errorf("planning: %w\n%s", err, stderr.Bytes())
	}
	var plan spec.Spec
	if err := json.Unmarshal(out, &plan); err != nil {
		return spec.Spec{}, fmt.Errorf("reading the plan: %w", err)
	}
	return plan, nil
}
