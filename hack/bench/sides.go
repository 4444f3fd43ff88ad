//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/record"
)

// sides are all ways to run a task.
func (b *bench) sides() []side {
	return []side{
		{name: sideCLI, run: func(ctx context.Context, t task) (sample, error) { return timed(b.cli.run(ctx, t, "--quiet")) }},
		{name: sideLibrary, run: func(ctx context.Context, t task) (sample, error) { return inProcess(ctx, b.library, b.request(t)) }},
		pooled(sidePool, sidePoolJob, b.pool, b.request),
		pooled(sidePreload, sidePreloadJob, b.preload, func(t task) sandbox.Request {
			request := b.request(t)
			request.Preload = slices.Concat(t.preload, []string{"sys"})
			return request
		}),
		{name: sideKeeper, run: b.keptRun, ready: b.keptReady},
		{name: sideAgent, run: b.agentRun, ready: b.agentReady},
		{name: sideDocker, run: b.withFinal(b.dockerSide)},
		{name: sideExec, run: func(ctx context.Context, t task) (sample, error) {
			return timed(exec.CommandContext(ctx, "docker", append([]string{"exec", b.running}, t.program...)...))
		}},
		{name: sidePython, run: b.withFinal(b.pythonSide)},
		{name: sideRunc, run: b.withFinal(b.bundleSide("runc"))},
		{name: sideGVisor, run: b.withFinal(b.bundleSide("runsc", "--network=none"))},
		{name: sideBwrap, run: b.withFinal(b.bwrapSide)},
		{name: sideInside, run: func(_ context.Context, t task) (sample, error) { return b.inside.ask(t.program) }},
		{name: sideHost, run: b.hostSide},
	}
}

func (b *bench) request(t task) sandbox.Request {
	return sandbox.Request{Image: b.plan.Class.Image.ID, Command: t.program, Input: t.input, Limits: policy.Limits{Timeout: runTimeout}}
}

// runTimeout is the time limit of a run.
const runTimeout = time.Minute

// inProcess measures one run through the library: Run called, result on disk.
func inProcess(ctx context.Context, r *sandbox.Runner, request sandbox.Request) (sample, error) {
	var sent, reported time.Time
	began := time.Now()
	res, err := r.Run(ctx, request, sandbox.Hooks{
		Admit: func(context.Context) (func(), error) {
			return func() { reported = time.Now() }, nil // called when the program has ended
		},
		Started: func() { sent = time.Now() },
	})
	if err != nil {
		return sample{}, err
	}
	s := sample{took: time.Since(began), job: reported.Sub(sent)}
	if res.Status != result.StatusExited || res.ExitCode != 0 {
		return sample{}, fmt.Errorf("run %s: %s: %s", res.ID, res.Explanation, res.Stderr)
	}
	s.cold = whyCold(res)
	return s, nil
}

// whyCold says why a run did not have what should have waited for it; empty if it had.
func whyCold(res *result.Result) string {
	switch {
	case res.Pool != nil && !res.Pool.Waited:
		return res.Pool.Reason
	case res.Preload != nil && !res.Preload.Used:
		return res.Preload.Reason
	}
	return ""
}

// pooled is a runner with a container that waits for the next run.
func pooled(name, job string, r *sandbox.Runner, request func(task) sandbox.Request) side {
	return side{
		name: name, job: job,
		run:   func(ctx context.Context, t task) (sample, error) { return inProcess(ctx, r, request(t)) },
		ready: func(ctx context.Context, t task) error { return r.Warm(ctx, request(t), 1) },
	}
}

// forget deletes the records, so that the disk does not fill.
func (b *bench) forget() error {
	for _, dir := range []string{b.cli.stateDir, b.keeper.stateDir, b.library.Store().Dir(), b.agent.store.Dir(), b.pool.Store().Dir(), b.preload.Store().Dir()} {
		store, err := record.Open(dir)
		if err != nil {
			return err
		}
		ids, err := store.IDs()
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := store.Remove(id); err != nil {
				return err
			}
		}
	}
	return nil
}

// withFinal gives each run a directory for its outputs, which is made before the measurement
// and deleted after it.
func (b *bench) withFinal(run func(ctx context.Context, t task, final string) (sample, error)) func(context.Context, task) (sample, error) {
	return func(ctx context.Context, t task) (s sample, err error) {
		final, remove, err := b.final()
		if err != nil {
			return s, err
		}
		defer func() { err = errors.Join(err, remove()) }()
		return run(ctx, t, final)
	}
}

