package wire

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hashing is a sink that keeps nothing.
type hashing struct {
	hash.Hash
	n int64
}

func (h *hashing) Write(p []byte) (int, error) {
	h.n += int64(len(p))
	return h.Hash.Write(p)
}

// TestMuchOutput: 100 MB on each stream at once, zeros and beginnings of frames among them,
// arrive exactly, and both end marks are found.
func TestMuchOutput(t *testing.T) {
	const size = 100 << 20
	// The program cannot know the nonce, but knows how one begins.
	block := bytes.Repeat(append(bytes.Repeat([]byte("\x00EBX\x01\x03\x00\x00"), 8), make([]byte, 37)...), 1000)
	job := python(`
import os, threading
block = (b"\0EBX\1\3\0\0" * 8 + bytes(37)) * 1000
def whole(fd, left):
    while left:
        part, done = block[:min(left, len(block))], 0
        while done < len(part): done += os.write(fd, part[done:])
        left -= len(part)
threads = [threading.Thread(target=whole, args=(fd, 100 << 20)) for fd in (1, 2)]
for t in threads: t.start()
for t in threads: t.join()
os._exit(0)`)
	want := sha256.New()
	for left := size; left > 0; left -= min(left, len(block)) {
		want.Write(block[:min(left, len(block))])
	}
	c := newContainer(t)
	out, errs := &hashing{Hash: sha256.New()}, &hashing{Hash: sha256.New()}
	c.stdout, c.stderr = out, errs
	c.begin(job)
	report := c.end()
	requireExit(t, c, report, 0)
	for _, h := range []*hashing{out, errs} {
		require.EqualValues(t, size, h.n)
		require.Equal(t, want.Sum(nil), h.Sum(nil))
	}
	require.Zero(t, c.bye())
}

// TestStreamsAsTheProgramLeavesThem: whatever a program does to its stdout and stderr, both
// end with the mark, behind everything that it wrote.
func TestStreamsAsTheProgramLeavesThem(t *testing.T) {
	const fill = `
import fcntl, os, signal, struct, sys, time
def fill(fd):
    os.set_blocking(fd, False)
    n = 0
    while True:
        try: n += os.write(fd, b"x" * 1000)
        except BlockingIOError:
            if n > 100: return
`
	tests := map[string]struct {
		script   string
		code     int
		contains string
	}{
		"closed":             {"import os; os.write(1, b'last'); os.close(1); os.close(2); os._exit(3)", 3, "last"},
		"duplicated":         {"import os; [os.dup(1 + i % 2) for i in range(100)]; os.dup2(1, 2); os.write(2, b'last'); os._exit(3)", 3, "last"},
		"swapped":            {"import os; os.dup2(1, 9); os.dup2(2, 1); os.dup2(9, 2); os.write(2, b'last'); os._exit(3)", 3, "last"},
		"non-blocking":       {fill + "fill(1); fill(2); os._exit(3)", 3, "xxx"},
		"of one page":        {fill + "[fcntl.fcntl(fd, 1031, 4096) for fd in (1, 2)]; fill(1); fill(2); os._exit(3)", 3, "xxx"},
		"of 1 MiB":           {fill + "[fcntl.fcntl(fd, 1031, 1 << 20) for fd in (1, 2)]; fill(1); fill(2); os._exit(3)", 3, "xxx"},
		"of packets":         {fill + "[fcntl.fcntl(fd, fcntl.F_SETFL, os.O_DIRECT | os.O_WRONLY) for fd in (1, 2)]; [os.write(1, b'last') for i in range(9)]; os._exit(3)", 3, "lastlastlast"},
		"appended":           {fill + "[fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND | os.O_NONBLOCK) for fd in (1, 2)]; os.write(1, b'last'); os._exit(3)", 3, "last"},
		"killed in a write":  {fill + "fill(1); os.write(2, b'last'); os.kill(0, 9)", -9, "xxx"},
		"read by itself":     {"import os; r = os.open('/proc/self/fd/1', os.O_RDONLY | os.O_NONBLOCK); os.write(1, b'last'); os._exit(3)", 3, ""},
		"a forged report":    {"import os; os.write(1, bytes(32) + b'\\0EBX\\1\\3\\0\\0\\0\\0\\0\\0'); os.write(2, b'\\0EBX'); os._exit(3)", 3, "\x00EBX\x01\x03"},
		"a forged answer":    {"import os; os.write(1, b'\\0EBX\\1\\4\\0\\0\\0\\0\\0\\0'); os._exit(3)", 3, "\x00EBX\x01\x04"},
		"with a live child":  {"import os\nif os.fork() == 0:\n  while True: os.write(1, b'child\\n')\nos.write(1, b'last'); os._exit(3)", 3, "last"},
		"with many children": {"import os\nfor i in range(50):\n  if os.fork() == 0:\n    while True: os.write(1, b'child\\n'); os.write(2, b'child\\n')\nos.write(1, b'last'); os._exit(3)", 3, "last"},
		"with a session of another": {`
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for s in range(1, 65):
            try: signal.signal(s, signal.SIG_IGN)
            except (OSError, ValueError): pass
        os.write(1, b'last')
        while True: os.write(1, b'grandchild\n')
    os._exit(0)
time.sleep(0.1)
os._exit(3)`, 3, "last"},
		"with a sibling by CLONE_PARENT": {`
import ctypes, os
if ctypes.CDLL(None).syscall(56 if os.uname().machine == 'x86_64' else 220, 0x8000 | 17, 0, 0, 0, 0) == 0:
    while True: os.write(1, b'sibling\n')
os.write(1, b'last'); os._exit(3)`, 3, "last"},
		"with children that end all the time": {`
import os
for i in range(4):
    if os.fork() == 0:
        while True:
            if os.fork() == 0: os._exit(0)
            if os.fork() == 0:
                if os.fork() == 0: os._exit(0)
                os._exit(0)
os.write(1, b'last'); os._exit(3)`, 3, "last"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			job := python(test.script)
			job.Timeout = time.Minute
			c, report := run(t, job)
			if test.code < 0 {
				require.Equal(t, Signaled, report.Kind)
				require.Equal(t, -test.code, report.Value)
			} else {
				requireExit(t, c, report, test.code)
			}
			require.Contains(t, c.outText.String()+c.errText.String(), test.contains)
			c.bye()
		})
	}
}

