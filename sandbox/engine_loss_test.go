//go:build linux

package sandbox_test

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
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// privateEngine is a daemon of the test's own: the tests of this file stop, kill
// and freeze it.
type privateEngine struct {
	t   *testing.T
	dir string
	// hide is a directory of the caller that the daemon does not see.
	hide string
	args []string
	// scores makes the waiter print scores, and exit with 0 on SIGTERM.
	scores bool
	// keep keeps the container of the waiter.
	keep bool
	// restarting is held while somebody restarts the container of the waiter. The end of the run waits for it.
	restarting sync.Mutex
	cmd        *exec.Cmd
	log        bytes.Buffer
	done       chan struct{}
}

func newPrivateEngine(t *testing.T, args ...string) *privateEngine {
	t.Helper()
	return newHidingEngine(t, "", args...)
}

// newHidingEngine is a private engine that sees another directory, which is empty, in
// place of one of ours.
func newHidingEngine(t *testing.T, hide string, args ...string) *privateEngine {
	t.Helper()
	require.Zero(t, os.Geteuid(), "a private engine needs root")
	// The path of a socket is short.
	dir, err := os.MkdirTemp("/tmp", "evalbox-engine-")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(dir+"/daemon.json", []byte("{}"), 0o600))
	e := &privateEngine{t: t, dir: dir, hide: hide, args: append(args,
		"--config-file", dir+"/daemon.json", // not that of the machine's engine
		"--data-root", dir+"/data", "--exec-root", dir+"/exec", "--pidfile", dir+"/pid", "-H", "unix://"+dir+"/sock",
		"--bridge", "none", "--iptables=false", "--ip6tables=false", "--storage-driver", "vfs",
	)}
	require.NoError(t, e.start())
	t.Cleanup(func() {
		e.signal(syscall.SIGCONT)
		e.signal(syscall.SIGTERM)
		<-e.done
		if t.Failed() {
			t.Log(e.log.String())
		}
		e.endShims()
		e.unmount()
		require.NoError(t, os.RemoveAll(dir))
	})
	return e
}

// start starts the daemon, also again, and returns once it answers.
func (e *privateEngine) start() error {
	// The containerd of a killed daemon dies with it, but may stay a zombie
	// that the next daemon takes for alive.
	_ = os.Remove(e.dir + "/exec/containerd/containerd.pid")
	e.cmd = exec.Command("dockerd", e.args...)
	if e.hide != "" {
		e.cmd = exec.Command("unshare", append([]string{"--mount", "--propagation", "private", "sh", "-c",
			`mount -t tmpfs none "$0" && exec dockerd "$@"`, e.hide}, e.args...)...)
	}
	e.cmd.Stdout, e.cmd.Stderr = &e.log, &e.log
	if err := e.cmd.Start(); err != nil {
		return err
	}
	e.done = make(chan struct{})
	go func() {
		_ = e.cmd.Wait()
		close(e.done)
	}()
	api, err := e.api()
	if err != nil {
		return err
	}
	defer api.Close()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	giveUp := time.After(time.Minute)
	for {
		if _, err = api.Ping(context.Background()); err == nil {
			return nil
		}
		select {
		case <-e.done:
			return errors.New("the private engine ended")
		case <-giveUp:
			return fmt.Errorf("the private engine does not answer: %w", err)
		case <-poll.C:
		}
	}
}

func (e *privateEngine) signal(s syscall.Signal) { _ = e.cmd.Process.Signal(s) }

// endShims ends what a killed daemon left running: shims name its directory, which
// no other process does, among their arguments.
func (e *privateEngine) endShims() {
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(e.t, err)
	for _, path := range found {
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(text, []byte(e.dir+"/exec")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && pid != os.Getpid() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// unmount lets go of what a killed daemon left mounted below its own directory.
func (e *privateEngine) unmount() {
	text, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(e.t, err)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], e.dir+"/") {
			_ = syscall.Unmount(fields[4], syscall.MNT_DETACH)
		}
	}
}

func (e *privateEngine) api() (*client.Client, error) {
	return client.NewClientWithOpts(client.WithHost("unix://"+e.dir+"/sock"), client.WithAPIVersionNegotiation())
}

