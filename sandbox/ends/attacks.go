package ends

import (
	"slices"
	"strings"
	"time"
)

// Success is the exit code of a program that survived its own attack. Accidental ends do not
// have this code.
const Success = 42

// Prelude is shared by the scripts: system calls by number on amd64 and arm64, which return
// errors by name.
const Prelude = `
import ctypes, errno, fcntl, os, resource, signal, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
x86 = os.uname().machine == 'x86_64'
def call(number, *args):
    ctypes.set_errno(0)
    r = libc.syscall(number[0 if x86 else 1], *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return errno.errorcode[ctypes.get_errno()] if r < 0 else r
CLONE, QUEUEINFO, TGQUEUEINFO, TGKILL, PRLIMIT, PTRACE = (56, 220), (129, 138), (297, 240), (234, 131), (302, 261), (101, 117)
WRITEV, READV, SCHED, AFFINITY, PRIORITY, IOPRIO = (311, 271), (310, 270), (144, 119), (203, 122), (141, 140), (251, 30)
SCHEDPARAM, SCHEDATTR = (142, 118), (314, 274)
PIDFD_OPEN, PIDFD_SEND, PIDFD_GETFD, MADVISE, KCMP, SETPGID = (434, 434), (424, 424), (438, 438), (440, 440), (312, 272), (109, 154)
SEIZE = 0x4206
def attempt(what, *args):
    try: return what(*args)
    except OSError as e: return errno.errorcode[e.errno]
def siginfo(signal, code):
    return struct.pack('iii4xii', signal, 0, code, 0, 0).ljust(128, b'\0')
def limit(number, soft, hard):
    return call(PRLIMIT, 1, number, struct.pack('QQ', soft, hard), 0)
def fork():
    try: return os.fork()
    except OSError: return None
def deaf(): signal.signal(signal.SIGTERM, signal.SIG_IGN)
`

// Attacks returns all attacks on PID 1, which need no container. Their output is evidence that they were
// carried out.
func Attacks() []Program {
	all := slices.Concat(signalAttacks(), resourceAttacks(), processAttacks(), []Program{look()}, streamAttacks())
	for i := range all {
		p := &all[i]
		p.Python, p.Stdin, p.Stderr = Prelude+p.Python, p.Input != "", Anything
		if p.Timeout == 0 {
			p.Timeout = time.Minute
		}
		if p.Deadline {
			p.Timeout, p.Grace = 5*time.Second, 100*time.Millisecond
		}
		if p.Code == 0 && p.Signal == 0 {
			p.Code = Success
		}
	}
	return all
}

// everySignal sends all signals in all ways, and counts those that the kernel accepted.
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
    if isinstance(pidfd, int): os.close(pidfd)
    return taken
`

func signalAttacks() []Program {
	all := []Program{
		{Name: "every signal in every way", Python: everySignal + "for i in range(20): n = attack_with_signals()\nprint(n)\nos._exit(42)",
			Stdout: `/(2[5-9]\d|[3-9]\d\d|\d{4})\n/`},
		{Name: "signals without a quota", NoQuota: true, Python: everySignal +
			"for i in range(20): n = attack_with_signals((signal.SIGTERM, signal.SIGUSR1))\nprint(n)\nos._exit(42)", Stdout: `/[1-9]\d\d+\n/`},
		{Name: "floods of signals", Deadline: true, Signal: 9, Stdout: "sent 1\n", Python: `
deaf()
for s in (signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM, 40, 41):
    if fork() == 0:
        while True: os.kill(1, s)
os.kill(1, signal.SIGTERM)
print('sent 1', flush=True)
while True:
    if fork() == 0: os._exit(0)
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)`},
		{Name: "signals of descriptors", Stdout: `/x*(2[4-9]|[3-9]\d) owned\n/`, Python: `
