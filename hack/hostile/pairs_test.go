//go:build linux

package hostile

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/probe"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// A pair is two runs side by side. The first one takes or leaves something, and waits until
// the second one has answered.
type pair struct {
	name, first, second string
	want                string // of the second; of the first it is "done"
	under               []probe.TraitAnswer
	bounded             bool // it needs a limit of processes
}

// meet is the beginning of both programs: the first one says on stdout that it is ready.
const meet = `
import errno, os, sys, time
def word(f):
    try: return f()
    except OSError as e: return errno.errorcode.get(e.errno, str(e))
`

// finish is the end of the first program: it waits for its stdin, which the test closes when
// the second program has ended.
const finish = "\nprint('ready', flush=True)\nsys.stdin.read()\nprint('done')"

func pairs() []pair {
	const marker = `
import socket
MARK = 'evalbox-marker-of-a-run'
def marks():
    seen = []
    for base in ('/tmp', '/dev/shm', '/dev/mqueue', '/work', '/var/tmp', '/run', os.path.expanduser('~')):
        if os.path.isdir(base): seen += [base + '/' + n for n in os.listdir(base) if MARK in n]
    seen += [line for kind in ('shm', 'sem', 'msg') if os.path.exists('/proc/sysvipc/' + kind) for line in open('/proc/sysvipc/' + kind) if '20202020' in line]
    if os.path.exists('/proc/net/unix'): seen += [line for line in open('/proc/net/unix') if MARK in line]
    seen += [n for n in os.listdir('/proc') if n.isdigit() and MARK.encode() in (word(lambda: open('/proc/%s/cmdline' % n, 'rb').read()) if os.path.exists('/proc/%s/cmdline' % n) else b'')]
    seen += [k for k, v in os.environ.items() if MARK in v]
    return seen
`
	return []pair{
		{name: "marks of the first run", first: marker + `
import ctypes, mmap
for base in ('/tmp', '/dev/shm', '/work'): open(base + '/' + MARK, 'w').write(MARK)
libc = ctypes.CDLL(None)
libc.shmget(20202020, 4096, 0o1666); libc.semget(20202020, 1, 0o1666); libc.msgget(20202020, 0o1666)
libc.mq_open(b'/' + MARK.encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
s = socket.socket(socket.AF_UNIX); s.bind('\0' + MARK)
assert len(marks()) >= 3, marks()`, second: marker + "print(marks() or 'none')", want: "none"},
		{name: "locks of the input", first: `
import fcntl
held = open('input/data.txt')
fcntl.flock(held, fcntl.LOCK_SH)
print('locked', word(lambda: fcntl.flock(open('input/more/numbers.csv'), fcntl.LOCK_EX | fcntl.LOCK_NB)))`, second: `
print(open('input/data.txt').read(), open('input/more/numbers.csv').read().strip())`, want: "data of the input 1,2"},
		{name: "the same port", first: `
import socket
s = socket.create_server(('127.0.0.1', 8899))`, second: `
import socket
print(word(lambda: socket.create_connection(('127.0.0.1', 8899), 3)), word(lambda: socket.create_server(('127.0.0.1', 8899)).close()))`, want: "ECONNREFUSED None"},
		{name: "the same name of a socket", first: `
import socket
s = socket.socket(socket.AF_UNIX); s.bind('\0evalbox-name'); s.listen()`, second: `
import socket
s = socket.socket(socket.AF_UNIX)
print(word(lambda: s.connect('\0evalbox-name')), word(lambda: socket.socket(socket.AF_UNIX).bind('\0evalbox-name')))`, want: "ECONNREFUSED None"},
		{name: "shared memory by its key", first: `
import ctypes
libc = ctypes.CDLL(None)
assert libc.shmget(0x7eba1, 4096, 0o1666) >= 0`, second: `
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
n = libc.shmget(0x7eba1, 0, 0)
print(n if n >= 0 else errno.errorcode[ctypes.get_errno()])`, want: "ENOENT"},
		{name: "a named semaphore", first: `
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.sem_open.restype = ctypes.c_void_p
assert libc.sem_open(b'/evalbox', os.O_CREAT, 0o666, 1)`, second: `
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.sem_open.restype = ctypes.c_void_p
print('open' if libc.sem_open(b'/evalbox', 0) else errno.errorcode[ctypes.get_errno()])`, want: "ENOENT"},
		{name: "signals to the other", first: `
import signal
signal.signal(signal.SIGTERM, lambda *_: print('hit', flush=True))`, second: `
import signal
sent = [n for n in range(2, 5000) if n not in (os.getpid(), os.getppid()) and word(lambda: os.kill(n, signal.SIGTERM)) is None]
print(sent or 'none')`, want: "none"},
		{name: "the processes of the other", first: "time.sleep(0)", second: `
print([n for n in os.listdir('/proc') if n.isdigit() and int(n) not in (1, os.getpid())] or 'none')`, want: "none"},
		{name: "the memory of the other", first: "kept = bytearray(100 << 20)", second: `
kept = bytearray(100 << 20)
print(len(kept) >> 20)`, want: "100"},
		{name: "all processes of the first", bounded: true, first: `
import signal
children = []
try:
    while True:
        child = os.fork()
        if child == 0: signal.pause()
        children.append(child)
except OSError: pass`, second: `
children = []
for i in range(5):
    child = os.fork()
    if child == 0: os._exit(0)
    children.append(child)
print(len([os.waitpid(c, 0) for c in children]))`, want: "5"},
		{name: "a full disk of the first", first: `
with open('/tmp/full', 'wb') as f:
    word(lambda: [f.write(bytes(1 << 20)) for n in range(4096)])`, second: `
with open('/tmp/mine', 'wb') as f: print(f.write(bytes(8 << 20)))`, want: "8388608"},
		{name: "the processors of the first", first: "for i in range(4):\n    if os.fork() == 0:\n        while True: pass", second: `
begin = time.process_time()
while time.process_time() - begin < 0.2: pass
print('worked')`, want: "worked"},
		{name: "the outputs of the other", first: "open('final/result', 'w').write('first')", second: `
print(os.listdir('final'))
open('final/result', 'w').write('second')`, want: "[]"},
		{name: "a name of the first in the second", first: `
import ctypes
libc = ctypes.CDLL(None)
libc.prctl(15, b'evalbox-first', 0, 0, 0)`, second: `
print([n for n in os.listdir('/proc') if n.isdigit() and 'evalbox-first' in open('/proc/%s/comm' % n).read()] or 'none')`, want: "none"},
	}
}

