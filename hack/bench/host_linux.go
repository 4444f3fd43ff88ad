package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// init measures the container's PID 1: its size, its memory while a program runs, and
// the time from its start to its ready frame.
func (b bench) init(ctx context.Context) ([]row, error) {
	binary, err := wire.Init(runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	resident, err := b.initMemory(ctx)
	if err != nil {
		return nil, err
	}
	ready, err := timesToReady(ctx, filepath.Dir(b.cli.stateDir), binary)
	if err != nil {
		return nil, err
	}
	typical := median(ready)
	return []row{
		{what: "init: size", ours: fmt.Sprintf("%d KiB", len(binary)>>10), target: "<= 2 MiB", met: len(binary) <= 2<<20},
		{what: "init: resident memory", ours: fmt.Sprintf("%d KiB", resident>>10), target: "<= 3 MiB", met: resident <= 3<<20},
		{what: "init: from its start to its ready frame", ours: spread(ready), target: "<= 2 ms", met: typical <= 2*time.Millisecond},
	}, nil
}

// initMemory returns the resident memory of init while a program runs.
func (b bench) initMemory(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began, ended := make(chan struct{}), make(chan error, 1)
	id := record.NewID(time.Now())
	go func() {
		_, err := b.library.Run(ctx, sandbox.Request{ID: id, Image: b.docker.image,
			Command: []string{"python3", "-c", "print(1, flush=True); import time; time.sleep(60)"}}, sandbox.IO{Stdout: firstWrite(began)})
		ended <- err
	}()
	select {
	case <-began:
	case err := <-ended:
		return 0, errors.Join(errors.New("the program ended before it was measured"), err)
	}
	out, err := exec.CommandContext(ctx, "docker", "inspect", "--format", "{{.State.Pid}}", spec.Job{RunID: id}.ContainerName()).Output()
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile("/proc/" + strings.TrimSpace(string(out)) + "/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kib, err := strconv.ParseInt(number, 10, 64)
	cancel()
	return kib << 10, errors.Join(err, <-ended)
}

// firstWrite is a writer that closes itself, a channel, at the first write.
type firstWrite chan struct{}

func (s firstWrite) Write(p []byte) (int, error) {
	select {
	case <-s:
	default:
		close(s)
	}
	return len(p), nil
}

// timesToReady measures init outside a container, as PID 1 of a new namespace.
func timesToReady(ctx context.Context, dir string, binary []byte) ([]time.Duration, error) {
	path := filepath.Join(dir, "sandbox-init")
	if err := os.WriteFile(path, binary, 0o755); err != nil {
		return nil, err
	}
	var times []time.Duration
	for range 20 {
		cmd := exec.CommandContext(ctx, path)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
		stdin, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		began := time.Now()
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		_, err = io.ReadFull(stdout, make([]byte, 12))
		times = append(times, time.Since(began))
		if err = errors.Join(err, stdin.Close()); err != nil {
			return nil, err
		}
		_ = cmd.Wait() // without a job it exits with 125
	}
	return times, nil
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

// peakMemory returns the peak resident memory of a process that has ended. The kernel
// includes the time before exec, when the process was a copy of this one: the figure
// can be too high, but not too low.
func peakMemory(state *os.ProcessState) int64 {
	usage, ok := state.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	return int64(usage.Maxrss) << 10 //nolint:unconvert // int32 on some platforms
}
