//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"golang.org/x/sys/unix"
)

// witnessImage is the image of the private engines.
const witnessImage = "witness"

// answerPatience bounds how long an engine may take to start, or to end.
const answerPatience = time.Minute

// privateEngine is a Docker engine of the suite's own, with a containerd of its own: the
// faults kill, stop and freeze them. Both are the first of their name in PATH, so that
// hack/engine chooses their version.
type privateEngine struct {
	dir                 string
	dockerd, containerd *daemon
	api                 *client.Client
	// device has the engine's files, so that they can lack space.
	device string
}

// daemon is a process that the suite started.
type daemon struct {
	cmd  *exec.Cmd
	done chan struct{}
}

func startDaemon(log io.Writer, name string, args ...string) (*daemon, error) {
	d := &daemon{cmd: exec.Command(name, args...), done: make(chan struct{})}
	d.cmd.Stdout, d.cmd.Stderr = log, log
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = d.cmd.Wait()
		close(d.done)
	}()
	return d, nil
}

func (d *daemon) signal(s syscall.Signal) { _ = d.cmd.Process.Signal(s) }

// end ends the process, kindly at first, and waits for it.
func (d *daemon) end() {
	d.signal(syscall.SIGCONT)
	d.signal(syscall.SIGTERM)
	select {
	case <-d.done:
	case <-time.After(answerPatience):
		d.signal(syscall.SIGKILL)
		<-d.done
	}
}

// newEngine starts an engine below a directory, whose path is short, and gives it the image.
func newEngine(ctx context.Context, dir string, program []byte) (_ *privateEngine, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a private engine needs root")
	}
	e := &privateEngine{dir: dir}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	if err := os.Mkdir(e.path("disk"), 0o711); err != nil {
		return nil, err
	}
	if e.device, err = mountSmall(e.path("disk")); err != nil {
		return nil, err
	}
	if err := e.startContainerd(); err != nil {
		return nil, err
	}
	if e.api, err = client.NewClientWithOpts(client.WithHost(e.address()), client.WithAPIVersionNegotiation()); err != nil {
		return nil, err
	}
	if err := e.startDockerd(ctx, false); err != nil {
		return nil, err
	}
	return e, e.importImage(ctx, program)
}

func (e *privateEngine) address() string      { return "unix://" + e.socket() }
func (e *privateEngine) socket() string       { return filepath.Join(e.dir, "sock") }
func (e *privateEngine) path(n string) string { return filepath.Join(e.dir, n) }

// logTo opens a log of a daemon. A daemon that starts again adds to it.
func (e *privateEngine) logTo(name string) (*os.File, error) {
	return os.OpenFile(e.path(name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

// startContainerd starts containerd, also again after its death.
func (e *privateEngine) startContainerd() error {
	config := fmt.Sprintf(`version = 2
root = %q
state = %q
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]
[grpc]
  address = %q
`, e.path("disk/containerd"), e.path("exec/c-state"), e.path("exec/c.sock"))
	if err := os.MkdirAll(e.path("exec"), 0o711); err != nil {
		return err
	}
	if err := os.WriteFile(e.path("containerd.toml"), []byte(config), 0o600); err != nil {
		return err
	}
	log, err := e.logTo("containerd.log")
	if err != nil {
		return err
	}
	defer log.Close()
	e.containerd, err = startDaemon(log, "containerd", "--config", e.path("containerd.toml"))
	return err
}

// startDockerd starts dockerd, also again after its death, and returns once it answers.
// With restore it keeps its containers while it is away.
func (e *privateEngine) startDockerd(ctx context.Context, restore bool) error {
	if err := os.WriteFile(e.path("daemon.json"), fmt.Appendf(nil, `{"live-restore": %t}`, restore), 0o600); err != nil {
		return err
	}
	log, err := e.logTo("dockerd.log")
	if err != nil {
		return err
	}
	defer log.Close()
	// A killed daemon leaves its files.
	_ = os.Remove(e.path("pid"))
	e.dockerd, err = startDaemon(log, "dockerd", "--config-file", e.path("daemon.json"), "--containerd", e.path("exec/c.sock"),
		"--data-root", e.path("disk/data"), "--exec-root", e.path("exec/d"), "--pidfile", e.path("pid"), "-H", e.address(),
		"--bridge", "none", "--iptables=false", "--ip6tables=false")
	if err != nil {
		return err
	}
	return e.answers(ctx)
}

// keepContainers sets whether the containers of a running dockerd outlive it.
func (e *privateEngine) keepContainers(ctx context.Context, restore bool) error {
	if info, err := e.api.Info(ctx); err == nil && info.LiveRestoreEnabled == restore {
		return nil
	}
	if err := os.WriteFile(e.path("daemon.json"), fmt.Appendf(nil, `{"live-restore": %t}`, restore), 0o600); err != nil {
		return err
	}
	e.dockerd.signal(syscall.SIGHUP)
	return until(ctx, answerPatience, "the engine to read its settings again", func() bool {
		info, err := e.api.Info(ctx)
		return err == nil && info.LiveRestoreEnabled == restore
	})
}

func (e *privateEngine) answers(ctx context.Context) error {
	return until(ctx, answerPatience, "the engine to answer", func() bool {
		_, err := e.api.Ping(ctx)
		return err == nil
	})
}

// works waits until the engine starts containers again: it may answer before it does.
func (e *privateEngine) works(ctx context.Context) error {
	const name = "evalbox-faults-probe"
	remove := func() error {
		err := e.api.ContainerRemove(ctx, name, container.RemoveOptions{Force: true})
		if errdefs.IsNotFound(err) {
			return nil
		}
		return err
	}
	err := until(ctx, answerPatience, "the engine to start containers", func() bool {
		if remove() != nil {
			return false
		}
		_, err := e.api.ContainerCreate(ctx, &container.Config{Image: witnessImage, Cmd: []string{"/witness"}},
			&container.HostConfig{NetworkMode: "none"}, nil, nil, name)
		return err == nil && e.api.ContainerStart(ctx, name, container.StartOptions{}) == nil
	})
	return errors.Join(err, remove())
}

// importImage makes the only image: the program under two names.
func (e *privateEngine) importImage(ctx context.Context, program []byte) error {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, dir := range []string{"usr/", "usr/bin/"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}); err != nil {
			return err
		}
	}
	if err := w.WriteHeader(&tar.Header{Name: "witness", Mode: 0o755, Size: int64(len(program))}); err != nil {
		return err
	}
	if _, err := w.Write(program); err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeLink, Name: "usr/bin/python3", Linkname: "witness", Mode: 0o755}); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	answer, err := e.api.ImageImport(ctx, image.ImportSource{Source: &archive, SourceName: "-"}, witnessImage,
		image.ImportOptions{Changes: []string{"ENV PATH=/usr/bin"}})
	if err != nil {
		return fmt.Errorf("importing the image: %w", err)
	}
	_, err = io.Copy(io.Discard, answer)
	return errors.Join(err, answer.Close())
}

