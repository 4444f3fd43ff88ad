package wire

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// waiterScript is a waiting process. It burns processor time, prints, and takes the job.
const waiterScript = `
import os, signal, socket, struct, sys, time
line = socket.socket(fileno=62)
assert os.pread(63, 100, 0) == b"the file"
while time.process_time() < 0.5: pass
print("discarded", flush=True); os.write(2, b"x" * 100000)
def take():
    line.send(b"R")
    data, control, _, _ = line.recvmsg(1, socket.CMSG_LEN(12))
    fds = struct.unpack("3i", control[0][2])
    text = os.pread(fds[0], 1 << 20, 0)
    words = text[4:].split(b"\0")[:-1]
    count = int.from_bytes(text[:4], "little")
    return words[:count], words[count:], fds
`

// waiter is a waiting process that runs a script after waiterScript.
func waiter(script string) Wait {
	return Wait{Args: []string{"python3", "-c", waiterScript + script}, Env: []string{"OF_WAITER=1"}, Dir: "/tmp", Patience: time.Minute, File: []byte("the file"), Stdin: true}
}

// await starts a waiting process, and waits until it is ready or has failed.
func (c *container) await(w Wait) Usage {
	c.t.Helper()
	c.ready()
	frame, err := w.Encode()
	require.NoError(c.t, err)
	c.send(frame)
	usage, err := c.Waiting(c.ctx)
	require.NoError(c.t, err)
	return usage
}

// TestWaiter: a waiting process becomes the program. It has the program's streams, limits and
// deadline, and what it did before does not count.
func TestWaiter(t *testing.T) {
	c := newContainer(t)
	c.await(waiter(`
args, env, fds = take()
os.dup2(fds[1], 1); os.dup2(fds[2], 2)
for fd in fds: os.close(fd)
line.send(b"T"); line.close()
import resource
print(args, sorted(e for e in env if e[:3] in (b"JOB", b"OF_")), os.getcwd(), resource.getrlimit(resource.RLIMIT_FSIZE), sys.stdin.read(), flush=True)
print(os.getpgid(0) == os.getpid(), os.listdir("/proc/self/fd"), file=sys.stderr)
os.kill(os.getpid(), signal.SIGUSR2)`))
	job := Job{Args: []string{"a", ""}, Env: []string{"JOB=1", "JOB=2"}, Stdin: true, ToWaiter: true, Timeout: time.Minute, DeadlineVar: "JOB_ENDS",
		Rlimits: []Rlimit{FileSize(5, 6)}}
	began := time.Now()
	c.begin(job)
	in := InputWriter(c.stdin)
	_, err := in.Write([]byte("input"))
	require.NoError(t, err)
	require.NoError(t, in.Close())
	report := c.end()
	require.Empty(t, report.Waiter.WhyNot())
	require.NotNil(t, report.Waiter)
	require.Equal(t, Signaled, report.Kind, c.errText.String())
	out := c.outText.String()
	require.Regexp(t, `^\[b'a', b''\] \[b'JOB=2', b'JOB_ENDS=\d+\.\d{3}', b'OF_BOTH=init', b'OF_INIT=1'\] /tmp \(5, 6\) input\n$`, out)
	require.Equal(t, "True ['0', '1', '2', '3', '63']\n", c.errText.String())
	require.Equal(t, Signaled, report.Kind)
	require.Equal(t, int(syscall.SIGUSR2), report.Value)
	require.Less(t, report.Wall, time.Since(began)+time.Millisecond)
	require.Less(t, report.Usage.CPU, 450*time.Millisecond)
	require.Equal(t, 128+int(syscall.SIGUSR2), c.bye())
}

// TestWaiterThatFails: the program starts as if nothing had waited, and nothing of it is left.
func TestWaiterThatFails(t *testing.T) {
	t.Parallel()
	const child = `
if os.fork() == 0:
    os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)
`
	late := waiter("time.sleep(1000)")
	late.Patience = time.Second
	missing, noDir := waiter(""), waiter("")
	missing.Args, noDir.Dir = []string{"/missing"}, "/missing"
	unwanted := func(job *Job) { job.ToWaiter = false }
	tests := map[string]struct {
		wait Wait
		why  string
		job  func(job *Job)
	}{
		"says no":           {wait: waiter(child + `line.send(b"Nno \xff\nmodule " + b"x" * 1000)`), why: "no   module xxx"},
		"exits":             {wait: waiter(child + "sys.exit(3)"), why: "it ended with exit code 3"},
		"is killed":         {wait: waiter(child + "os.kill(os.getpid(), 11)"), why: "it was killed by signal 11"},
		"is missing":        {wait: missing, why: "it could not be started: exec: no such file or directory"},
		"has no directory":  {wait: noDir, why: "it could not be started: chdir: no such file or directory"},
		"is late":           {wait: late, why: "it was not ready in time"},
		"talks nonsense":    {wait: waiter(child + `line.send(b"T"); time.sleep(1000)`), why: "it refused without a reason"},
		"says nothing":      {wait: waiter(child + `line.send(b"N"); time.sleep(1000)`), why: "it refused without a reason"},
		"dies while idle":   {wait: waiter(child + `line.send(b"R"); sys.exit(4)`), why: "it ended with exit code 4"},
		"hangs up":          {wait: waiter(`line.send(b"R"); line.close(); time.sleep(1000)`), why: "it was killed by signal 9"},
		"refuses the job":   {wait: waiter(child + `take(); line.send(b"Nanother job"); time.sleep(1000)`), why: "another job"},
		"dies with the job": {wait: waiter(child + `take(); os.kill(os.getpid(), 6)`), why: "it was killed by signal 6"},
		"is not wanted":     {wait: waiter(child + `take(); time.sleep(1000)`), why: "the program was not for it", job: unwanted},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newContainer(t)
			c.await(test.wait)
			job := sh(`echo "$OF_WAITER" "$A"; pwd; cat; set -- /proc/[0-9]*; echo $#; echo error >&2; exit 7`)
			job.Env, job.Dir, job.Stdin, job.ToWaiter = []string{"A=1"}, "/usr", true, true
			if test.job != nil {
				test.job(&job)
			}
			c.begin(job)
			in := InputWriter(c.stdin)
			_, err := in.Write([]byte("input\n"))
			require.NoError(t, err)
			require.NoError(t, in.Close())
			report := c.end()
			requireExit(t, c, report, 7)
			require.Equal(t, " 1\n/usr\ninput\n2\n", c.outText.String())
			require.Equal(t, "error\n", c.errText.String())
			require.Contains(t, report.Waiter.WhyNot(), test.why)
			require.LessOrEqual(t, len(report.Waiter.WhyNot()), 512*3)
			require.Equal(t, 7, c.bye())
		})
	}
}

