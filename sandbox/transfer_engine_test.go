//go:build linux

package sandbox_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// inBothWays runs a request with its files mounted and with its files copied.
func inBothWays(t *testing.T, req sandbox.Request) (bind, copied *result.Result, finals map[string]string) {
	t.Helper()
	r := newRunner(t)
	finals = map[string]string{}
	results := map[string]*result.Result{}
	for _, way := range []string{spec.TransferBind, spec.TransferCopy} {
		req.Transfer = way
		req.Final = filepath.Join(t.TempDir(), "final")
		finals[way] = req.Final
		results[way] = run(t, r, req)
		require.Equal(t, way, results[way].Enforced.Transfer)
	}
	return results[spec.TransferBind], results[spec.TransferCopy], finals
}

// TestEngineCopyGivesTheSameResult: how files reach the engine shows nowhere but in
// the field that says it.
func TestEngineCopyGivesTheSameResult(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		program string
		change  func(r *sandbox.Request)
		// outputs, skipped and warnings are how many there must be.
		outputs, skipped, warnings int
	}{
		"score and outputs": {program: `
import os
print(sorted(os.listdir("input")), open("input/sub/data.txt").read(), open("input/link").read(), os.access("input/run", os.X_OK))
print(os.getuid() == os.getgid() != 0, sorted(os.listdir(".")), os.access("final", os.W_OK))
for name in "input/new", "input/sub/data.txt", __file__:
    try: open(name, "w")
    except OSError as e: print(type(e).__name__)
for name in "final", "input":
    try: os.rename(name, "elsewhere")
    except OSError as e: print(e.errno)
os.makedirs("final/models/best")
open("final/models/best/weights.bin", "wb").write(bytes(range(256)) * 4000)
open("final/submission.csv", "w").write("id,label\n1,3\n")
os.makedirs("final/empty/folder")
print("Final Validation Performance: 0.5")`, outputs: 2},
		"hostile outputs": {program: `
import os, socket
os.symlink("/etc/passwd", "final/link"); os.symlink("..", "final/up"); os.symlink("models", "final/folder")
os.mkfifo("final/fifo"); socket.socket(socket.AF_UNIX).bind("final/socket")
os.mkdir("final/models"); open("final/models/w", "w").write("w"); os.chmod("final/models/w", 0); os.chmod("final/models", 0)
for name in "suid", "sgid", "run", "private":
    open("final/" + name, "w").write(name)
os.chmod("final/suid", 0o4755); os.chmod("final/sgid", 0o2755); os.chmod("final/run", 0o711); os.chmod("final/private", 0o600)
for name in b"odd\xff\n", b"-rf", b"\x1b[31m", b"n" * 255, "\u202e\u00e9".encode(), b" ", b"a\\b", b"..."[:3]:
    open(b"final/" + name, "w").write("odd")
os.link("final/run", "final/run-again")
os.chmod("final", 0o700)
`, outputs: 14, skipped: 5},
		"deep": {program: `
import os
os.chdir("final")
for i in range(60):
    open("f", "w").write(str(i)); os.mkdir("d"); os.chdir("d")
`, outputs: 33, skipped: 1, warnings: 1},
		"larger than the limits": {program: `
open("final/huge", "w").truncate(15 << 30)
open("final/large", "w").truncate(3 << 20)
open("final/a", "w").write("a"); open("final/z", "w").write("z")
`, change: func(r *sandbox.Request) { r.Limits.OutputFile = 2 * policy.MiB }, outputs: 2, skipped: 2, warnings: 1},
		"nothing":     {program: "pass"},
		"crash":       {program: "open('final/partial', 'w').write('p'); 1 / 0", outputs: 1},
		"no stdin":    {program: "import sys; print(repr(sys.stdin.read()))"},
		"many":        {program: "for i in range(300): open(f'final/{i}', 'w').write(str(i))", outputs: 300},
		"sparse maps": {program: "f = open('final/s', 'w'); f.seek(5 << 20); f.write('x'); f.seek(9 << 20); f.write('y')", outputs: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := python(t, test.program)
			req.Input = t.TempDir()
			require.NoError(t, os.Chmod(req.Input, 0o755))
			require.NoError(t, os.Mkdir(filepath.Join(req.Input, "sub"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(req.Input, "sub", "data.txt"), []byte("data"), 0o644))
			require.NoError(t, os.WriteFile(filepath.Join(req.Input, "run"), []byte("#!"), 0o755))
			require.NoError(t, os.Symlink("sub/data.txt", filepath.Join(req.Input, "link")))
			if test.change != nil {
				test.change(&req)
			}
			bind, copied, finals := inBothWays(t, req)
			require.Equal(t, bind.ExitCode, copied.ExitCode, copied.Stderr)
			require.Equal(t, bind.Status, copied.Status)
			require.Equal(t, bind.Stdout, copied.Stdout)
			require.Equal(t, bind.Stderr, copied.Stderr)
			require.Equal(t, bind.Score, copied.Score)
			require.Equal(t, bind.Outputs, copied.Outputs)
			require.Equal(t, bind.OutputsSkipped, copied.OutputsSkipped)
			require.Len(t, copied.Outputs, test.outputs)
			require.Len(t, copied.OutputsSkipped, test.skipped)
			require.Equal(t, bind.OutputsLeftOut, copied.OutputsLeftOut)
			require.Len(t, copied.Warnings, test.warnings, "%q", copied.Warnings)
			copied.Enforced.Transfer = bind.Enforced.Transfer
			copied.Enforced.User = bind.Enforced.User // each run has a user of its own
			require.Equal(t, bind.Enforced, copied.Enforced)
			requireHarmless(t, finals[spec.TransferCopy])
		})
	}
}