// shim returns the process that holds a container: the parent of its first process.
func (e *privateEngine) shim(ctx context.Context, name string) (int, error) {
	info, err := e.api.ContainerInspect(ctx, name)
	if err != nil {
		return 0, err
	}
	pid, err := parentOf(info.State.Pid)
	if err == nil && !slices.Contains(processesNaming(e.path("exec")), pid) {
		return 0, fmt.Errorf("process %d, the parent of container %s, is not a shim of this engine", pid, name)
	}
	return pid, err
}

// parentOf returns the parent of a process.
func parentOf(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "PPid:"); ok {
			return strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return 0, fmt.Errorf("process %d has no parent", pid)
}

// close ends the engine and everything that came with it: only processes that name its
// directory, and mounts below it, are touched.
func (e *privateEngine) close() {
	if e.dockerd != nil {
		e.dockerd.end()
	}
	if e.containerd != nil {
		e.containerd.end()
	}
	for _, pid := range slices.Concat(processesNaming(e.path("exec")), processesOn(e.path("disk"))) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	for _, point := range mountsBelow(e.dir) {
		_ = unix.Unmount(point, unix.MNT_DETACH)
	}
	if e.device != "" {
		_ = exec.Command("losetup", "-d", e.device).Run() // once nothing holds it
	}
	if e.api != nil {
		_ = e.api.Close()
	}
}

// uniqueText is the least length of a text that can only be ours: a token, or the path of an
// engine.
const uniqueText = 24

// processesNaming lists the processes, other than this one, whose command line contains a
// text. A text that could be in the command line of others finds nothing.
func processesNaming(text string) []int {
	if len(text) < uniqueText {
		return nil
	}
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is right
	var pids []int
	for _, path := range found {
		line, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(line, []byte(text)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// processesOn lists the processes whose root directory is made of directories below one of
// ours: those of containers, also before their start, whose command line says nothing.
func processesOn(dir string) []int {
	if len(dir) < uniqueText {
		return nil
	}
	found, _ := filepath.Glob("/proc/[0-9]*/mountinfo") // the pattern is right
	var pids []int
	for _, path := range found {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) > 4 && fields[4] == "/" && strings.Contains(line, "="+dir+"/") {
				if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
					pids = append(pids, pid)
				}
			}
		}
	}
	return pids
}

// mountsBelow lists the mount points below a directory, the deepest ones first.
func mountsBelow(dir string) []string {
	text, _ := os.ReadFile("/proc/self/mountinfo") // Linux has it
	var points []string
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			points = append(points, fields[4])
		}
	}
	sort.Sort(sort.Reverse(sort.StringSlice(points)))
	return points
}

// pollPause is the interval at which a fact that nothing announces is looked at.
const pollPause = 5 * time.Millisecond

// until waits until something holds, and says what did not.
func until(ctx context.Context, patience time.Duration, what string, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(pollPause)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

// buildBinaries compiles the program of the suite and the command line under test.
var buildBinaries = sync.OnceValues(func() (binaries, error) {
	dir, err := os.MkdirTemp("", "evalbox-faults-bin-")
	if err != nil {
		return binaries{}, err
	}
	b := binaries{dir: dir, sandbox: filepath.Join(dir, "sandbox")}
	for into, from := range map[string]string{"witness": "hack/faults/witness", "sandbox": "cmd/sandbox"} {
		build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, into), "github.com/evalbox/evalbox/"+from)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return b, fmt.Errorf("building %s: %w: %s", from, err, out)
		}
	}
	b.witness, err = os.ReadFile(filepath.Join(dir, "witness"))
	return b, err
})

type binaries struct {
	dir, sandbox string
	witness      []byte
}
