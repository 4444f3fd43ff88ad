//go:build linux

package sandbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// marker leaves a mark in every place that a program can write to, after it has looked for the marks
// of others there. It prints what it finds, and what its container is like.
const marker = `
import ctypes, glob, json, os, pwd, resource, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
mark = sys.argv[1]
seen = {}

def attempt(name, do):
    try:
        seen[name] = do()
    except Exception as error:
        seen[name] = type(error).__name__ + " " + str(error)

def checked(value):
    if value < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return value

def directory(path):
    def do():
        before = sorted(os.listdir(path))
        open(os.path.join(path, "evalbox-marker"), "w").write(mark)
        os.mkdir(os.path.join(path, "evalbox-marker.d"))
        return before
    return do

for path in ("/tmp", ".", "/dev/shm", "final", "/var/tmp", "/run", "/", "/dev", "/dev/mqueue"):
    attempt("directory " + path, directory(path))

KEY = 0x45764258
def shared_memory():
    there = libc.shmget(KEY, 4096, 0) >= 0
    checked(libc.shmget(KEY, 4096, 0o1600))
    return there
def semaphore():
    there = libc.semget(KEY, 1, 0) >= 0
    checked(libc.semget(KEY, 1, 0o1600))
    return there
def message_queue():
    there = libc.msgget(KEY, 0) >= 0
    checked(libc.msgget(KEY, 0o1600))
    return there
def posix_queue():
    there = libc.mq_open(b"/evalbox-queue", os.O_RDWR) >= 0
    checked(libc.mq_open(b"/evalbox-queue", os.O_CREAT | os.O_RDWR, 0o600, None))
    return there
def key(ring):
    def do():
        there = libc.syscall(249, b"user", b"evalbox-marker", None, ring) >= 0
        checked(libc.syscall(248, b"user", b"evalbox-marker", mark.encode(), len(mark), ring))
        return there
    return do
def abstract():
    s = socket.socket(socket.AF_UNIX)
    s.bind("\0evalbox-marker")
    s.listen()
    kept.append(s)
    return open("/proc/net/unix").read().count("evalbox-marker")
def tcp():
    s = socket.socket()
    s.bind(("127.0.0.1", 4711))
    s.listen()
    kept.append(s)
    return "bound"
def terminals():
    before = sorted(os.listdir("/dev/pts"))
    kept.append(os.openpty())
    return before
def processes():
    found = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
    if os.fork() == 0:
        os.setsid()
        signal.pause()
    return [found[0] == 1, len(found)]
kept = []
for do in (shared_memory, semaphore, message_queue, posix_queue, abstract, tcp, terminals, processes):
    attempt(do.__name__, do)
for name, ring in (("thread", -1), ("process", -2), ("session", -3), ("user", -4), ("user session", -5)):
    attempt("keyring " + name, key(ring))
attempt("sysv", lambda: [open("/proc/sysvipc/" + name).read().count("\n") for name in ("shm", "sem", "msg")])

# What the program is given.
attempt("environment", lambda: {name: value for name, value in sorted(os.environ.items()) if "DEADLINE" not in name})
attempt("arguments", lambda: sys.argv[:1])
attempt("descriptors", lambda: sorted(fd + " " + os.readlink("/proc/self/fd/" + fd).split(":")[0] for fd in os.listdir("/proc/self/fd") if int(fd) < 10 and os.path.exists("/proc/self/fd/" + fd)))
attempt("limits", lambda: open("/proc/self/limits").read())
attempt("umask", lambda: os.umask(0o22))
attempt("priority", lambda: [os.nice(0), open("/proc/self/oom_score_adj").read(), os.sched_getscheduler(0), len(os.sched_getaffinity(0))])
attempt("status", lambda: [line for line in open("/proc/self/status").read().splitlines() if line.split(":")[0] in
    ("Umask", "TracerPid", "Groups", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters", "NSsid")])
attempt("identity", lambda: [os.getpid(), os.getpgrp(), pwd.getpwuid(os.getuid())[0], os.getppid(), os.getsid(0), os.getgroups(), os.uname().nodename, os.getcwd()])
attempt("cgroup", lambda: open("/proc/self/cgroup").read().count("\n"))
attempt("mounts", lambda: sorted(" ".join(line.split()[4:6]) for line in open("/proc/self/mountinfo")))
attempt("files", lambda: sorted((path, oct(os.lstat(path).st_mode)) for path in ("/tmp", ".", "/dev/shm", "final", "input", sys.argv[0])))
attempt("program", lambda: os.access(sys.argv[0], os.W_OK))
attempt("input", lambda: sorted(os.listdir("input")))
attempt("signals", lambda: [str(signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP)])
attempt("interfaces", lambda: [name for _, name in socket.if_nameindex()])
attempt("alarms", lambda: [signal.alarm(0), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss])
print(json.dumps(seen, indent=1))
`