// TestEngineProgramIsTheSameInEachRun: programs print their user's name and their process ID.
func TestEngineProgramIsTheSameInEachRun(t *testing.T) {
	t.Parallel()
	bound, copied, _ := inBothWays(t, python(t, `
import getpass, grp, os, pwd
del os.environ["USER"], os.environ["LOGNAME"]
print(os.getpid(), getpass.getuser(), pwd.getpwuid(os.getuid()).pw_dir, grp.getgrgid(os.getgid()).gr_name)`))
	for _, res := range []*result.Result{bound, copied} {
		require.Equal(t, result.StatusExited, res.Status, res.Stderr)
		require.Equal(t, "16 sandbox /tmp sandbox\n", res.Stdout)
	}
}

// TestEngineCopyTellsOfWhatHasNoPath: the engine cannot name what lies deeper than
// a path can be long.
func TestEngineCopyTellsOfWhatHasNoPath(t *testing.T) {
	t.Parallel()
	req := python(t, `
import os
open("final/a", "w").write("a")
os.chdir("final")
for i in range(300):
    os.mkdir("d" * 200); os.chdir("d" * 200)
open("f", "w").write("x")
`)
	req.Transfer = spec.TransferCopy
	req.Final = filepath.Join(t.TempDir(), "final")
	res := run(t, newRunner(t), req)
	require.Len(t, res.Outputs, 1)
	require.Len(t, res.OutputsSkipped, 1)
	require.Equal(t, "directory", res.OutputsSkipped[0].Kind)
	require.Contains(t, res.OutputsSkipped[0].Reason, "could not be copied")
	requireHarmless(t, req.Final)
}

// requireHarmless: only files and directories of the run come back.
func requireHarmless(t *testing.T, final string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(final, func(full string, _ fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := os.Lstat(full)
		require.NoError(t, err)
		require.True(t, info.IsDir() || info.Mode().IsRegular(), full)
		require.Zero(t, info.Mode()&^(fs.ModeDir|0o755), full)
		return nil
	}))
}

func TestEngineCopyKeepsTheDiskLimit(t *testing.T) {
	t.Parallel()
	for name, program := range map[string]string{
		"files":     "import time; [open(f'final/{i}', 'wb').write(bytes(6 << 20)) for i in range(4)]; time.sleep(600)",
		"hidden":    "import os, time; os.mkdir('final/d'); [open(f'final/d/{i}', 'wb').write(bytes(6 << 20)) for i in range(4)]; os.chmod('final/d', 0); time.sleep(600)",
		"in a race": "import os\ni = 0\nwhile True:\n    open('final/%d' % i, 'wb').write(bytes(1 << 20)); i += 1\n    if i > 5000: break\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := python(t, program)
			req.Transfer, req.Limits.Disk = spec.TransferCopy, 8*policy.MiB
			req.Limits.OutputTotal = 64 * policy.MiB
			res := run(t, newRunner(t), req)
			require.Equal(t, result.StatusDiskLimit, res.Status, res.Explanation)
			require.Equal(t, result.FaultProgram, res.Fault)
			require.NotEmpty(t, res.Outputs, "what was written so far is kept")
		})
	}
}

// TestEngineCopyGoesOnAfterItsHelpersAreKilled: somebody removes the watcher. A new
// one takes its place, and the limit still holds.
func TestEngineCopyGoesOnAfterItsHelpersAreKilled(t *testing.T) {
	t.Parallel()
	req := python(t, "import time; print('ready'); time.sleep(3); [open(f'final/{i}', 'wb').write(bytes(6 << 20)) for i in range(4)]; time.sleep(600)")
	req.ID = fmt.Sprintf("watched-%d", os.Getpid())
	req.Transfer, req.Limits.Disk = spec.TransferCopy, 8*policy.MiB
	api := testAPI(t)
	streams := sandbox.IO{Stdout: afterLine("ready", func() {
		go func() { _ = api.ContainerKill(t.Context(), "evalbox_watcher-"+req.ID, "SIGKILL") }()
	})}
	res := run(t, newRunner(t), req, streams)
	require.Equal(t, result.StatusDiskLimit, res.Status, res.Explanation)
	require.Equal(t, result.FaultProgram, res.Fault)
}

