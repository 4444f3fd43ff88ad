package wire

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// attackPrelude is what the hostile programs have in common.
const attackPrelude = `
import ctypes, errno, fcntl, os, resource, signal, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
x86 = os.uname().machine == 'x86_64'
def call(number, *args):
    ctypes.set_errno(0)
    r = libc.syscall(number[0 if x86 else 1], *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return errno.errorcode[ctypes.get_errno()] if r < 0 else r
QUEUEINFO, TGQUEUEINFO, TGKILL, PRLIMIT, PTRACE = (129, 138), (297, 240), (234, 131), (302, 261), (101, 117)
WRITEV, READV, SCHED, AFFINITY, PRIORITY, IOPRIO = (311, 271), (310, 270), (144, 119), (203, 122), (141, 140), (251, 30)
PIDFD_OPEN, PIDFD_SEND, PIDFD_GETFD, MADVISE, KCMP, SETPGID = (434, 434), (424, 424), (438, 438), (440, 440), (312, 272), (109, 154)
def siginfo(signal, code):
    return struct.pack('iii4xii', signal, 0, code, 0, 0).ljust(128, b'\0')
def limit(number, soft, hard):
    return call(PRLIMIT, 1, number, struct.pack('QQ', soft, hard), 0)
`

func attack(script string) Job { return python(attackPrelude + script) }

// everySignal sends all signals in all ways, and says how many of them the kernel took.
const everySignal = `
def attack_with_signals(except_for=()):
    taken, pidfd = 0, call(PIDFD_OPEN, 1, 0)
    for s in range(1, 65):
        if s in except_for: continue
        taken += libc.kill(1, s) == 0
        taken += call(TGKILL, 1, 1, s) == 0
        for code in (0, -1, -2, -3, -6, -60, 1, 0x80, 0x7fffffff):
            taken += call(QUEUEINFO, 1, s, siginfo(s, code)) == 0
            taken += call(TGQUEUEINFO, 1, 1, s, siginfo(s, code)) == 0
            taken += call(PIDFD_SEND, pidfd, s, siginfo(s, code), 0) == 0
        taken += call(PIDFD_SEND, pidfd, s, None, 0) == 0
    return taken
`

// TestEverySignal: no signal from inside ends init or the job, in whichever way it is sent.
func TestEverySignal(t *testing.T) {
	job := attack(everySignal + `
for i in range(20): n = attack_with_signals()
print(n)
os._exit(42)`)
	job.Timeout = time.Minute
	c, report := run(t, job)
	requireExit(t, c, report, 42)
	// kill, tgkill, pidfd_send_signal and some codes: the kernel has taken them.
	taken, err := strconv.Atoi(strings.TrimSpace(c.outText.String()))
	require.NoError(t, err)
	require.Greater(t, taken, 64*4)
	require.Equal(t, 42, c.bye())
}

