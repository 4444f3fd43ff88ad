//go:build linux

package sandbox_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/internal/dockerhost"
	"github.com/evalbox/evalbox/internal/runnertest"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// These tests run on the real engine with the debian image. Without either they
// fail and say what to do: `make test` makes both.

func testAPI(t *testing.T) *client.Client {
	t.Helper()
	api := newAPI(t)
	t.Cleanup(func() { require.NoError(t, api.Close()) })
	return api
}

// newAPI is a client of the real engine, which the caller closes.
func newAPI(t *testing.T) *client.Client {
	t.Helper()
	endpoint, err := dockerhost.Find(dockerhost.Address{})
	require.NoError(t, err)
	api, err := endpoint.Client()
	require.NoError(t, err)
	return api.Client
}

// newRunner is a runner on the real engine with its own state directory. At the end
// of the test nothing of its runs may be left on the engine, volumes included.
func newRunner(t *testing.T, opts ...sandbox.Option) *sandbox.Runner {
	t.Helper()
	api, state := testAPI(t), filepath.Join(t.TempDir(), "state")
	t.Cleanup(func() { requireNothingLeft(t, api, spec.LabelState+"="+state) })
	return runnertest.Open(t, runnertest.Docker, state, opts...)
}

// requireNothingLeft waits until an engine has nothing with a label any more: the removal
// of a container is certain when its run is over, and takes the engine a moment longer.
func requireNothingLeft(t *testing.T, api *client.Client, label string) {
	t.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	giveUp := time.After(time.Minute)
	for {
		left := leftOn(t, api, label)
		if len(left) == 0 {
			return
		}
		select {
		case <-giveUp:
			require.Empty(t, left)
		case <-poll.C:
		}
	}
}

// leftOn lists the containers and volumes of an engine that have a label.
func leftOn(t *testing.T, api *client.Client, label string) (left []string) {
	t.Helper()
	with := filters.NewArgs(filters.Arg("label", label))
	containers, err := api.ContainerList(context.Background(), container.ListOptions{All: true, Filters: with})
	require.NoError(t, err)
	for _, c := range containers {
		left = append(left, "container "+strings.Join(c.Names, " "))
	}
	volumes, err := api.VolumeList(context.Background(), volume.ListOptions{Filters: with})
	require.NoError(t, err)
	for _, v := range volumes.Volumes {
		if !strings.HasPrefix(v.Name, "evalbox-init-") { // every run's
			left = append(left, "volume "+v.Name)
		}
	}
	return left
}

// python is a request that runs a program given as text.
func python(t *testing.T, program string) sandbox.Request {
	t.Helper()
	script := filepath.Join(t.TempDir(), "program.py")
	require.NoError(t, os.WriteFile(script, []byte(program), 0o644))
	return sandbox.Request{
		Script: script,
		Limits: policy.Limits{Timeout: time.Minute, Memory: 256 * policy.MiB, CPUs: 1},
	}
}

func run(t *testing.T, r *sandbox.Runner, req sandbox.Request, opts ...sandbox.RunOption) *result.Result {
	t.Helper()
	res, err := r.Run(t.Context(), req, opts...)
	require.NoError(t, err)
	text, err := res.Encode()
	require.NoError(t, err)
	_, err = result.Decode(text)
	require.NoError(t, err)
	return res
}

