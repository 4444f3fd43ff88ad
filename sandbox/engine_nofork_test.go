//go:build linux

package sandbox_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const noForkProgram = `
import ctypes, multiprocessing, os, subprocess, sys, threading
def tried(name, do):
    try: print(name, "WORKS", do())
    except OSError as e: print(name, type(e).__name__, e.errno)
tried("fork", os.fork)
tried("subprocess", lambda: subprocess.run(["true"]))
tried("spawn", lambda: os.posix_spawn("/bin/true", ["true"], {}))
p = multiprocessing.Process(target=print)
tried("multiprocessing", p.start)
libc = ctypes.CDLL(None, use_errno=True)
def raw(*args):
    n = libc.syscall(*args)
    if n < 0: raise OSError(ctypes.get_errno(), "")
    return n
CLONE_VM, CLONE_VFORK, CLONE_NEWUSER, CLONE_PARENT = 0x100, 0x4000, 0x10000000, 0x8000
if os.uname().machine == "x86_64":
    tried("raw fork", lambda: raw(57))
    tried("raw vfork", lambda: raw(58))
    for flags in 17, 17 | CLONE_VM | CLONE_VFORK, 17 | CLONE_PARENT, 17 | CLONE_NEWUSER:
        tried("raw clone", lambda: raw(56, flags, 0, 0, 0, 0))
    tried("raw clone3", lambda: raw(435, 0, 0))
    tried("thread in a namespace", lambda: raw(56, 0x10000 | CLONE_NEWUSER | CLONE_VM | 0x800, 0, 0, 0, 0))
got = []
threads = [threading.Thread(target=got.append, args=(i,)) for i in range(20)]
for t in threads: t.start()
for t in threads: t.join()
print("threads", len(got))
import numpy
print("numpy", float((numpy.ones((300, 300)) @ numpy.ones((300, 300)))[0][0]))
from concurrent.futures import ThreadPoolExecutor
print("pool", sum(ThreadPoolExecutor(8).map(abs, range(100))))
sys.stdout.flush()
os.execvp("sh", ["sh", "-c", "echo exec; exit 3"])
`

func TestEngineNoFork(t *testing.T) {
	t.Parallel()
	req := python(t, noForkProgram)
	req.NoFork = true
	res := run(t, newRunner(t), req)
	require.Equal(t, 3, res.ExitCode, res.Stderr)
	require.NotContains(t, res.Stdout, "WORKS")
	for _, line := range []string{"fork PermissionError 1", "subprocess PermissionError 1", "spawn PermissionError 1", "multiprocessing PermissionError 1",
		"threads 20", "numpy 300.0", "pool 4950", "exec"} {
		require.Contains(t, res.Stdout, line+"\n")
	}
	require.Contains(t, res.Enforced.Seccomp, "no processes")
}

// TestEngineSmallestProcessLimits: the limit is the program's, and nothing of evalbox counts.
func TestEngineSmallestProcessLimits(t *testing.T) {
	t.Parallel()
	const program = `
import threading, time
n = 0
try:
    while True:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); n += 1
except RuntimeError: print("further", n, flush=True)
import os; os._exit(0)
`
	for _, test := range []struct {
		pids   int64
		noFork bool
		want   string
	}{{1, false, "further 0\n"}, {2, false, "further 1\n"}, {12, false, "further 11\n"}, {1, true, "further 0\n"}, {2, true, "further 1\n"}} {
		req := python(t, program)
		req.Limits.PIDs, req.NoFork = test.pids, test.noFork
		for range 5 {
			res := run(t, newRunner(t), req)
			require.Equal(t, test.want, res.Stdout, "%v: %s", test, res.Stderr)
			require.Equal(t, test.pids, res.Enforced.PIDs)
		}
	}
}
