//go:build linux

package sandbox_test

import (
	"bufio"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// pairProgram defines, for each quota that the kernel keeps for a user or for the machine, a
// function that takes one piece of it and raises OSError when there is none.
const pairProgram = `
import ctypes, errno, fcntl, os, sys
libc = ctypes.CDLL(None, use_errno=True)

def checked(value):
    if value < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return value

def inotify(n):
    return checked(libc.inotify_init1(0))

def pipes(n):
    ends = os.pipe()
    if fcntl.fcntl(ends[0], 1032) < 65536:  # F_GETPIPE_SZ
        raise OSError(errno.EPERM, "a small pipe")
    return ends

def timers(n):
    timer = ctypes.c_void_p()
    return checked(libc.timer_create(0, None, ctypes.byref(timer)))

def queues(n):
    return checked(libc.mq_open(b"/queue-%d" % n, os.O_CREAT | os.O_RDWR, 0o600, None))

def terminals(n):
    return os.openpty()

everything = [inotify, pipes, timers, queues, terminals]
kept = []
`

// hog takes all there is, and holds it until its stdin ends.
const hog = pairProgram + `
for take in everything:
    count = 0
    try:
        while count < 200000:
            kept.append(take(count))
            count += 1
    except OSError as error:
        print(take.__name__, "all", count > 0, errno.errorcode[error.errno])
print("taken", flush=True)
sys.stdin.read()
`

// neighbor takes a little of everything.
const neighbor = pairProgram + `
for take in everything:
    try:
        for count in range(4):
            kept.append(take(count))
        print(take.__name__, "works")
    except OSError as error:
        print(take.__name__, "fails:", error)
`

// TestEngineRunsTakeNothingFromEachOther: a run that uses up every quota of its user leaves
// its neighbor what it needs. The control shows that runs which share a user do not.
func TestEngineRunsTakeNothingFromEachOther(t *testing.T) {
	if os.Getuid() > 0 {
		t.Fatal("root is needed: other callers have one user for all programs, which the result says")
	}
	for name, test := range map[string]struct {
		user  string // empty: every run has its own
		works string
	}{
		"own users": {works: "inotify works\npipes works\ntimers works\nqueues works\nterminals works\n"},
		// No other test has this user: what its programs take and return would count as well.
		"one for both": {user: "64647:64647",
			works: "inotify fails: [Errno 24] Too many open files\npipes fails: [Errno 1] a small pipe\n" +
				"timers fails: [Errno 11] Resource temporarily unavailable\nqueues fails: [Errno 24] Too many open files\nterminals works\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRunner(t)
			stdin, endHog := io.Pipe()
			output, stdout := io.Pipe()
			defer endHog.Close()
			req := python(t, hog)
			req.Limits.NoFile, req.User = 8192, test.user
			var hogged *result.Result
			done := make(chan error, 1)
			go func() {
				var err error
				hogged, err = r.Run(t.Context(), req, sandbox.IO{Stdin: stdin, Stdout: stdout})
				stdout.Close()
				done <- err
			}()
			lines := bufio.NewScanner(output)
			for lines.Scan() && lines.Text() != "taken" {
				t.Log("hog:", lines.Text())
			}
			require.Equal(t, "taken", lines.Text())

			beside := python(t, neighbor)
			beside.User = test.user
			res := run(t, r, beside)
			t.Log(res.Stdout)
			require.Equal(t, test.works, res.Stdout)
			require.NoError(t, endHog.Close())
			go io.Copy(io.Discard, output) // until the stream ends
			require.NoError(t, <-done)
			for _, take := range []string{"inotify", "pipes", "timers", "queues", "terminals"} {
				require.Contains(t, hogged.Stdout, take+" all True", "the hog came to the end of it")
			}
			require.Equal(t, test.user == "", hogged.Enforced.User != res.Enforced.User)
			require.NotEqual(t, spec.DedicatedUser, hogged.Enforced.User)
			require.NotContains(t, strings.ToLower(res.Stderr), "error")
		})
	}
}
