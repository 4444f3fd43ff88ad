//go:build linux

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// held is a container of evalbox that waits for its job as long as the benchmark takes. Its
// bundle is what runc, gVisor and bubblewrap are given.
type held struct {
	id  string
	oci *specs.Spec
	// init is the process ID of its init, and shim that of the process above it.
	init, shim int
}

// hold prepares a container of the default class.
func (b *bench) hold(ctx context.Context) (*held, error) {
	runner, err := b.runner("held")
	if err != nil {
		return nil, err
	}
	h := &held{id: record.NewID(time.Now())}
	waiting, ended := make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, err := runner.Run(ctx, sandbox.Request{ID: h.id, Image: b.plan.Class.Image.ID, Command: []string{"true"}}, sandbox.Hooks{
			Admit: func(ctx context.Context) (func(), error) {
				close(waiting)
				<-ctx.Done()
				return nil, ctx.Err()
			},
		})
		ended <- err
	}()
	select {
	case <-waiting:
	case err := <-ended:
		cancel()
		return nil, fmt.Errorf("preparing a container: %w", cmp.Or(err, errors.New("it ended before it was asked to")))
	}
	b.closers = append(b.closers, func() error {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	})
	return h, h.inspect(ctx)
}

// inspect finds the processes of the container and reads its bundle, from the directory
// where its shim was started.
func (h *held) inspect(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "docker", "inspect", "--format", "{{.State.Pid}}", spec.Job{RunID: h.id}.ContainerName()).Output()
	if err != nil {
		return err
	}
	if h.init, err = strconv.Atoi(strings.TrimSpace(string(out))); err != nil {
		return err
	}
	parent, err := statusOf(h.init, "PPid:")
	if err != nil {
		return err
	}
	h.shim = int(parent)
	dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", h.shim))
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return fmt.Errorf("the bundle of a container is not on this machine: %w", err)
	}
	if err := json.Unmarshal(text, &h.oci); err != nil {
		return err
	}
	if !filepath.IsAbs(h.oci.Root.Path) {
		h.oci.Root.Path = filepath.Join(dir, h.oci.Root.Path)
	}
	return nil
}

// bundle is what a runtime gets to run a task: the container's own, with the program in place of
// init, and with files of its own. Its cgroup is beside those of the engine.
func (h *held) bundle(id, final string, t task) specs.Spec {
	oci, process, linux := *h.oci, *h.oci.Process, *h.oci.Linux
	oci.Process, oci.Linux = &process, &linux
	process.Args, linux.CgroupsPath = t.program, filepath.Join(filepath.Dir(linux.CgroupsPath), id)
	oci.Mounts = slices.Clone(oci.Mounts)
	for i, m := range oci.Mounts {
		if n := slices.Index(m.Options, "rro"); n >= 0 {
			// Debian's gVisor does not know it, and below these mounts there are no others.
			oci.Mounts[i].Options = slices.Clone(m.Options)
			oci.Mounts[i].Options[n] = "ro"
		}
		switch {
		case m.Destination == spec.FinalDir:
			oci.Mounts[i].Source = final
		case m.Destination == spec.InputDir && t.input != "":
			oci.Mounts[i].Source = t.input
		}
	}
	return oci
}

// memory measures the resident memory of everything that one waiting container consists of.
func (b *bench) memory(_ context.Context, c *oneCase, _ int) error {
	processes := map[string]int{sideInit: b.held.init, sideShim: b.held.shim}
	// A root file system that is not in the kernel has a process of its own.
	if pid := processOf(b.held.oci.Root.Path); pid != 0 {
		processes[sideRootfs] = pid
	}
	var all float64
	for _, name := range []string{sideInit, sideShim, sideRootfs} {
		if pid := processes[name]; pid != 0 {
			kib, err := statusOf(pid, "VmRSS:")
			if err != nil {
				return err
			}
			c.add(name, float64(kib))
			all += float64(kib)
		}
	}
	c.add(sideContainer, all)
	return nil
}

// processOf returns the process that a path is the last argument of, or 0.
func processOf(path string) int {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is right
	for _, line := range lines {
		text, err := os.ReadFile(line)
		if err != nil || !strings.HasSuffix(string(text), "\x00"+path+"\x00") {
			continue // it has ended, or is another one
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(line)))
		if err == nil {
			return pid
		}
	}
	return 0
}

// statusOf reads a number from the status of a process (proc_pid_status(5)).
func statusOf(pid int, field string) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(string(text), "\n"+field)
	words := strings.Fields(rest)
	if !found || len(words) == 0 {
		return 0, fmt.Errorf("the status of process %d lacks %s", pid, field)
	}
	return strconv.ParseInt(words[0], 10, 64)
}
