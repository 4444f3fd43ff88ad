//go:build linux

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