r = os.open('/proc/self/fd/1', os.O_RDONLY | os.O_NONBLOCK)
done = 0
for s in (0, signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD, signal.SIGSTOP, signal.SIGSEGV, 40):
    for fd in (1, 2, r):
        for owner in (1, -1):
            try:
                fcntl.fcntl(fd, fcntl.F_SETOWN, owner)
                fcntl.fcntl(fd, 10, s)  # F_SETSIG
                fcntl.fcntl(fd, fcntl.F_SETFL, os.O_ASYNC | (os.O_NONBLOCK if fd == r else 0))
                done += 1
            except OSError: pass
    for i in range(20):
        os.write(1, b'x'); os.write(2, b'x')
        attempt(os.read, r, 1)
fcntl.fcntl(1, fcntl.F_SETOWN, 1); fcntl.fcntl(1, 10, signal.SIGKILL); fcntl.fcntl(1, fcntl.F_SETFL, os.O_ASYNC)
os.write(1, b'%d owned\n' % done)
os._exit(42)`},
	}
	// Without a quota, a SIGTERM or SIGUSR1 from the program looks like one from outside. It
	// ends the program itself.
	for _, way := range []struct{ name, script string }{
		{"SIGTERM by tgkill", "call(TGKILL, 1, 1, signal.SIGTERM)"},
		{"SIGUSR1 by tgkill", "call(TGKILL, 1, 1, signal.SIGUSR1)"},
		{"SIGTERM queued", "call(QUEUEINFO, 1, signal.SIGTERM, siginfo(signal.SIGTERM, -1))"},
		{"SIGUSR1 queued", "call(QUEUEINFO, 1, signal.SIGUSR1, siginfo(signal.SIGUSR1, -1))"},
	} {
		all = append(all, Program{Name: "as if from outside: " + way.name, Signal: 9, Forged: true, NoQuota: true, Grace: 10 * time.Millisecond, Stdout: `/forge\n(0\n?)?/`,
			Python: "deaf()\nprint('forge', flush=True)\nprint(" + way.script + ", flush=True)\ntime.sleep(0.5)\nos._exit(42)"})
	}
	return all
}

func resourceAttacks() []Program {
	// spoil tries to change every attribute of init that the kernel lets the same user change.
	// Only the I/O scheduling class can be changed, and init does no I/O on disks.
	const spoil = `
for number in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_STACK, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC,
               resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE, resource.RLIMIT_SIGPENDING, resource.RLIMIT_CORE, resource.RLIMIT_RSS, resource.RLIMIT_CPU):
    print(limit(number, 0, 0), end=' ')
print(limit(1 << 32 | resource.RLIMIT_CPU, 1, 1), end=' ')
for init in (1, 1 << 32 | 1, -1 << 32 | 1):  # the kernel reads 32 bits
    print(call(SCHED, init, 5, struct.pack('i', 0)), call(SCHEDPARAM, init, struct.pack('i', 0)), call(SCHEDATTR, init, struct.pack('IIQiIQQQ', 48, 5, 0, 0, 0, 0, 0, 0), 0),
          call(PRIORITY, 0, init, 19), call(PRIORITY, 1, init, 19), call(AFFINITY, init, 8, struct.pack('Q', 1)), end=' ')
print(call(PRIORITY, 2, 0, 19), call(PRIORITY, 2, os.getuid(), 19), call(IOPRIO, 1, 1, 3 << 13))
sys.stdout.flush()
`
	const spoiled = `/(EPERM ){33}0\n/`
	return []Program{
		{Name: "resources of init, then an exit", Python: spoil + "os._exit(42)", Stdout: spoiled},
		{Name: "resources of init, then the deadline", Python: "deaf()\n" + spoil + "for i in range(4): os.fork()\nwhile True: pass", Deadline: true, Signal: 9, Stdout: spoiled},
		{Name: "resources of init, then stdin", Python: spoil + "os._exit(42 if len(sys.stdin.read()) == 1000000 else 1)", Input: strings.Repeat("\x00", 1_000_000), Stdout: spoiled},
	}
}

func processAttacks() []Program {
	const others = "deaf()\nfor i in range(5):\n  if os.fork() == 0: time.sleep(1000)\n"
	return []Program{
		// kill(-1) does not include the caller.
		{Name: "SIGKILL to everything", Python: others + "print(libc.kill(-1, 9)); time.sleep(0.01); os._exit(42)", Stdout: "0\n"},
		{Name: "SIGSTOP to everything", Deadline: true, Signal: 9, Stdout: "0 0\n",
			Python: others + "print(libc.kill(-1, signal.SIGSTOP), libc.kill(1, signal.SIGSTOP), flush=True); os.kill(os.getpid(), signal.SIGSTOP)"},
		{Name: "a program that init traces", Deadline: true, Signal: 9, Python: "call(PTRACE, 0, 0, 0, 0); os.kill(os.getpid(), signal.SIGUSR2)"},
		// The tracer never waits for its tracee, so init can reap it only after the tracer's death.
		{Name: "a tracer that keeps the end", Deadline: true, Code: Success, Stdout: "0\n", Python: `