// TestEngineCopyOutlivesItsCourier: a container that never runs is the first to go
// when somebody tidies up the engine.
func TestEngineCopyOutlivesItsCourier(t *testing.T) {
	t.Parallel()
	api := testAPI(t)
	for name, test := range map[string]struct {
		keep bool
		tidy func(r *sandbox.Runner, id string) error
	}{
		"container prune": {false, func(_ *sandbox.Runner, id string) error {
			return api.ContainerRemove(t.Context(), "evalbox_courier-"+id, container.RemoveOptions{})
		}},
		"gc --kept": {true, func(r *sandbox.Runner, id string) error {
			// Other tests keep containers, too.
			report, err := r.GC(t.Context(), sandbox.GCOptions{Kept: true, DryRun: true})
			if taken := ofRun(report.Removed, id); len(taken) > 0 {
				err = fmt.Errorf("would remove %v", taken)
			}
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRunner(t)
			req := python(t, "print('ready', flush=True); open('final/a', 'w').write(input())")
			req.ID = fmt.Sprintf("untidy-%d-%t", os.Getpid(), test.keep)
			req.Transfer, req.Keep = spec.TransferCopy, test.keep
			stdin, answer := io.Pipe()
			tidied := make(chan error, 1)
			streams := sandbox.IO{Stdin: stdin, Stdout: afterLine("ready", func() {
				err := test.tidy(r, req.ID)
				_, wrote := io.WriteString(answer, "A\n")
				tidied <- errors.Join(err, wrote, answer.Close())
			})}
			res := run(t, r, req, streams)
			require.NoError(t, <-tidied)
			require.Len(t, res.Outputs, 1, res.Warnings)
			e := docker.New(api)
			require.NoError(t, errors.Join(e.Remove(t.Context(), "evalbox-"+res.ID), e.(engine.Copier).RemoveVolume(t.Context(), res.ID)))
		})
	}
}

func TestEngineCopyPassesStdinOn(t *testing.T) {
	t.Parallel()
	req := python(t, "import sys\nprint(sys.stdin.read().upper())")
	req.Transfer = spec.TransferCopy
	streams := sandbox.IO{Stdin: strings.NewReader("from the caller")}
	require.Equal(t, "FROM THE CALLER\n", run(t, newRunner(t), req, streams).Stdout)
}

func TestEngineCopyIsKept(t *testing.T) {
	t.Parallel()
	req := python(t, "open('final/a', 'w').write('a')")
	req.Transfer, req.Keep = spec.TransferCopy, true
	r := newRunner(t)
	res := run(t, r, req)
	require.Len(t, res.Outputs, 1)
	// Its init was let go, and is gone in a moment.
	ended, failed := testAPI(t).ContainerWait(t.Context(), "evalbox-"+res.ID, container.WaitConditionNotRunning)
	select {
	case end := <-ended:
		require.Zero(t, end.StatusCode)
	case err := <-failed:
		require.NoError(t, err)
	}
	report, err := r.GC(t.Context(), sandbox.GCOptions{Kept: true, DryRun: true}) // other tests keep containers, too
	require.NoError(t, err)
	require.Len(t, ofRun(report.Removed, res.ID), 3)
	e := docker.New(testAPI(t))
	require.NoError(t, errors.Join(e.Remove(t.Context(), "evalbox-"+res.ID), e.Remove(t.Context(), spec.HelperName(res.ID)),
		e.(engine.Copier).RemoveVolume(t.Context(), res.ID)))
}

func TestEngineCopyOfAnUnreadableInputLeavesNothing(t *testing.T) {
	t.Parallel()
	req := python(t, "pass")
	req.Transfer = spec.TransferCopy
	req.Input = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(req.Input, "data"), []byte("x"), 0))
	if os.Geteuid() == 0 {
		res := run(t, newRunner(t), req)
		require.Equal(t, 0, res.ExitCode, "root reads everything, and so does the program")
		return
	}
	r := newRunner(t)
	_, err := r.Run(t.Context(), req)
	require.ErrorIs(t, err, fs.ErrPermission)
	records, err := r.Store().List()
	require.NoError(t, err)
	require.Empty(t, records)
}

// TestEngineSharesFiles: the real engine has our files, and its containers' init says so.
func TestEngineSharesFiles(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	for _, way := range []string{"", spec.TransferAuto, spec.TransferBind} {
		req := python(t, "print(open('input/data').read())")
		req.Transfer, req.Input = way, t.TempDir()
		require.NoError(t, os.Chmod(req.Input, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(req.Input, "data"), []byte("data"), 0o644))
		res := run(t, r, req)
		require.Equal(t, "data\n", res.Stdout)
		require.Equal(t, spec.TransferBind, res.Enforced.Transfer)
	}
}