// TestEngineContainment asks the program itself what it can do.
func TestEngineContainment(t *testing.T) {
	t.Setenv("EVALBOX_TEST_SECRET", "canary-7f3a")
	req := python(t, `
import os, socket
def tell(key, f):
    try: value = f()
    except Exception as e: value = type(e).__name__ + " " + str(getattr(e, "errno", ""))
    print(key + "=" + str(value))
status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
tell("uid", lambda: "%d:%d" % (os.getuid(), os.getgid()))
tell("groups", os.getgroups)
for key in ("CapEff", "CapPrm", "CapBnd", "NoNewPrivs", "Seccomp"): tell(key, lambda: status[key].strip())
tell("interfaces", lambda: [n for _, n in socket.if_nameindex()])
tell("connect", lambda: socket.create_connection(("192.0.2.1", 80), 2))
tell("write /", lambda: open("/evil", "w"))
tell("write /usr", lambda: open("/usr/evil", "w"))
tell("write input", lambda: open("input/evil", "w"))
tell("write program", lambda: open(__file__, "a"))
tell("write cwd", lambda: open("scratch", "w").write("x"))
tell("write tmp", lambda: open("/tmp/x", "w").write("x"))
tell("write home", lambda: open(os.path.expanduser("~/x"), "w").write("x"))
tell("write final", lambda: open("final/x", "w").write("x"))
tell("replace final", lambda: os.rename("final", "elsewhere"))
tell("replace input", lambda: os.rmdir("input"))
tell("input", lambda: open("input/data.txt").read())
tell("stdin", lambda: open(0).read())
tell("secret", lambda: [k for k, v in os.environ.items() if "canary" in v])
tell("threads", lambda: os.environ["OMP_NUM_THREADS"])
tell("cwd", os.getcwd)
tell("pid 1", lambda: open("/proc/1/comm").read().strip())
tell("io_uring", lambda: __import__("ctypes").CDLL(None, use_errno=True).syscall(425, 1, 0))
if os.uname().machine == "x86_64":
    import ctypes, mmap
    code = mmap.mmap(-1, 4096, prot=7)
    code.write(b"\xb8\x14\x00\x00\x00\xc3\x90\x90")  # mov eax, 20; ret
    code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")  # mov eax, 20; int 0x80; ret
    call = lambda at: ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)) + at)()
    tell("own code", lambda: call(0))
    child = os.fork() or call(8) and os._exit(0)
    signal = os.WTERMSIG(os.waitpid(child, 0)[1])
    tell("32-bit call", lambda: "refused" if signal in (31, 11) else signal)  # SIGSYS, or SIGSEGV of a kernel without such calls
else:
    tell("own code", lambda: 20)
    tell("32-bit call", lambda: "refused")
tell("AF_VSOCK", lambda: socket.socket(40, socket.SOCK_STREAM))
tell("swap", lambda: open("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes").read().strip() if os.path.exists("/sys/fs/cgroup/memory") else open("/sys/fs/cgroup/memory.swap.max").read().strip())
`)
	input := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(input, "data.txt"), []byte("data"), 0o644))
	require.NoError(t, os.Chmod(input, 0o755))
	req.Input = input
	req.User = "64646:64646"
	res := run(t, newRunner(t), req)
	require.Equal(t, result.StatusExited, res.Status, res.Stderr)

	got := map[string]string{}
	for line := range strings.Lines(res.Stdout) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		got[key] = value
	}
	for key, want := range map[string]string{
		"uid": "64646:64646", "groups": "[64646]", "CapEff": "0000000000000000", "CapPrm": "0000000000000000",
		"CapBnd": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2",
		"interfaces": "['lo']", "connect": "OSError 101",
		"write /": "OSError 30", "write /usr": "OSError 30", "write input": "OSError 30", "write program": "PermissionError 13",
		"write cwd": "1", "write tmp": "1", "write home": "1", "write final": "1",
		"replace final": "OSError 16", "replace input": "OSError 16",
		"input": "data", "stdin": "", "secret": "[]", "threads": "1", "cwd": "/work", "pid 1": "evalbox-init",
		"io_uring": "-1", "own code": "20", "32-bit call": "refused", "AF_VSOCK": "PermissionError 1",
	} {
		require.Equal(t, want, got[key], key)
	}
	require.Contains(t, []string{"268435456", "0"}, got["swap"])
	entries, err := os.ReadDir(input)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, "none", res.Enforced.Network)
}