parent, (r, w) = os.getpid(), os.pipe()
if os.fork() == 0:
    deaf()
    os.setsid()
    print(call(PTRACE, SEIZE, parent, 0, 0), flush=True)
    os.write(w, b'x')
    time.sleep(1000)
os.read(r, 1)
os._exit(42)`},
	}
}

// look tries to trace, read and write init. It skips files that root owns if the program is
// root in a user namespace.
func look() Program {
	return Program{Name: "a look into init", Stdout: `/[4-9]\d refused: (E[A-Z]+ ?)+\n/`, Python: `
answers = {}
def refused(name, answer): answers[name] = answer
for request in (16, SEIZE): refused('ptrace %d' % request, call(PTRACE, request, 1, 0, 0))
own = ctypes.create_string_buffer(8)
vector, remote = struct.pack('QQ', ctypes.addressof(own), 8), struct.pack('QQ', 0x400000, 8)
refused('process_vm_writev', call(WRITEV, 1, vector, 1, remote, 1, 0))
refused('process_vm_readv', call(READV, 1, vector, 1, remote, 1, 0))
for name in ('mem', 'environ', 'maps', 'smaps', 'pagemap', 'auxv', 'stack', 'syscall', 'personality', 'io'):
    refused('read ' + name, attempt(lambda: os.read(os.open('/proc/1/' + name, os.O_RDONLY), 10)))
for name in ('mem', 'oom_score_adj', 'coredump_filter', 'clear_refs', 'comm', 'timerslack_ns', 'attr/current', 'loginuid') if os.getuid() else ():
    refused('write ' + name, attempt(lambda: os.write(os.open('/proc/1/' + name, os.O_WRONLY), b'1')))
for name in ('exe', 'cwd', 'root', 'ns/pid', 'fd/0', 'fd/1'):
    refused('readlink ' + name, attempt(os.readlink, '/proc/1/' + name))
    refused('open ' + name, attempt(os.open, '/proc/1/' + name, os.O_RDONLY))
for name in ('root', 'fd', 'fdinfo', 'map_files')[:None if os.getuid() else 1]:
    refused('list ' + name, attempt(os.listdir, '/proc/1/' + name))
refused('task', attempt(os.open, '/proc/1/task/1/mem', os.O_RDWR))
refused('fdinfo', attempt(os.open, '/proc/1/fdinfo/0', os.O_RDONLY))
pidfd = call(PIDFD_OPEN, 1, 0)
for fd in range(12): refused('pidfd_getfd %d' % fd, call(PIDFD_GETFD, pidfd, fd, 0))
refused('process_madvise', call(MADVISE, pidfd, vector, 1, 20, 0))
refused('kcmp', call(KCMP, 1, os.getpid(), 2, 0, 0))
refused('setpgid', call(SETPGID, 1, os.getpid()))
taken = {name: answer for name, answer in answers.items() if not isinstance(answer, str) or answer[0] != 'E'}
print(taken or '%d refused: %s' % (len(answers), ' '.join(sorted(set(answers.values())))))
os._exit(1 if taken else 42)`}
}
