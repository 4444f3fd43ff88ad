//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// tools is where hack/setup.sh unpacks what is measured beside evalbox.
const tools = "../.cache/bench-tools"

// bench has what the sides share.
type bench struct {
	options options
	// dir has everything that is written, and is deleted at the end.
	dir string
	// empty is an empty directory of inputs.
	empty string
	cli   cli
	// keeper is the CLI with a state directory for which a process keeps a pool.
	keeper cli
	plan   spec.Spec
	// engine lists the containers, also those that wait or are about to go.
	engine  engine.Engine
	library *sandbox.Runner
	// agent is a client of the MCP server.
	agent *agent
	// pool and preload are runners with a container that waits, in preload with an interpreter.
	pool, preload *sandbox.Runner
	held          *held
	docker        dockerRun
	// running is a container of docker run, for docker exec.
	running string
	// python calls containers.run of python3-docker, and inside starts processes in a
	// container.
	python, inside *helper
	// finals counts the directories for outputs.
	finals  int
	closers []func() error
}

// measure measures the chosen cases.
func measure(ctx context.Context, o options, chosen []benchCase) (r report, err error) {
	b := &bench{options: o}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.open(ctx); err != nil {
		return report{}, err
	}
	if r, err = b.newReport(ctx); err != nil {
		return report{}, err
	}
	fmt.Fprintf(os.Stderr, "bench: %s\n", r.title())
	for _, c := range chosen {
		began := time.Now()
		measured, err := b.measure(ctx, c)
		if err != nil {
			return report{}, fmt.Errorf("%s: %w", c.name, err)
		}
		r.Cases = append(r.Cases, measured)
		fmt.Fprintf(os.Stderr, "bench: %s took %s\n", c.name, time.Since(began).Round(time.Second))
	}
	return r, nil
}

// open prepares what the sides need.
func (b *bench) open(ctx context.Context) error {
	path, err := filepath.Abs(filepath.Join(tools, "usr", "bin"))
	if err != nil {
		return err
	}
	if err := os.Setenv("PATH", os.Getenv("PATH")+":"+path); err != nil {
		return err
	}
	for _, tool := range []string{"docker", "runc", "bwrap", "runsc", "xargs"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is not there; get it with: hack/setup.sh test-tools bench-tools", tool)
		}
	}
	if b.dir, err = os.MkdirTemp("", "evalbox-bench-*"); err != nil {
		return err
	}
	b.closers = append(b.closers, func() error { return os.RemoveAll(b.dir) })
	// The program's user reads and writes below it.
	if err := os.Chmod(b.dir, 0o711); err != nil {
		return err
	}
	program, err := filepath.Abs(b.options.sandbox)
	if err != nil {
		return err
	}
	b.cli = cli{program: program, stateDir: filepath.Join(b.dir, "cli")}
	if b.plan, err = b.cli.plan(ctx); err != nil {
		return err
	}
	b.empty = filepath.Join(b.dir, "empty")
	if err := os.Mkdir(b.empty, 0o755); err != nil {
		return err
	}
	if b.engine, err = docker.FromEnv(); err != nil {
		return err
	}
	b.closers = append(b.closers, b.engine.Close)
	if b.library, err = b.runner("library"); err != nil {
		return err
	}
	if b.pool, err = b.runner("pool", sandbox.WithPool(sandbox.Pool{Size: 1})); err != nil {
		return err
	}
	if b.preload, err = b.runner("preload", sandbox.WithPool(sandbox.Pool{Size: 1})); err != nil {
		return err
	}
	b.keeper = cli{program: program, stateDir: filepath.Join(b.dir, "keeper")}
	if err := b.startKeeper(ctx); err != nil {
		return err
	}
	if err := b.startAgent(ctx); err != nil {
		return err
	}
	if b.held, err = b.hold(ctx); err != nil {
		return err
	}
	if b.docker, err = b.newDocker(); err != nil {
		return err
	}
	b.closers = append(b.closers, b.removeContainers)
	return b.startHelpers(ctx)
}

// close undoes open, in reverse order.
func (b *bench) close() (err error) {
	for len(b.closers) > 0 {
		last := len(b.closers) - 1
		err = errors.Join(err, b.closers[last]())
		b.closers = b.closers[:last]
	}
	return err
}

// runner returns a runner with a connection and a state directory of its own.
func (b *bench) runner(name string, opts ...sandbox.Option) (*sandbox.Runner, error) {
	e, err := docker.FromEnv()
	if err != nil {
		return nil, err
	}
	r, err := sandbox.New(append([]sandbox.Option{sandbox.WithEngine(e), sandbox.WithStateDir(filepath.Join(b.dir, name))}, opts...)...)
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	b.closers = append(b.closers, r.Close)
	return r, nil
}

// settle waits until the engine has removed every container of evalbox that this benchmark
// started, except those that wait.
func (b *bench) settle(ctx context.Context) error {
	return poll(ctx, 10*time.Millisecond, func() (bool, error) {
		kept, err := b.kept()
		if err != nil {
			return false, err
		}
		found, err := b.engine.List(ctx)
		left := -kept.Waiting - b.pool.PoolStatus().Waiting - b.preload.PoolStatus().Waiting
		for _, c := range found {
			if strings.HasPrefix(c.Labels[spec.LabelState], b.dir) && (b.held == nil || c.Labels[spec.LabelRun] != b.held.id) && !b.agent.waits(c) {
				left++
			}
		}
		return left == 0, err
	})
}

// patience is how long the engine may take to remove or to prepare a container.
const patience = time.Minute

// poll waits until something is done. It asks so seldom that its processor time does not count.
func poll(ctx context.Context, every time.Duration, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("a container was neither removed nor prepared within "+patience.String()))
	defer cancel()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(every):
		}
	}
}

// final returns a new directory that every program may write, and a function that
// deletes it.
func (b *bench) final() (string, func() error, error) {
	b.finals++
	dir := filepath.Join(b.dir, fmt.Sprintf("final-%d", b.finals))
	// In bubblewrap the program is another user of the machine.
	err := cmp.Or(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777))
	return dir, func() error { return os.RemoveAll(dir) }, err
}

// timed runs a command with its stdout discarded, and returns what it took.
func timed(cmd *exec.Cmd) (sample, error) {
	// Without a writer, stdout is the null device itself, so that no pipe of the
	// benchmark is measured.
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return sample{}, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, stderr.Bytes())
	}
	s := sample{took: time.Since(began)}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		// The kernel includes the time before exec, when the process was a copy of this
		// one: the figure can be too high, but not too low.
		s.peakKiB = usage.Maxrss
	}
	return s, nil
}