// TestEnginePairs runs two programs side by side on one input.
func TestEnginePairs(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("two runs side by side: make test-all")
	}
	p := place(t)
	for _, c := range pairs() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.bounded && p.Machine.Pod {
				t.Skip("a run in a pod cannot have a limit of its processes")
			}
			v := probe.Verdict{Group: "pairs", Name: c.name}
			v.Differs = c.differences(t, p)
			report(t, v)
		})
	}
}

func (c pair) differences(t *testing.T, p probe.Place) (differs []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	base := tempDir(t)
	input := filepath.Join(base, "input")
	require.NoError(t, os.MkdirAll(filepath.Join(input, "more"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(input, "data.txt"), []byte("data of the input"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(input, "more", "numbers.csv"), []byte("1,2\n"), 0o644))
	request := func(name, program string) sandbox.Request {
		script := filepath.Join(base, name+".py")
		require.NoError(t, os.WriteFile(script, []byte(program), 0o644))
		req := p.Request
		req.Script, req.Input, req.Final = script, input, filepath.Join(base, name+"-final")
		req.Limits = policy.Limits{Timeout: 2 * time.Minute, Memory: 256 * policy.MiB, CPUs: 1}
		if !spec.OwnKernel(p.Machine.Runtime) {
			req.Limits.PIDs = p.Machine.PIDs(64) // gVisor needs more for itself
		}
		return req
	}
	hold, letGo, err := os.Pipe()
	require.NoError(t, err)
	defer hold.Close()
	ready := make(chan struct{})
	type end struct {
		res *result.Result
		err error
	}
	first := make(chan end, 1)
	go func() {
		res, err := p.Runner.Run(ctx, request("first", meet+c.first+finish), sandbox.IO{Stdin: hold, Stdout: &signalWriter{text: "ready\n", ready: ready}})
		first <- end{res, err}
	}()
	select {
	case <-ready:
	case e := <-first:
		require.NoError(t, errClosed(letGo, e.err))
		return []string{"the first run ended early: " + e.res.Explanation + " " + e.res.Stderr}
	}
	second, err := p.Runner.Run(ctx, request("second", meet+c.second))
	require.NoError(t, errClosed(letGo, err))
	e := <-first
	require.NoError(t, e.err)
	want := c.want
	for _, u := range c.under {
		if p.Machine.Traits()[u.Trait] {
			want = u.Want
		}
	}
	if got := strings.TrimSpace(second.Stdout); got != want || second.Status != result.StatusExited || second.ExitCode != 0 {
		differs = append(differs, fmt.Sprintf("the second run (%s %d) says %q, not %q: %s", second.Status, second.ExitCode, got, want, second.Stderr))
	}
	lines := strings.Fields(e.res.Stdout)
	if e.res.Status != result.StatusExited || e.res.ExitCode != 0 || len(lines) == 0 || lines[len(lines)-1] != "done" || slices.Contains(lines, "hit") {
		differs = append(differs, fmt.Sprintf("the first run (%s %d) says %q: %s", e.res.Status, e.res.ExitCode, e.res.Stdout, e.res.Stderr))
	}
	for _, o := range append(slices.Clone(e.res.Outputs), second.Outputs...) {
		text, err := os.ReadFile(filepath.Join(base, map[int64]string{5: "first", 6: "second"}[o.SizeBytes]+"-final", o.Path))
		require.NoError(t, err)
		if len(text) != int(o.SizeBytes) {
			differs = append(differs, "the outputs were mixed")
		}
	}
	return differs
}

func errClosed(f *os.File, err error) error {
	if closeErr := f.Close(); err == nil {
		return closeErr
	}
	return err
}

// signalWriter reports that a text was written.
type signalWriter struct {
	text, seen string
	ready      chan struct{}
}

func (w *signalWriter) Write(p []byte) (int, error) {
	was := strings.Contains(w.seen, w.text)
	w.seen += string(p)
	if !was && strings.Contains(w.seen, w.text) {
		close(w.ready)
	}
	return len(p), nil
}