// started returns once the daemon itself knows that the program runs: it prints
// before the answer to the start is on its way.
func (e *privateEngine) started(id string) error {
	api, err := e.api()
	if err != nil {
		return err
	}
	defer api.Close()
	for range 1000 {
		c, err := api.ContainerInspect(context.Background(), "evalbox-"+id)
		if err != nil || c.State.Running {
			return err
		}
	}
	return errors.New("the container does not run")
}

// waiterBinary is built once for all tests.
var waiterBinary = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "waiter-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "waiter"), "./testdata/waiter")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return out, err
	}
	return os.ReadFile(filepath.Join(dir, "waiter"))
})

// runner is a runner on the private engine, or on another way to it, which has one
// image: the waiter.
func (e *privateEngine) runner(engine engine.Engine, opts ...sandbox.Option) *sandbox.Runner {
	e.t.Helper()
	program, err := waiterBinary()
	require.NoError(e.t, err, string(program))
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	require.NoError(e.t, w.WriteHeader(&tar.Header{Name: "waiter", Mode: 0o755, Size: int64(len(program))}))
	_, err = w.Write(program)
	require.NoError(e.t, err)
	require.NoError(e.t, w.Close())
	api, err := e.api()
	require.NoError(e.t, err)
	answer, err := api.ImageImport(e.t.Context(), image.ImportSource{Source: &archive, SourceName: "-"}, "waiter", image.ImportOptions{})
	require.NoError(e.t, err)
	_, err = io.Copy(io.Discard, answer)
	require.NoError(e.t, err)
	require.NoError(e.t, answer.Close())
	if engine == nil {
		engine = docker.New(api)
	}
	opts = append(opts, sandbox.WithEngine(engine), sandbox.WithStateDir(filepath.Join(e.dir, "state")))
	r, err := sandbox.New(opts...)
	require.NoError(e.t, err)
	e.t.Cleanup(func() { require.NoError(e.t, r.Close()) })
	return r
}

// runWaiter runs the waiter and calls trouble once it is ready. trouble gets the
// function that lets it go on.
func (e *privateEngine) runWaiter(trouble func(goOn func())) (*result.Result, error) {
	e.t.Helper()
	return e.runWaiterOn(nil, trouble)
}

// runWaiterOn is runWaiter by another way to the engine, which is closed.
func (e *privateEngine) runWaiterOn(engine engine.Engine, trouble func(goOn func())) (*result.Result, error) {
	e.t.Helper()
	final := filepath.Join(e.dir, "final")
	ready, over := make(chan struct{}), make(chan struct{})
	req := sandbox.Request{
		ID: "waiter", Image: "waiter", Command: []string{"/waiter"}, Final: final,
		Transfer: spec.TransferBind, // also of an engine at the end of a connection
		Keep:     e.keep,
		Limits:   policy.Limits{Timeout: 2 * time.Minute, Memory: 64 * policy.MiB, CPUs: 1},
	}
	streams := sandbox.IO{Stdout: afterLine("ready", func() { close(ready) })}
	if e.scores {
		req.Command = append(req.Command, "scores")
	}
	finished := make(chan struct{})
	r := e.runner(engine)
	go func() {
		defer close(finished)
		select {
		case <-ready:
		case <-over:
			e.t.Error("the program was never ready")
			return
		}
		if err := e.started(req.ID); err != nil {
			e.t.Error(err)
		}
		trouble(func() {
			found, err := r.Record(req.ID)
			if err == nil {
				err = os.WriteFile(filepath.Join(found.OutputDir(), "go"), []byte("7\n"), 0o644)
			}
			if err != nil {
				e.t.Error(err)
			}
		})
	}()
	r.At(func(step string) {
		if step == "ended" {
			e.restarting.Lock()
			defer e.restarting.Unlock()
		}
	})
	res, err := r.Run(e.t.Context(), req, streams)
	close(over)
	<-finished
	return res, err
}

// TestEngineKeptContainersAreCollected needs an engine of its own: containers of other tests would be
// removed as well.
func TestEngineKeptContainersAreCollected(t *testing.T) {
	t.Parallel()
	e := newPrivateEngine(t)
	e.keep = true
	res, err := e.runWaiter(func(goOn func()) { goOn() })
	require.NoError(t, err)
	require.Equal(t, 7, res.ExitCode)
	r := e.runner(nil)
	report, err := r.GC(t.Context(), sandbox.GCOptions{})
	require.NoError(t, err)
	require.Len(t, report.Left, 1)
	require.Equal(t, "is kept (--keep)", report.Left[0].Reason)
	report, err = r.GC(t.Context(), sandbox.GCOptions{Kept: true})
	require.NoError(t, err)
	require.Len(t, report.Removed, 1)
	found, err := r.Containers(t.Context())
	require.NoError(t, err)
	require.Empty(t, found)
}