// TestWaiterIsStopped: a program that waited is stopped like any other.
func TestWaiterIsStopped(t *testing.T) {
	const program = `
_, _, fds = take()
line.send(b"T")
os.write(fds[1], b"begun\n")
time.sleep(1000)`
	t.Run("deadline", func(t *testing.T) {
		c := newContainer(t)
		c.await(waiter(program))
		job := Job{Args: []string{"x"}, Stdin: true, ToWaiter: true, Timeout: 2 * time.Second, Grace: time.Minute}
		c.begin(job)
		report := c.end()
		require.Equal(t, []any{StopDeadline, Signaled, 15}, []any{report.Stop, report.Kind, report.Value})
		require.Equal(t, "begun\n", c.outText.String())
	})
	t.Run("from outside", func(t *testing.T) {
		c := newContainer(t)
		c.await(waiter(program))
		r, w := io.Pipe()
		c.stdout = w
		c.begin(Job{Args: []string{"x"}, Stdin: true, ToWaiter: true})
		_, err := io.ReadFull(r, make([]byte, 6))
		require.NoError(t, err)
		require.NoError(t, c.cmd.Process.Signal(syscall.SIGTERM))
		report := c.end()
		require.Equal(t, []any{StopTerm, Signaled, 15}, []any{report.Stop, report.Kind, report.Value})
		require.Equal(t, 143, c.bye())
	})
	t.Run("while it does not answer", func(t *testing.T) {
		c := newContainer(t)
		c.await(waiter(`take(); time.sleep(1000)`))
		c.begin(Job{Args: []string{"x"}, Stdin: true, ToWaiter: true, Timeout: 300 * time.Millisecond})
		report := c.end()
		require.Equal(t, []any{StopDeadline, Signaled}, []any{report.Stop, report.Kind})
		require.Equal(t, "it was killed by signal 15", report.Waiter.WhyNot())
	})
}

// TestEndOfAWaiter: without a job, the end of the controller and signals from outside end init and
// the waiting process.
func TestEndOfAWaiter(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		do   func(c *container) error
		code int
	}{
		"end of stdin": {func(c *container) error { return c.stdin.Close() }, 125},
		"SIGTERM":      {func(c *container) error { return c.cmd.Process.Signal(syscall.SIGTERM) }, 143},
		"SIGUSR1":      {func(c *container) error { return c.cmd.Process.Signal(syscall.SIGUSR1) }, 137},
	} {
		for state, script := range map[string]string{"ready": `line.send(b"R"); os.write(1, b"more"); time.sleep(1000)`, "importing": "time.sleep(1000)"} {
			t.Run(state+", "+name, func(t *testing.T) {
				t.Parallel()
				c := newContainer(t)
				c.ready()
				frame, err := waiter(script).Encode()
				require.NoError(t, err)
				c.send(frame)
				if state == "ready" {
					_, err := c.Waiting(c.ctx)
					require.NoError(t, err)
				} else {
					waitFor(t, func() bool { return len(childrenOf(c.cmd.Process.Pid)) == 1 })
				}
				require.NoError(t, end.do(c))
				require.Equal(t, end.code, c.wait())
				require.Empty(t, c.outText.String()+c.errText.String()+c.Complaint())
			})
		}
	}
}

func childrenOf(pid int) []string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid)) // a process that ended has none
	return strings.Fields(string(text))
}

func waitFor(t *testing.T, is func() bool) {
	t.Helper()
	require.Eventually(t, is, patience, time.Millisecond)
}

// TestRefusedWaits checks that init refuses what it does not understand, and a second process.
func TestRefusedWaits(t *testing.T) {
	t.Parallel()
	good, err := waiter("").Encode()
	require.NoError(t, err)
	payload := good[headerSize:]
	for name, frame := range map[string][]byte{
		"nonce":     newFrame(typeWait, appendField(payload, 1, make([]byte, 32))),
		"relay":     newFrame(typeWait, appendField(payload, 10, []byte("\x50\x00\x01\x00\x00\x00\x00\x00/x"))),
		"two files": newFrame(typeWait, appendField(payload, 14, nil)),
		"empty":     newFrame(typeWait, nil),
		"flag":      newFrame(typeWait, appendField(appendField(nil, 2, []byte("true")), 9, []byte{16, 0, 0, 0})),
		"twice":     append(append([]byte{}, good...), good...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newContainer(t)
			c.ready()
			c.Begin(c.nonce, c.stdout, c.stderr)
			c.send(frame)
			require.ErrorIs(t, c.Accepted(c.ctx), errRefused)
			require.Equal(t, 125, c.wait())
		})
	}
}
