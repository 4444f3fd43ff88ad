package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/evalbox/evalbox/sandbox/spec"
)

// waitDelay is how long a canceled command may take to end.
const waitDelay = 15 * time.Second

// cli is evalbox's side: the built command, with its own state directory.
type cli struct{ program, stateDir string }

// command returns a run of the CLI with the shipped settings instead of the caller's.
func (c cli) command(ctx context.Context, flags []string, command ...string) *exec.Cmd {
	args := append([]string{"run", "--state-dir", c.stateDir}, flags...)
	cmd := exec.CommandContext(ctx, c.program, append(append(args, "--"), command...)...)
	cmd.Env = withoutSettings(os.Environ())
	// A timeout of the benchmark must not leave a container behind.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = waitDelay
	return cmd
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
func (c cli) plan(ctx context.Context, command ...string) (spec.Spec, error) {
	cmd := c.command(ctx, []string{"--dry-run"}, command...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return spec.Spec{}, fmt.Errorf("planning: %w\n%s", err, stderr.Bytes())
	}
	var planned spec.Spec
	if err := json.Unmarshal(out, &planned); err != nil {
		return spec.Spec{}, fmt.Errorf("reading the plan: %w", err)
	}
	return planned, nil
}

// timed runs a command with its stdout discarded, and returns how long it took.
func timed(cmd *exec.Cmd) (time.Duration, error) {
	// Without a writer, stdout is the null device itself, so that no pipe of the
	// benchmark is measured.
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, stderr.Bytes())
	}
	return time.Since(began), nil
}