func TestEngineOutputsAreCollectedFromFinal(t *testing.T) {
	t.Parallel()
	req := python(t, `
import os, socket
os.makedirs("final/models/best")
open("final/models/best/weights.bin", "wb").write(b"\x00" * 1000)
open("final/submission.csv", "w").write("id,label\n1,3\n")
os.symlink("/etc/passwd", "final/link")
os.symlink("/etc", "final/folder")
os.mkfifo("final/fifo")
socket.socket(socket.AF_UNIX).bind("final/socket")
open("final/huge", "w").truncate(15 << 30)
open(b"final/odd\xff\n", "w").write("odd")
os.chmod("final/models", 0)
`)
	final := filepath.Join(t.TempDir(), "out")
	require.NoError(t, os.Mkdir(final, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(final, "stale.csv"), []byte("old"), 0o644))
	before, err := os.Stat(final)
	require.NoError(t, err)
	req.Final = final
	res := run(t, newRunner(t), req)
	require.Equal(t, 0, res.ExitCode, res.Stderr)

	sum := sha256.Sum256([]byte("id,label\n1,3\n"))
	var paths []string
	for _, out := range res.Outputs {
		paths = append(paths, out.Path)
		if out.Path == "submission.csv" {
			require.Equal(t, hex.EncodeToString(sum[:]), out.SHA256)
			require.EqualValues(t, 13, out.SizeBytes)
		}
	}
	if os.Geteuid() == 0 {
		require.Equal(t, []string{"models/best/weights.bin", `odd\xff\n`, "submission.csv"}, paths)
	}
	skipped := map[string]string{}
	for _, s := range res.OutputsSkipped {
		skipped[s.Path] = s.Kind
	}
	require.Equal(t, map[string]string{"link": "symlink", "folder": "symlink", "fifo": "fifo", "socket": "socket",
		"huge": "file"}, skipped)

	require.NoFileExists(t, filepath.Join(final, "stale.csv"), "final is emptied first")
	after, err := os.Stat(final)
	require.NoError(t, err)
	require.Equal(t, before.Sys().(*syscall.Stat_t).Uid, after.Sys().(*syscall.Stat_t).Uid, "as before")
	require.NoError(t, filepath.WalkDir(final, func(path string, _ fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := os.Lstat(path)
		require.NoError(t, err)
		require.Equal(t, before.Sys().(*syscall.Stat_t).Uid, info.Sys().(*syscall.Stat_t).Uid, path)
		return nil
	}))
}

func TestEngineStreamsAreComplete(t *testing.T) {
	t.Parallel()
	req := python(t, `
import os, sys
for i in range(3):
    os.write(1, b"\xe2\x82"); os.write(2, b"\xff"); os.write(1, b"\xac")
sys.stdout.write("o" * 3_000_000); sys.stderr.write("e" * 2_000_000)
print("\nFinal Validation Performance: 0.125", flush=True)
`)
	var stdout, stderr bytes.Buffer
	streams := sandbox.IO{Stdout: &stdout, Stderr: &stderr}
	res := run(t, newRunner(t), req, streams)
	require.EqualValues(t, 9+3_000_000+37, res.StdoutBytes)
	require.EqualValues(t, 3+2_000_000, res.StderrBytes)
	require.EqualValues(t, res.StdoutBytes, stdout.Len())
	require.EqualValues(t, res.StderrBytes, stderr.Len())
	require.True(t, strings.HasPrefix(res.Stdout, "€€€ooo"))
	require.True(t, strings.HasPrefix(res.Stderr, "\ufffd\ufffd\ufffdeee"))
	require.True(t, res.StdoutTruncated)
	require.Equal(t, 0.125, *res.Score)
}

func TestEngineFileOfAStreamIsBounded(t *testing.T) {
	t.Parallel()
	req := python(t, "import sys\nfor i in range(300): sys.stdout.write('x' * 9999 + '\\n')\nprint('Final Validation Performance: 1')")
	req.Limits.StreamFile = policy.MiB
	r := newRunner(t)
	var live bytes.Buffer
	streams := sandbox.IO{Stdout: &live}
	res := run(t, r, req, streams)
	record, err := r.Store().Get(res.ID)
	require.NoError(t, err)
	info, err := os.Stat(record.StdoutPath())
	require.NoError(t, err)
	require.EqualValues(t, policy.MiB, info.Size())
	require.EqualValues(t, res.StdoutBytes, live.Len(), "what the file does not keep is still passed on")
	require.Contains(t, strings.Join(res.Warnings, "\n"), "stdout.log holds the first 1048576 of 3000032 bytes")
	require.Equal(t, 1.0, *res.Score)
}