// TestEngineLossIsNeverTheProgramsFault stops, kills and freezes a daemon under a
// running program. A daemon that is stopped stops the program with SIGTERM and
// then reports 143, as if the program had chosen it.
func TestEngineLossIsNeverTheProgramsFault(t *testing.T) {
	t.Parallel()
	t.Run("daemon stopped", func(t *testing.T) {
		t.Parallel()
		e := newPrivateEngine(t)
		res, err := e.runWaiter(func(func()) { e.signal(syscall.SIGTERM) })
		require.ErrorIs(t, err, sandbox.ErrEngineUnavailable, "%v: %s", res.Status, res.Explanation)
		require.Equal(t, result.StatusEngineLost, res.Status, res.Explanation)
		require.Equal(t, result.FaultEnvironment, res.Fault)
		require.Equal(t, "ready\n", res.Stdout)
	})
	t.Run("daemon killed and back, its containers stopped", func(t *testing.T) {
		t.Parallel()
		e := newPrivateEngine(t)
		res, err := e.runWaiter(func(func()) {
			e.signal(syscall.SIGKILL)
			<-e.done
			if err := e.start(); err != nil {
				t.Error(err)
			}
		})
		require.ErrorIs(t, err, sandbox.ErrEngineUnavailable, "%v: %s", res.Status, res.Explanation)
		require.Equal(t, result.StatusEngineLost, res.Status, res.Explanation)
		require.Equal(t, "ready\n", res.Stdout)
	})
	t.Run("daemon killed and back, its containers alive", func(t *testing.T) {
		t.Parallel()
		e := newPrivateEngine(t, "--live-restore")
		res, err := e.runWaiter(func(goOn func()) {
			e.signal(syscall.SIGKILL)
			<-e.done
			if err := e.start(); err != nil {
				t.Error(err)
			}
			goOn()
		})
		require.NoError(t, err)
		require.Equal(t, result.StatusExited, res.Status, res.Explanation)
		require.Equal(t, 7, res.ExitCode)
		require.True(t, res.OutputComplete, "%q", res.Warnings)
		require.Equal(t, "ready\ngoing\n", res.Stdout, "the gap is filled from the engine's log")
		require.Contains(t, strings.Join(res.Warnings, "\n"), "the connection to the engine was lost for a while")
	})
	t.Run("daemon frozen for a while", func(t *testing.T) {
		t.Parallel()
		e := newPrivateEngine(t)
		res, err := e.runWaiter(func(goOn func()) {
			e.signal(syscall.SIGSTOP)
			goOn()
			e.signal(syscall.SIGCONT)
		})
		require.NoError(t, err)
		require.Equal(t, result.StatusExited, res.Status, res.Explanation)
		require.Equal(t, 7, res.ExitCode)
		require.Equal(t, "ready\ngoing\n", res.Stdout)
		require.True(t, res.OutputComplete)
	})
}

// process returns the PID of the waiter's init, and that of its shim.
func (e *privateEngine) process() (pid, shim int) {
	api, err := e.api()
	require.NoError(e.t, err)
	defer api.Close()
	c, err := api.ContainerInspect(e.t.Context(), "evalbox-waiter")
	require.NoError(e.t, err)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.State.Pid))
	require.NoError(e.t, err)
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "PPid:"); ok {
			shim, err = strconv.Atoi(strings.TrimSpace(text))
			require.NoError(e.t, err)
		}
	}
	return c.State.Pid, shim
}

// gone returns once the waiter is about to exit.
func (e *privateEngine) gone() {
	store, err := record.Open(filepath.Join(e.dir, "state"))
	require.NoError(e.t, err)
	require.Eventually(e.t, func() bool {
		found, err := store.Get("waiter")
		if err == nil {
			_, err = os.Lstat(filepath.Join(found.OutputDir(), "gone"))
		}
		return err == nil
	}, time.Minute, 10*time.Millisecond)
}