// newPoolRunner is newRunner with a pool, whose directory is empty at the end.
func newPoolRunner(t *testing.T, size int) *sandbox.Runner {
	t.Helper()
	var r *sandbox.Runner
	t.Cleanup(func() { // after that of newRunner
		entries, err := os.ReadDir(r.Store().PoolDir())
		if !errors.Is(err, os.ErrNotExist) {
			require.NoError(t, err)
		}
		require.Empty(t, entries)
	})
	r = newRunner(t, sandbox.WithPool(sandbox.Pool{Size: size}))
	return r
}

// whole is a result without what differs between two runs of one program: IDs, times and use.
func whole(t *testing.T, res *result.Result) map[string]any {
	t.Helper()
	text, err := json.Marshal(res)
	require.NoError(t, err)
	var all map[string]any
	require.NoError(t, json.Unmarshal(text, &all))
	for _, name := range []string{"id", "started_at", "finished_at", "duration_seconds", "setup_seconds", "teardown_seconds", "metrics", "pool", "resources"} {
		delete(all, name)
	}
	if enforced, ok := all["enforced"].(map[string]any); ok && os.Getuid() == 0 {
		delete(enforced, "user")
	}
	return all
}

// TestEngineProgramsShareNoContainer: programs that leave a mark in every place find that of none
// before them, and see what a program without a pool sees.
func TestEngineProgramsShareNoContainer(t *testing.T) {
	const runs = 24
	r := newPoolRunner(t, 4)
	req := python(t, marker)
	req.User = "64641:64641" // one for all: what the kernel keeps for a user would show as well
	req.Input = t.TempDir()
	req.Args = []string{"the-mark"}
	plain := newRunner(t)
	want := run(t, plain, req)
	require.Zero(t, want.ExitCode, want.Stderr)
	require.NotContains(t, want.Stdout, `"evalbox-marker"`)
	require.NoError(t, r.Warm(t.Context(), req, 4))
	for range runs / 2 {
		require.NoError(t, r.Warm(t.Context(), req, 2))
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				res, err := r.Run(t.Context(), req)
				if err != nil {
					t.Error(err)
					return
				}
				if one, other := found(want), found(res); !slices.Equal(one, other) {
					assert.Equal(t, one, other, "waited: %v", res.Pool.Waited)
				}
			})
		}
		both.Wait()
		require.False(t, t.Failed())
	}
	require.Equal(t, runs, r.PoolStatus().Taken)

	require.NoError(t, r.Warm(t.Context(), req, 1))
	res := run(t, r, req)
	require.True(t, res.Pool.Waited)
	require.Equal(t, whole(t, want), whole(t, res))
}

// found is what [marker] printed, by its lines: what differs is then shown.
func found(res *result.Result) []string { return strings.Split(res.Stdout+res.Stderr, "\n") }