func TestEngineCancel(t *testing.T) {
	t.Parallel()
	req := python(t, "import time\nprint('started')\ntime.sleep(600)")
	ctx, cancel := context.WithCancel(t.Context())
	streams := sandbox.IO{Stdout: afterLine("started", cancel)}
	res, err := newRunner(t).Run(ctx, req, streams)
	require.NoError(t, err)
	require.Equal(t, result.StatusCanceled, res.Status)
	require.Equal(t, "started\n", res.Stdout)
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestEngineTellsWhoStoppedTheProgram kills the container from outside: the exit
// code is the same as if the program had died by itself.
func TestEngineTellsWhoStoppedTheProgram(t *testing.T) {
	t.Parallel()
	req := python(t, "import time\nprint('started')\ntime.sleep(600)")
	req.ID = "outside-" + fmt.Sprint(os.Getpid())
	api := testAPI(t)
	streams := sandbox.IO{Stdout: afterLine("started", func() {
		go func() { _ = api.ContainerKill(context.Background(), "evalbox-"+req.ID, "SIGTERM") }()
	})}
	res := run(t, newRunner(t), req, streams)
	require.Equal(t, result.StatusSignaled, res.Status)
	require.Equal(t, result.FaultOperator, res.Fault)
	require.Equal(t, 143, res.ExitCode)
	require.Contains(t, res.Explanation, "Somebody else stopped the program: SIGTERM")
}

// TestEngineTellsWhoKilledTheContainer: nobody knows how the program would have ended.
func TestEngineTellsWhoKilledTheContainer(t *testing.T) {
	t.Parallel()
	req := python(t, "import time\nprint('started')\ntime.sleep(600)")
	req.ID = "killed-" + fmt.Sprint(os.Getpid())
	api := testAPI(t)
	streams := sandbox.IO{Stdout: afterLine("started", func() {
		go func() { _ = api.ContainerKill(context.Background(), "evalbox-"+req.ID, "SIGKILL") }()
	})}
	res, err := newRunner(t).Run(t.Context(), req, streams)
	require.ErrorContains(t, err, "somebody else killed the container")
	require.Equal(t, result.StatusEngineLost, res.Status)
	require.Equal(t, result.FaultOperator, res.Fault)
	require.Equal(t, -1, res.ExitCode)
	require.Equal(t, "started\n", res.Stdout)
}

// TestEngineContainerThatVanishesIsNotTheProgramsFault removes the container
// under its run. Whether the kill or the absence is seen first is a matter of
// luck; the program is not to blame either way.
func TestEngineContainerThatVanishesIsNotTheProgramsFault(t *testing.T) {
	t.Parallel()
	req := python(t, "import time\nprint('started')\ntime.sleep(600)")
	req.ID = "vanish-" + fmt.Sprint(os.Getpid())
	api := testAPI(t)
	streams := sandbox.IO{Stdout: afterLine("started", func() {
		go func() {
			_ = api.ContainerRemove(context.Background(), "evalbox-"+req.ID, container.RemoveOptions{Force: true})
		}()
	})}
	res, err := newRunner(t).Run(t.Context(), req, streams)
	require.Error(t, err)
	require.Equal(t, result.StatusEngineLost, res.Status)
	require.NotEqual(t, result.FaultProgram, res.Fault)
	require.Equal(t, "started\n", res.Stdout)
}

func TestEngineOneFinalForTwoRunsIsRefused(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	final := filepath.Join(t.TempDir(), "final")
	first := python(t, "import time\nprint('started')\ntime.sleep(600)")
	first.Final = final
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var second error
	streams := sandbox.IO{Stdout: afterLine("started", func() {
		req := python(t, "print(1)")
		req.Final = final
		_, second = r.Run(t.Context(), req)
		cancel()
	})}
	_, err := r.Run(ctx, first, streams)
	require.NoError(t, err)
	require.ErrorIs(t, second, sandbox.ErrBusy)
	records, err := r.Store().List()
	require.NoError(t, err)
	require.Len(t, records, 1, "the refused run leaves no record")
}

func TestEngineImageMissing(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	req := python(t, "print(1)")
	req.Image = "no/such:image"
	_, err := r.Run(t.Context(), req)
	require.ErrorIs(t, err, images.ErrNotFound)
	records, err := r.Store().List()
	require.NoError(t, err)
	require.Empty(t, records)
}

func TestEngineAway(t *testing.T) {
	t.Parallel()
	api, err := client.NewClientWithOpts(client.WithHost("unix://" + filepath.Join(t.TempDir(), "none.sock")))
	require.NoError(t, err)
	r, err := sandbox.New(sandbox.WithEngine(docker.New(api)), sandbox.WithStateDir(t.TempDir()))
	require.NoError(t, err)
	req := python(t, "print(1)")
	req.Image = "debian"
	_, err = r.Run(t.Context(), req)
	require.ErrorIs(t, err, sandbox.ErrEngineUnavailable)
	require.NotErrorIs(t, err, sandbox.ErrEnginePermission)
}

// TestEngineResourcesAreMeasured compares with what the program knows of itself.
func TestEngineResourcesAreMeasured(t *testing.T) {
	t.Parallel()
	req := python(t, "import time\nb = bytearray(100 << 20)\nend = time.process_time() + 1\nwhile time.process_time() < end: pass\nprint(time.process_time())\n")
	res := run(t, newRunner(t), req)
	own, err := strconv.ParseFloat(strings.TrimSpace(res.Stdout), 64)
	require.NoError(t, err)
	require.Greater(t, res.Resources.PeakMemoryBytes, int64(100<<20))
	require.Less(t, res.Resources.PeakMemoryBytes, int64(200<<20))
	require.GreaterOrEqual(t, res.Resources.CPUSeconds, own-0.05)
	require.Less(t, res.Resources.CPUSeconds, 3*own) // Python and the container end after that
	require.NotEmpty(t, res.Resources.Source)
	require.Positive(t, res.SetupSeconds)
}

// TestEngineOwnerThatDiesIsCleanedUpAfter kills a controller with SIGKILL while
// its program runs; another finds what is left on the engine by its labels.
func TestEngineOwnerThatDiesIsCleanedUpAfter(t *testing.T) {
	t.Parallel()
	for way, parts := range map[string]int{spec.TransferBind: 1, spec.TransferCopy: 4} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			state := filepath.Join(t.TempDir(), "state")
			final := filepath.Join(t.TempDir(), "final")
			id := orphan(way)
			owner := startOwner(t, state, final, way)

			r := runnertest.New(t, sandbox.WithStateDir(state))
			report, err := r.GC(t.Context(), sandbox.GCOptions{})
			require.NoError(t, err)
			require.Empty(t, ofRun(report.Removed, id), "a living owner's container was taken")
			require.Len(t, ofRun(report.Left, id), parts)
			kept, err := r.Store().Get(id)
			require.NoError(t, err)
			require.Equal(t, record.Running, kept.State)
			containers, err := r.Containers(t.Context())
			require.NoError(t, err)
			for _, c := range containers {
				require.Empty(t, c.Labels[spec.LabelPart], "a helper is no run")
			}

			require.NoError(t, owner.Process.Kill())
			_, _ = owner.Process.Wait()
			kept, err = r.Store().Get(id)
			require.NoError(t, err)
			require.Equal(t, record.Lost, kept.State)
			report, err = r.GC(t.Context(), sandbox.GCOptions{})
			require.NoError(t, err)
			require.Empty(t, ofRun(report.Removed, id), "its program still runs")
			require.Len(t, ofRun(report.Left, id), parts)
			ctx, cancel := context.WithCancel(t.Context())
			res, err := r.Adopt(ctx, id, sandbox.IO{Stdout: afterLine("started", cancel)})
			require.NoError(t, err)
			require.Equal(t, result.StatusCanceled, res.Status, res.Explanation)
			require.Equal(t, "started\n", res.Stdout)
			require.True(t, res.Recovered && res.OutputComplete)
			require.Len(t, res.Trees, 1)
			require.True(t, res.Trees[0].Complete)
			requireNothingLeft(t, testAPI(t), spec.LabelRun+"="+id)
			info, err := os.Stat(final)
			require.NoError(t, err)
			require.EqualValues(t, os.Getuid(), info.Sys().(*syscall.Stat_t).Uid, "final stays its owner's")
			require.NoError(t, r.Store().Remove(id))
		})
	}
}

// afterLine calls do once the program has printed the whole line: print writes its end by a second
// call.
func afterLine(line string, do func()) io.Writer {
	var seen string
	line += "\n"
	return writerFunc(func(p []byte) (int, error) {
		if !strings.Contains(seen, line) {
			if seen += string(p); strings.Contains(seen, line) {
				do()
			}
		}
		return len(p), nil
	})
}

func ofRun(swept []sandbox.Collected, id string) []sandbox.Collected {
	var found []sandbox.Collected
	for _, s := range swept {
		if s.RunID == id {
			found = append(found, s)
		}
	}
	return found
}