// TestEngineEndsAcrossOutages: init's report decides how a program ended, whatever the engine remembers.
// Without a report, the program is not blamed, and never praised.
func TestEngineEndsAcrossOutages(t *testing.T) {
	t.Parallel()
	kill := func(t *testing.T, pid int) {
		t.Helper()
		require.Greater(t, pid, 1)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	for name, test := range map[string]struct {
		args    []string
		trouble func(t *testing.T, e *privateEngine, goOn func())
		status  result.Status
		fault   result.Fault
		code    int
		score   *float64
		says    string
	}{
		"stopped, and the program exits with 0": {nil, func(_ *testing.T, e *privateEngine, _ func()) {
			e.signal(syscall.SIGTERM)
		}, result.StatusEngineLost, result.FaultEnvironment, -1, new(0.333), "stopped the program with it"},
		"killed and back, and the program exits with 0": {nil, func(t *testing.T, e *privateEngine, _ func()) {
			t.Helper()
			e.signal(syscall.SIGKILL)
			<-e.done
			if err := e.start(); err != nil {
				t.Error(err)
			}
		}, result.StatusEngineLost, result.FaultEnvironment, -1, new(0.333), "stopped the program with it"},
		"the program ends while it is away": {[]string{"--live-restore"}, func(t *testing.T, e *privateEngine, goOn func()) {
			t.Helper()
			e.signal(syscall.SIGKILL)
			<-e.done
			goOn()
			e.gone()
			if err := e.start(); err != nil {
				t.Error(err)
			}
		}, result.StatusExited, result.FaultProgram, 7, new(0.585), "exited with 7"},
		"the shim is killed": {nil, func(t *testing.T, e *privateEngine, _ func()) {
			t.Helper()
			_, shim := e.process()
			kill(t, shim)
		}, result.StatusEngineLost, result.FaultEnvironment, -1, nil, "init_killed"},
		"init is killed from outside": {nil, func(t *testing.T, e *privateEngine, _ func()) {
			t.Helper()
			pid, _ := e.process()
			kill(t, pid)
		}, result.StatusEngineLost, result.FaultEnvironment, -1, nil, "init_killed"},
		"the container is restarted": {nil, func(t *testing.T, e *privateEngine, _ func()) {
			t.Helper()
			e.restarting.Lock()
			defer e.restarting.Unlock()
			api, err := e.api()
			if err == nil {
				err = api.ContainerRestart(t.Context(), "evalbox-waiter", container.StopOptions{Timeout: new(1)})
				err = errors.Join(err, api.Close())
			}
			if err != nil {
				t.Error(err)
			}
		}, result.StatusSignaled, result.FaultOperator, 143, new(0.333), "restarted the container"},
		"containerd is killed": {nil, func(t *testing.T, e *privateEngine, goOn func()) {
			t.Helper()
			text, err := os.ReadFile(e.dir + "/exec/containerd/containerd.pid")
			require.NoError(t, err)
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			require.NoError(t, err)
			kill(t, pid)
			goOn()
		}, result.StatusExited, result.FaultProgram, 7, new(0.585), "exited with 7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newPrivateEngine(t, test.args...)
			e.scores = true
			res, err := e.runWaiter(func(goOn func()) { test.trouble(t, e, goOn) })
			require.NotNil(t, res, "%v", err)
			require.Equal(t, test.status.String(), res.Status.String(), res.Explanation)
			require.Equal(t, test.fault.String(), res.Fault.String(), res.Explanation)
			require.Equal(t, test.code, res.ExitCode)
			require.Contains(t, res.Explanation, test.says)
			require.Equal(t, test.status == result.StatusEngineLost, err != nil, "%v", err)
			require.Equal(t, test.score, res.Score, "%q", res.Warnings)
			require.Equal(t, test.score != nil, res.OutputComplete)
			require.Equal(t, test.score != nil && test.status != result.StatusExited, res.ScoreUnfinished)
			if test.score == nil {
				require.Contains(t, strings.Join(res.Warnings, "\n"), "no score: the output is incomplete; the last score in it is 0.")
			}
			if test.fault != result.FaultProgram {
				require.Contains(t, strings.Join(res.Warnings, "\n"), "as the interrupted program left them")
			}
		})
	}
}