// waitingContainers are the containers that wait on an engine for the runs of a runner.
func waitingContainers(t *testing.T, api *client.Client, r *sandbox.Runner) (ids []string) {
	t.Helper()
	all, err := api.ContainerList(context.Background(), container.ListOptions{All: true})
	require.NoError(t, err)
	for _, c := range all {
		if c.Labels[spec.LabelState] == r.Store().Dir() {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// TestEngineWaitingContainersThatOthersChange get no job: each run has a container as it was planned,
// and nothing is left.
func TestEngineWaitingContainersThatOthersChange(t *testing.T) {
	for name, change := range map[string]func(ctx context.Context, api *client.Client, id string) error{
		"paused": func(ctx context.Context, api *client.Client, id string) error { return api.ContainerPause(ctx, id) },
		"killed": func(ctx context.Context, api *client.Client, id string) error {
			return api.ContainerKill(ctx, id, "KILL")
		},
		"stopped": func(ctx context.Context, api *client.Client, id string) error {
			return api.ContainerStop(ctx, id, container.StopOptions{})
		},
		"told to end": func(ctx context.Context, api *client.Client, id string) error {
			return api.ContainerKill(ctx, id, "TERM")
		},
		"removed": func(ctx context.Context, api *client.Client, id string) error {
			return api.ContainerRemove(ctx, id, container.RemoveOptions{Force: true})
		},
		"restarted": func(ctx context.Context, api *client.Client, id string) error {
			return api.ContainerRestart(ctx, id, container.StopOptions{})
		},
		"with less memory": func(ctx context.Context, api *client.Client, id string) error {
			_, err := api.ContainerUpdate(ctx, id, container.UpdateConfig{Resources: container.Resources{Memory: 64 << 20, MemorySwap: 64 << 20}})
			return err
		},
		"with more memory": func(ctx context.Context, api *client.Client, id string) error {
			_, err := api.ContainerUpdate(ctx, id, container.UpdateConfig{Resources: container.Resources{Memory: 512 << 20, MemorySwap: 512 << 20}})
			return err
		},
		"with fewer processors": func(ctx context.Context, api *client.Client, id string) error {
			_, err := api.ContainerUpdate(ctx, id, container.UpdateConfig{Resources: container.Resources{NanoCPUs: 1e8}})
			return err
		},
		"with more processes": func(ctx context.Context, api *client.Client, id string) error {
			most := int64(100000)
			_, err := api.ContainerUpdate(ctx, id, container.UpdateConfig{Resources: container.Resources{PidsLimit: &most}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, api := newPoolRunner(t, 2), testAPI(t)
			req := python(t, "print('hello')")
			require.NoError(t, r.Warm(t.Context(), req, 2))
			ids := waitingContainers(t, api, r)
			require.Len(t, ids, 2)
			for _, id := range ids {
				require.NoError(t, change(t.Context(), api, id))
			}
			began := time.Now()
			res := run(t, r, req)
			require.Equal(t, result.StatusExited, res.Status, res.Explanation)
			require.Equal(t, "hello\n", res.Stdout)
			require.Equal(t, &result.Pool{Reason: "no container of its class was waiting"}, res.Pool)
			t.Logf("%v", time.Since(began))
			require.NoError(t, r.Warm(t.Context(), req, 2))
			require.True(t, run(t, r, req).Pool.Waited)
			for _, id := range waitingContainers(t, api, r) {
				require.NotContains(t, ids, id)
			}
		})
	}
}

// TestEngineWithAFullPoolIsRestarted: the next run has a container of its own.
func TestEngineWithAFullPoolIsRestarted(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"stopped": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			e := newPrivateEngine(t)
			r := e.runner(nil, sandbox.WithPool(sandbox.Pool{Size: 3}))
			// Nothing of the image is needed: this command is not found.
			req := sandbox.Request{Image: "waiter", Command: []string{"/missing"}, Limits: policy.Limits{Timeout: time.Minute, Memory: 64 * policy.MiB, CPUs: 1}}
			require.NoError(t, r.Warm(t.Context(), req, 3))
			e.signal(signal)
			<-e.done
			require.NoError(t, e.start())
			res, err := r.Run(t.Context(), req)
			require.NoError(t, err)
			require.Equal(t, 127, res.ExitCode)
			require.False(t, res.Pool.Waited)
			require.NoError(t, r.Warm(t.Context(), req, 3))
			res, err = r.Run(t.Context(), req)
			require.NoError(t, err)
			require.True(t, res.Pool.Waited)
			require.NoError(t, r.Close())
			entries, err := os.ReadDir(r.Store().PoolDir())
			require.NoError(t, err)
			require.Empty(t, entries)
			api, err := e.api()
			require.NoError(t, err)
			defer api.Close()
			requireNothingLeft(t, api, spec.LabelState+"="+r.Store().Dir())
		})
	}
}

// ownerPools is the way of a controller that keeps containers waiting.
const ownerPools = "pool"

// bePoolOwner fills its pool, and does nothing more.
func bePoolOwner(r *sandbox.Runner) error {
	req := sandbox.Request{Command: []string{"true"}, Limits: policy.Limits{Timeout: time.Minute, Memory: 128 * policy.MiB, CPUs: 1}}
	if err := r.Warm(context.Background(), req, poolOwnerSize); err != nil {
		return err
	}
	fmt.Println("started")
	select {}
}

const poolOwnerSize = 3

// TestEnginePoolOfAKilledControllerEndsWithIt: the inits end at once, and the next run, or a garbage
// collection, removes what is left.
func TestEnginePoolOfAKilledControllerEndsWithIt(t *testing.T) {
	for _, way := range []string{"next run", "gc"} {
		t.Run(way, func(t *testing.T) {
			state := filepath.Join(t.TempDir(), "state")
			cmd := startOwner(t, state, "", ownerPools)
			r, api := newRunner(t, sandbox.WithStateDir(state)), testAPI(t)
			ids := waitingContainers(t, api, r)
			require.Len(t, ids, poolOwnerSize)
			slots, err := os.ReadDir(r.Store().PoolDir())
			require.NoError(t, err)
			require.Len(t, slots, poolOwnerSize)
			listed, err := r.Containers(t.Context())
			require.NoError(t, err)
			require.False(t, slices.ContainsFunc(listed, func(c engine.Found) bool { return c.Labels[spec.LabelState] == state }))

			require.NoError(t, cmd.Process.Kill())
			_ = cmd.Wait() // it was killed
			killed := time.Now()
			for _, id := range ids {
				ended, failed := api.ContainerWait(t.Context(), id, container.WaitConditionNotRunning)
				select {
				case <-ended:
				case err := <-failed:
					require.NoError(t, err)
				case <-time.After(10 * time.Second):
					t.Fatal("a container still runs without its owner")
				}
			}
			t.Logf("the inits ended within %v", time.Since(killed))
			if way == "gc" {
				_, err = r.GC(t.Context(), sandbox.GCOptions{})
				require.NoError(t, err)
				for _, slot := range slots {
					require.False(t, leased(t, slot.Name()))
				}
			} else {
				run(t, r, python(t, "pass"))
				require.NoError(t, r.Close()) // it waits for what goes on behind the run
			}
			requireNothingLeft(t, api, spec.LabelState+"="+state)
			left, err := os.ReadDir(r.Store().PoolDir())
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

// The ways of a process that keeps a pool for others, and of one that runs a program again and again.
const (
	ownerKeeps = "keep"
	ownerAsks  = "ask"
)

// kept is the request whose class the keeper of a test has.
func kept(final string) sandbox.Request {
	return sandbox.Request{Command: []string{"python3", "-c", "print('hello')"}, Final: final,
		Limits: policy.Limits{Timeout: time.Minute, Memory: 128 * policy.MiB, CPUs: 1}}
}

// beAskingOwner runs programs until it is killed.
func beAskingOwner(r *sandbox.Runner) error {
	for first := true; ; first = false {
		if _, err := r.Run(context.Background(), kept("")); err != nil {
			return err
		}
		if first {
			fmt.Println("started")
		}
	}
}

// TestEngineKeeperOrCallerIsKilled kills one of the two at many moments of the hand-over. Every run that
// goes on has its exact result, and nothing is left.
func TestEngineKeeperOrCallerIsKilled(t *testing.T) {
	for i := range 4 {
		after := time.Duration(i) * 9 * time.Millisecond
		t.Run(fmt.Sprintf("keeper, after %v", after), func(t *testing.T) {
			state := filepath.Join(t.TempDir(), "state")
			keeper := startOwner(t, state, "", ownerKeeps)
			r, api := newRunner(t, sandbox.WithStateDir(state), sandbox.WithKeeper()), testAPI(t)
			final, waited := filepath.Join(t.TempDir(), "final"), 0
			for n := range 8 {
				if n == 3 {
					time.AfterFunc(after, func() { _ = keeper.Process.Kill() })
				}
				res := run(t, r, kept(final))
				require.Equal(t, "hello\n", res.Stdout, res.Explanation)
				require.Zero(t, res.ExitCode)
				if res.Pool != nil && res.Pool.Waited {
					waited++
				}
				require.False(t, n == 7 && res.Pool != nil, "nobody keeps a pool any more")
			}
			t.Logf("%d of 8 runs had a container that waited", waited)
			require.Positive(t, waited)
			_ = keeper.Wait() // it was killed
			nothingOfTheKeeper(t, r, api, state)
		})
		t.Run(fmt.Sprintf("caller, after %v", after), func(t *testing.T) {
			state := filepath.Join(t.TempDir(), "state")
			startOwner(t, state, "", ownerKeeps)
			caller := startOwner(t, state, "", ownerAsks)
			r, api := newRunner(t, sandbox.WithStateDir(state)), testAPI(t)
			status := func() sandbox.KeeperStatus {
				status, err := sandbox.Keeper(r.Store())
				require.NoError(t, err)
				return status
			}
			require.Eventually(t, func() bool { return status().Taken >= 3 }, time.Minute, time.Millisecond)
			time.AfterFunc(after, func() { _ = caller.Process.Kill() })
			_ = caller.Wait() // it was killed
			_, err := sandbox.StopKeeper(r.Store())
			require.NoError(t, err)
			nothingOfTheKeeper(t, r, api, state)
		})
	}
}

// nothingOfTheKeeper collects what dead processes left, and checks that nothing remains.
func nothingOfTheKeeper(t *testing.T, r *sandbox.Runner, api *client.Client, state string) {
	t.Helper()
	require.Eventually(t, func() bool { // the program of a killed caller may still run
		_, err := r.GC(t.Context(), sandbox.GCOptions{})
		require.NoError(t, err)
		return len(waitingContainers(t, api, r)) == 0
	}, time.Minute, 50*time.Millisecond)
	requireNothingLeft(t, api, spec.LabelState+"="+state)
	left, err := os.ReadDir(r.Store().PoolDir())
	require.NoError(t, err)
	require.Empty(t, left)
	ids, err := r.Store().IDs()
	require.NoError(t, err)
	for _, id := range ids {
		found, err := r.Record(id)
		require.NoError(t, err)
		require.NotNil(t, found.Result, id)
		require.False(t, leased(t, id), id)
	}
}

// leased reports whether a run has a user ID on this machine.
func leased(t *testing.T, run string) bool {
	t.Helper()
	files, err := filepath.Glob("/run/evalbox/uids/*")
	require.NoError(t, err)
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && bytes.Contains(text, []byte(run))
	})
}