// TestSignalsWithoutQuota: without a quota of pending signals the kernel loses who has sent
// one. That makes a program's TERM and USR1 look like those from outside, which is its own
// end, and never a better one.
func TestSignalsWithoutQuota(t *testing.T) {
	const noQuota = "print(limit(resource.RLIMIT_SIGPENDING, 0, 0))\n"
	t.Run("all others", func(t *testing.T) {
		job := attack(everySignal + noQuota + `
for i in range(20): attack_with_signals((signal.SIGTERM, signal.SIGUSR1))
os._exit(42)`)
		c, report := run(t, job)
		requireExit(t, c, report, 42)
		require.Equal(t, "0\n", c.outText.String())
	})
	for _, way := range []string{"TGKILL, 1, 1, %s", "QUEUEINFO, 1, %s, siginfo(%s, -1)"} {
		for _, signal := range []string{"signal.SIGTERM", "signal.SIGUSR1"} {
			t.Run(signal+" "+way[:6], func(t *testing.T) {
				job := attack(noQuota + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint(call(" + strings.ReplaceAll(way, "%s", signal) + "))\ntime.sleep(0.5)\nos._exit(0)")
				job.Grace = 10 * time.Millisecond
				c, report := run(t, job)
				if report.Stop == StopNone {
					requireExit(t, c, report, 0)
					return
				}
				require.Equal(t, Signaled, report.Kind)
				require.Equal(t, 9, report.Value)
				require.Contains(t, []Stop{StopTerm, StopKill}, report.Stop)
				require.NotZero(t, c.bye())
			})
		}
	}
}

// TestSignalFloods: a program that sends signals as fast as it can does not keep init from
// its deadline.
func TestSignalFloods(t *testing.T) {
	job := attack(`
for s in (signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM, 40, 41):
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True: os.kill(1, s)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    if os.fork() == 0: os._exit(0)`)
	job.Timeout, job.Grace = 1500*time.Millisecond, 100*time.Millisecond
	c, report := run(t, job)
	require.Equal(t, StopDeadline, report.Stop)
	require.Equal(t, Signaled, report.Kind)
	require.Equal(t, 9, report.Value)
	require.Zero(t, report.ProcessesLeft)
	require.Equal(t, 137, c.bye())
}

// TestInitIsClosed: nothing of init can be traced, read or written by its own user.
func TestInitIsClosed(t *testing.T) {
	job := attack(`
def attempt(what, *args):
    try: return what(*args)
    except OSError as e: return errno.errorcode[e.errno]
print([call(PTRACE, request, 1, 0, 0) for request in (16, 0x4206)])  # ATTACH, SEIZE
own = ctypes.create_string_buffer(8)
vector = struct.pack('QQ', ctypes.addressof(own), 8)
remote = struct.pack('QQ', 0x400000, 8)
print(call(WRITEV, 1, vector, 1, remote, 1, 0), call(READV, 1, vector, 1, remote, 1, 0))
for name in ('mem', 'environ', 'maps', 'smaps', 'pagemap', 'auxv', 'stack', 'syscall', 'personality', 'io'):
    print(name, attempt(lambda: os.read(os.open('/proc/1/' + name, os.O_RDONLY), 10)))
for name in ('mem', 'oom_score_adj', 'coredump_filter', 'clear_refs', 'comm', 'timerslack_ns', 'attr/current', 'loginuid') if os.getuid() else ():
    print(name, attempt(lambda: os.write(os.open('/proc/1/' + name, os.O_WRONLY), b'1')))
for name in ('exe', 'cwd', 'root', 'ns/pid', 'fd/0'):
    print(name, attempt(os.readlink, '/proc/1/' + name), attempt(os.open, '/proc/1/' + name, os.O_RDONLY))
for name in ('root', 'fd', 'fdinfo', 'map_files')[:None if os.getuid() else 1]:
    print(name, attempt(os.listdir, '/proc/1/' + name))
print('task', attempt(os.open, '/proc/1/task/1/mem', os.O_RDWR))
pidfd = call(PIDFD_OPEN, 1, 0)
print([call(PIDFD_GETFD, pidfd, fd, 0) for fd in range(12)])
print(call(MADVISE, pidfd, vector, 1, 20, 0), call(KCMP, 1, os.getpid(), 2, 0, 0), call(SETPGID, 1, os.getpid()))
os._exit(42)`)
	c, report := run(t, job)
	requireExit(t, c, report, 42)
	want := 32
	if os.Getuid() != 0 {
		want -= 11 // in a namespace of its own the program is root, and owns what root owns
	}
	require.Equal(t, want, strings.Count(c.outText.String(), "\n"), c.outText.String())
	require.Contains(t, c.outText.String(), "\nEPERM EPERM\n", "process_vm_writev, process_vm_readv")
	for line := range strings.Lines(c.outText.String()) {
		for _, word := range strings.FieldsFunc(strings.TrimSpace(line), func(r rune) bool { return strings.ContainsRune(" [],", r) }) {
			if strings.HasPrefix(word, "'E") || strings.HasPrefix(word, "E") {
				continue
			}
			require.NotRegexp(t, `^b?'|^-?[0-9]`, word, "%s", line)
		}
	}
}

// TestResourcesOfInit: its user may change init's limits and priorities. It still keeps the
// deadline and reports.
func TestResourcesOfInit(t *testing.T) {
	const spoil = `
for number in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_STACK, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC,
               resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE, resource.RLIMIT_SIGPENDING, resource.RLIMIT_CORE, resource.RLIMIT_RSS):
    print(limit(number, 0, 0), end=' ')
print(call(SCHED, 1, 5, struct.pack('i', 0)), call(PRIORITY, 0, 1, 19), call(IOPRIO, 1, 1, 3 << 13), call(AFFINITY, 1, 8, struct.pack('Q', 1)))
sys.stdout.flush()
`
	t.Run("exit", func(t *testing.T) {
		c, report := run(t, attack(spoil+"os._exit(42)"))
		requireExit(t, c, report, 42)
		require.Equal(t, "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n", c.outText.String(), "the attack was not carried out")
		require.Equal(t, 42, c.bye())
	})
	t.Run("deadline", func(t *testing.T) {
		job := attack(spoil + "os.fork(); os.fork()\nwhile True: pass")
		job.Timeout = 300 * time.Millisecond
		c, report := run(t, job)
		require.Equal(t, StopDeadline, report.Stop)
		require.Equal(t, Signaled, report.Kind)
		require.Zero(t, report.ProcessesLeft)
		require.NotZero(t, c.bye())
	})
	t.Run("stdin", func(t *testing.T) {
		job := attack(spoil + "os._exit(len(sys.stdin.read()) // 100000)")
		job.Stdin = true
		c := newContainer(t)
		c.begin(job)
		in := InputWriter(c.stdin)
		_, err := in.Write(make([]byte, 1_000_000))
		require.NoError(t, err)
		require.NoError(t, in.Close())
		requireExit(t, c, c.end(), 10)
		require.Equal(t, 10, c.bye())
	})
}

// TestProcessorLimitOfInit: a program that gives init a limit of processor time and makes it
// work can kill it. Then nothing is reported, and everything else is dead.
func TestProcessorLimitOfInit(t *testing.T) {
	t.Parallel()
	job := attack(`
print(limit(resource.RLIMIT_CPU, 1, 1), flush=True)
for i in range(2):
    if os.fork() == 0:
        while True: os.kill(1, signal.SIGCHLD)
while True: os.kill(1, signal.SIGTERM)`)
	job.Timeout = 30 * time.Second
	c := newContainer(t)
	c.begin(job)
	require.NoError(t, c.stdin.Close()) // it does not wait for BYE then
	code := c.wait()
	report, err := c.End(c.ctx)
	if err == nil {
		require.Equal(t, StopDeadline, report.Stop, "init has lived through it")
		return
	}
	require.ErrorIs(t, err, ErrCut)
	require.Contains(t, c.outText.String(), "0\n")
	require.Equal(t, -1, code, "killed by a signal")
}

// TestKillsOfEverything: what a program does to all processes that it can reach hits itself.
func TestKillsOfEverything(t *testing.T) {
	const others = "\nfor i in range(5):\n  if os.fork() == 0: time.sleep(1000)\n"
	t.Run("SIGKILL", func(t *testing.T) {
		c, report := run(t, attack(others+"print(libc.kill(-1, 9)); time.sleep(0.01); os._exit(42)"))
		requireExit(t, c, report, 42)
		require.Equal(t, 42, c.bye())
	})
	t.Run("SIGSTOP", func(t *testing.T) {
		job := attack(others + "libc.kill(-1, signal.SIGSTOP); libc.kill(1, signal.SIGSTOP); os.kill(os.getpid(), signal.SIGSTOP)")
		job.Timeout, job.Grace = 1500*time.Millisecond, 100*time.Millisecond
		_, report := run(t, job)
		require.Equal(t, StopDeadline, report.Stop)
		require.Equal(t, Signaled, report.Kind)
		require.Equal(t, 9, report.Value)
		require.Zero(t, report.ProcessesLeft)
	})
	t.Run("a tracer that keeps the end", func(t *testing.T) {
		job := attack(`
parent, me = os.getpid(), os.fork()
if me == 0:
    os.setsid()
    print(call(PTRACE, 0x4206, parent, 0, 0), flush=True)  # SEIZE; it never waits for what it traces
    time.sleep(1000)
time.sleep(0.2)
os._exit(42)`)
		job.Timeout = 2 * time.Second
		c, report := run(t, job)
		require.Equal(t, Exited, report.Kind)
		require.Equal(t, 42, report.Value)
		require.Zero(t, report.ProcessesLeft)
		c.bye()
	})
}

// TestSignalsOfPipes: descriptors that send signals to their owner have init for one.
func TestSignalsOfPipes(t *testing.T) {
	c, report := run(t, attack(`
r = os.open('/proc/self/fd/1', os.O_RDONLY | os.O_NONBLOCK)
done = []
for s in (0, signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD, signal.SIGSTOP, signal.SIGSEGV, 40):
    for fd in (1, 2, r):
        for owner in (1, -1):
            try:
                fcntl.fcntl(fd, fcntl.F_SETOWN, owner)
                fcntl.fcntl(fd, 10, s)  # F_SETSIG
                fcntl.fcntl(fd, fcntl.F_SETFL, os.O_ASYNC | (os.O_NONBLOCK if fd == r else 0))
                done.append(s)
            except OSError: pass
    for i in range(20):
        os.write(1, b'x'); os.write(2, b'x')
        try: os.read(r, 1)
        except OSError: pass
fcntl.fcntl(1, fcntl.F_SETOWN, 1); fcntl.fcntl(1, 10, signal.SIGKILL); fcntl.fcntl(1, fcntl.F_SETFL, os.O_ASYNC)
os._exit(42 if len(done) >= 24 else 1)`))
	requireExit(t, c, report, 42)
	require.Equal(t, 42, c.bye())
}

// TestNoMoreProcesses: a program that has used up what its user may start does not keep init
// from reporting, which starts nothing.
func TestNoMoreProcesses(t *testing.T) {
	job := attack(`
n = 0
try:
    while True:
        if os.fork() == 0:
            while True: time.sleep(1000)
        n += 1
except OSError as e: print(errno.errorcode[e.errno], n > 5, flush=True)
os._exit(42)`)
	job.Rlimits = []Rlimit{{Resource: 6, Soft: 40, Hard: 40}} // RLIMIT_NPROC
	c, report := run(t, job)
	requireExit(t, c, report, 42)
	require.Equal(t, "EAGAIN True\n", c.outText.String())
}

// TestAnswerIsRead: there is no program before the answer to its job was read. A program
// can open its own stdout for reading, and would take away what still lies there.
func TestAnswerIsRead(t *testing.T) {
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer read.Close()
	c := tappedContainer(t, func(*Receiver) io.Writer { return write })
	require.NoError(t, write.Close())
	now, cancel := context.WithCancel(t.Context())
	cancel()
	for _, notReady := c.Ready(now); notReady != nil; _, notReady = c.Ready(now) {
		buffer := make([]byte, 4<<10)
		n, err := read.Read(buffer)
		require.NoError(t, err)
		_, _ = c.Stdout().Write(buffer[:n]) // never fails
	}
	job := attack(`
stdout = os.open('/proc/self/fd/1', os.O_RDONLY | os.O_NONBLOCK)
try: os.write(2, b'took %r' % os.read(stdout, 100))
except BlockingIOError: pass
os._exit(42 + len(sys.stdin.read()))`)
	job.Nonce, job.Dir, job.Stdin = c.nonce, "/", true
	c.Begin(c.nonce, c.stdout, c.stderr)
	frame, err := job.Encode()
	require.NoError(t, err)
	c.send(frame)
	in := InputWriter(c.stdin) // which init leaves to the program, whenever that begins
	_, err = in.Write([]byte("x"))
	require.NoError(t, errors.Join(err, in.Close()))
	status := "/proc/" + strconv.Itoa(c.cmd.Process.Pid) + "/status"
	looks := func() (n int) {
		text, err := os.ReadFile(status)
		require.NoError(t, err)
		_, after, _ := strings.Cut(string(text), "\nvoluntary_ctxt_switches:")
		n, err = strconv.Atoi(strings.TrimSpace(strings.SplitN(after, "\n", 2)[0]))
		require.NoError(t, err)
		return n
	}
	began := looks()
	require.Eventually(t, func() bool { return looks() > began+200 }, 10*time.Second, time.Millisecond, "init does not look whether it was heard")
	go func() { _, _ = io.Copy(c.Stdout(), read) }() // ends with init
	require.NoError(t, c.Accepted(c.ctx))
	requireExit(t, c, c.end(), 43)
	require.Empty(t, c.errText.String())
	require.Equal(t, 43, c.bye())
}