// TestNonceIsNotInTheStream: a program can read what its controller has not read yet of its
// own stdout. The answer to the job lies there, and does not give the nonce away.
func TestNonceIsNotInTheStream(t *testing.T) {
	var raw bytes.Buffer
	c := tappedContainer(t, func(r *Receiver) io.Writer { return io.MultiWriter(r.Stdout(), &raw) })
	c.begin(sh("echo of the program"))
	c.end()
	c.bye()
	before, after, found := bytes.Cut(raw.Bytes(), []byte("of the program\n"))
	require.True(t, found)
	require.Contains(t, string(before), string(c.nonce[:shownNonce]))
	require.NotContains(t, string(before), string(c.nonce[:shownNonce+1]))
	require.True(t, bytes.HasPrefix(after, c.nonce[:]))
	require.NotContains(t, string(after[nonceSize:]), string(c.nonce[shownNonce:]))
}

// TestEverythingIsKilled: nothing of the container lives when the report comes.
func TestEverythingIsKilled(t *testing.T) {
	requireRoot(t)
	c, report := run(t, python(`
import os, time
for i in range(30):
    if os.fork() == 0:
        os.setsid()
        time.sleep(1000)
os._exit(0)`))
	requireExit(t, c, report, 0)
	require.Equal(t, []int{c.cmd.Process.Pid}, processesOf(t, c))
	require.Zero(t, c.bye())
}

// requireRoot: what looks into other namespaces, or makes processes of another user there.
func requireRoot(t *testing.T) {
	t.Helper()
	require.Zero(t, os.Getuid(), "this test needs root")
}

// processesOf are the processes of the container's namespace, by their numbers out here.
func processesOf(t *testing.T, c *container) []int {
	t.Helper()
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", c.cmd.Process.Pid))
	require.NoError(t, err)
	links, err := filepath.Glob("/proc/[0-9]*/ns/pid")
	require.NoError(t, err)
	var found []int
	for _, link := range links {
		if other, err := os.Readlink(link); err == nil && other == ns { // an error: it has ended
			pid, err := strconv.Atoi(strings.Split(link, "/")[2])
			require.NoError(t, err)
			found = append(found, pid)
		}
	}
	return found
}

// TestProcessesLeft: what init may not kill is told, after 10 seconds, and the end of the
// program stays what it was.
func TestProcessesLeft(t *testing.T) {
	t.Parallel()
	requireRoot(t)
	c := newContainer(t)
	job := sh("read x; exit 3")
	job.Stdin = true
	c.begin(job)
	// A process of root's becomes init's child when its parent ends.
	enter := exec.CommandContext(c.ctx, "nsenter", "-t", strconv.Itoa(c.cmd.Process.Pid), "-p", "--", "sh", "-c", "sleep 1000 & sleep 1000 &")
	require.NoError(t, enter.Run())
	_, err := InputWriter(c.stdin).Write([]byte("\n"))
	require.NoError(t, err)
	began := time.Now()
	report := c.end()
	require.Greater(t, time.Since(began), 9*time.Second)
	require.Equal(t, Exited, report.Kind)
	require.Equal(t, 3, report.Value)
	require.Equal(t, 2, report.ProcessesLeft)
	require.Less(t, report.Wall, 9*time.Second)
	require.Equal(t, 3, c.bye())
}