// bundleSide runs the bundle of a container of evalbox with a runtime.
func (b *bench) bundleSide(runtime string, flags ...string) func(context.Context, task, string) (sample, error) {
	return func(ctx context.Context, t task, final string) (s sample, err error) {
		id := filepath.Base(b.dir) + "-" + filepath.Base(final)
		bundle := filepath.Join(b.dir, "bundle")
		text, err := json.Marshal(b.held.bundle(id, final, t))
		if err != nil {
			return s, err
		}
		if err := errors.Join(os.MkdirAll(bundle, 0o700), os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o600)); err != nil {
			return s, err
		}
		arguments := func(words ...string) []string {
			return append(append([]string{"--root", filepath.Join(b.dir, runtime)}, flags...), words...)
		}
		s, err = timed(exec.CommandContext(ctx, runtime, arguments("run", "--bundle", bundle, id)...))
		if err != nil {
			// A killed command leaves its container.
			remove := exec.CommandContext(context.WithoutCancel(ctx), runtime, arguments("delete", "--force", id)...)
			return s, errors.Join(err, remove.Run())
		}
		return s, nil
	}
}

// bwrapSide runs bubblewrap with what it can take over of the bundle. It has no cgroup, no
// resource limits and no seccomp profile.
func (b *bench) bwrapSide(ctx context.Context, t task, final string) (sample, error) {
	oci := b.held.bundle("", final, t)
	user := oci.Process.User
	args := []string{
		"--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", oci.Hostname,
		"--uid", fmt.Sprint(user.UID), "--gid", fmt.Sprint(user.GID),
		"--ro-bind", oci.Root.Path, "/", "--proc", "/proc", "--dev", "/dev",
	}
	for _, m := range oci.Mounts {
		below := strings.HasPrefix(m.Destination, "/work") || m.Destination == "/tmp" || m.Destination == "/dev/shm"
		switch {
		case m.Type == "tmpfs" && below:
			args = append(args, "--tmpfs", m.Destination)
		case m.Type == "bind" && below && slices.Contains(m.Options, "ro"):
			args = append(args, "--ro-bind", m.Source, m.Destination)
		case m.Type == "bind" && below:
			args = append(args, "--bind", m.Source, m.Destination)
		}
	}
	args = append(args, "--chdir", oci.Process.Cwd, "--clearenv")
	for _, pair := range oci.Process.Env {
		name, value, _ := strings.Cut(pair, "=")
		args = append(args, "--setenv", name, value)
	}
	return timed(exec.CommandContext(ctx, "bwrap", append(args, t.program...)...))
}

// hostSide runs the program with the image's own Python, without any restriction but the
// directory that is its root.
func (b *bench) hostSide(ctx context.Context, t task) (sample, error) {
	cmd := exec.CommandContext(ctx, "/usr/bin/"+t.program[0], t.program[1:]...)
	cmd.Dir, cmd.Env = "/", b.held.oci.Process.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: b.held.oci.Root.Path}
	return timed(cmd)
}

// helper is a program in Python that answers each line of JSON with the nanoseconds that it
// measured.
type helper struct {
	in     io.Writer
	out    *bufio.Scanner
	stderr bytes.Buffer
}

//go:embed spawn.py
var spawnPy string

//go:embed containers_run.py
var containersRunPy string

// startHelpers starts what has to be there before the first run.
func (b *bench) startHelpers(ctx context.Context) (err error) {
	// A container for docker exec.
	b.running = b.docker.name + "-running"
	args := b.docker.run(b.dir, b.dir, b.running, "sleep", "infinity")
	if _, err = timed(exec.CommandContext(ctx, "docker", append([]string{args[0], "--detach"}, args[1:]...)...)); err != nil {
		return err
	}
	args = b.docker.run(b.dir, b.dir, b.docker.name+"-inside", "python3", "-c", spawnPy)
	b.inside, err = b.startHelper(exec.CommandContext(ctx, "docker", append([]string{args[0], "--interactive"}, args[1:]...)...))
	if err != nil {
		return err
	}
	paths, err := filepath.Glob(filepath.Join(tools, "usr", "lib", "python3*"))
	if err != nil {
		return err
	}
	paths = append(paths, filepath.Join(tools, "usr", "lib", "python3", "dist-packages"))
	cmd := exec.CommandContext(ctx, "/usr/bin/python3", "-c", containersRunPy)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+strings.Join(paths, ":"))
	b.python, err = b.startHelper(cmd)
	return err
}

func (b *bench) startHelper(cmd *exec.Cmd) (*helper, error) {
	h := &helper{}
	cmd.Stderr = &h.stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	h.in, h.out = in, bufio.NewScanner(out)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b.closers = append(b.closers, func() error {
		_ = in.Close() // it ends with its input; it may have ended
		_ = cmd.Wait() // it may have been canceled
		return nil
	})
	return h, nil
}

// ask sends a line of JSON and reads how long that took.
func (h *helper) ask(question any) (sample, error) {
	text, err := json.Marshal(question)
	if err != nil {
		return sample{}, err
	}
	if _, err := h.in.Write(append(text, '\n')); err != nil {
		return sample{}, fmt.Errorf("%w: %s", err, &h.stderr)
	}
	if !h.out.Scan() {
		return sample{}, fmt.Errorf("no answer: %w: %s", errors.Join(io.ErrUnexpectedEOF, h.out.Err()), &h.stderr)
	}
	ns, err := strconv.ParseInt(h.out.Text(), 10, 64)
	return sample{took: time.Duration(ns)}, err
}
