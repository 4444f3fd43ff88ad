// Package ends has one table of programs and how they end: exits, signals, time limits, commands that
// cannot be executed, streams in every state, processes that stay, and attacks on PID 1. They need no
// engine, so everything that reports an end runs them: the tests of sandbox/engine/wire run them in the
// bare init, the conformance suite in the containers of every engine, and sandbox/probe in whole runs.
//
// The programs must never run outside a container or a PID namespace.
package ends

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Program is a program and its end.
type Program struct {
	Name string
	// Python is the script. Command is a command instead.
	Python  string
	Command []string
	// Stdin says that the program has a stdin, which holds Input.
	Stdin bool
	Input string
	// Timeout and Grace are the job's. Soft, unless 0, is when the program gets SoftSignal.
	Timeout, Grace, Soft time.Duration
	SoftSignal           string
	// Signals come from outside once the program has printed "ready".
	Signals []Signal
	// NoFork forbids new processes.
	NoFork bool
	// PIDs is the limit of processes of the container, 0 for any.
	PIDs int64
	// NoQuota sets the quota of pending signals to 0, as if the user had used it up. The kernel
	// then drops the sender of a signal.
	NoQuota bool

	// Code and Signal are the end. Errno is why the command could not be executed; Code is then that of
	// shells.
	Code, Signal int
	Errno        syscall.Errno
	// Deadline says that the program is stopped at its time limit, Asked that it gets its soft signal.
	Deadline, Asked bool
	// OOM says that the kernel kills a process at the memory limit of the container.
	OOM bool
	// Forged means that init takes the program's signal for one from outside if the kernel does not
	// report its sender. Otherwise the program exits with Success.
	Forged bool
	// Stdout and Stderr are all that it prints. A text between slashes is a regular expression for the
	// whole text. Times, unless 0, is how often it prints both.
	Stdout, Stderr string
	Times          int
}

// Signal is a request from outside.
type Signal int

const (
	// Stop sends SIGTERM, and SIGKILL after the grace period.
	Stop Signal = iota
	// Kill sends SIGKILL to every process.
	Kill
)

// Argv is the command with its arguments.
func (p Program) Argv() []string {
	if p.Command != nil {
		return p.Command
	}
	return []string{"python3", "-u", "-c", p.Python}
}

// Escalated reports whether the program outlives its grace period, and is killed. An attack that survives
// keeps init from its end until then.
func (p Program) Escalated() bool {
	return (p.Signal == int(syscall.SIGKILL) || p.Code == Success) && (p.Deadline || slices.Equal(p.Signals, []Signal{Stop}))
}

// Duration is how long the program runs, 0 if nothing but the machine decides it.
func (p Program) Duration() time.Duration {
	switch {
	case p.Deadline && p.Escalated():
		return p.Timeout + p.Grace
	case p.Deadline:
		return p.Timeout
	case p.Asked:
		return p.Soft
	}
	return 0
}

// Fits reports whether a text is the expected one, which may be a regular expression between slashes for
// the whole text.
func Fits(want, got string) bool {
	if IsPattern(want) {
		return regexp.MustCompile(`^(?:` + want[1:len(want)-1] + `)$`).MatchString(got)
	}
	return want == got
}

// IsPattern reports whether an expected text is a regular expression.
func IsPattern(want string) bool {
	return len(want) > 1 && strings.HasPrefix(want, "/") && strings.HasSuffix(want, "/")
}

// Anything is the pattern of every text.
const Anything = `/(?s).*/`

// Repeated is a writer that compares a stream with a text, many times.
type Repeated struct {
	Text    string
	written int
	wrong   bool
}

func (r *Repeated) Write(p []byte) (int, error) {
	for left := p; len(left) > 0; {
		rest := r.Text[r.written%len(r.Text):]
		n := min(len(left), len(rest))
		r.wrong = r.wrong || string(left[:n]) != rest[:n]
		r.written, left = r.written+n, left[n:]
	}
	return len(p), nil
}

// Times is how often the text was written, and -1 for anything else.
func (r *Repeated) Times() int {
	if r.wrong || r.written%len(r.Text) != 0 {
		return -1
	}
	return r.written / len(r.Text)
}

// Exit is a program that exits with a code.
func Exit(code int) Program {
	return Program{Name: fmt.Sprint("exit ", code), Command: sh(fmt.Sprint("exit ", code)), Code: code, Timeout: patience}
}

// Killed is a program that sends a signal to itself.
func Killed(signal int) Program {
	return Program{Name: fmt.Sprint("signal ", signal), Command: sh(fmt.Sprintf("kill -%d $$", signal)), Signal: signal, Timeout: patience}
}

// Named returns the program of [Programs] with a name.
func Named(name string) Program {
	all := Programs()
	return all[slices.IndexFunc(all, func(p Program) bool { return p.Name == name })]
}

// patience is the time limit of a program that does not reach it.
const patience = 2 * time.Minute

func sh(script string) []string { return []string{"sh", "-c", script} }

// Programs returns all programs but the attacks and those of [Numbers].
func Programs() []Program {
	all := slices.Concat(limits(), requests(), launches(), ways(), streams(), withoutFork())
	for i := range all {
		all[i].Timeout = cmp.Or(all[i].Timeout, patience)
	}
	return all
}

// Numbers returns the programs that end with the codes and signals that others use for an end of their
// own, or have a name for.
func Numbers() (all []Program) {
	for _, code := range []int{0, 1, 2, 64, 77, 124, 125, 126, 127, 128, 130, 134, 137, 139, 143, 254, 255} {
		all = append(all, Exit(code))
	}
	for _, signal := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 24, 25, 31, 34, 64} {
		all = append(all, Killed(signal))
	}
	return all
}

const (
	sleeps = "echo ready; exec sleep 600"
	// deaf ignores SIGTERM in two processes.
	deaf = "trap '' TERM; sleep 600 & echo ready; sleep 600; sleep 600"
	// handles exits with 0 at SIGTERM. It starts no process.
	handles = "import os, signal, time\nsignal.signal(signal.SIGTERM, lambda *_: os._exit(0))\nprint('ready')\ntime.sleep(600)\n"
	ready   = "ready\n"
)

// limits are programs that reach a time limit. A shell has its handlers long before.
func limits() []Program {
	const second, minute = time.Second, time.Minute
	traps := func(signal, command string) []string {
		return sh(fmt.Sprintf("trap '%s' %s; echo ready; while :; do sleep 0.05; done", command, signal))
	}
	return []Program{
		{Name: "the deadline", Command: sh(sleeps), Timeout: 2 * second, Grace: minute, Deadline: true, Signal: 15, Stdout: ready},
		{Name: "the deadline, ignored", Command: sh(deaf), Timeout: 2 * second, Grace: second, Deadline: true, Signal: 9, Stdout: ready},
		{Name: "the deadline, without a grace period", Command: sh("trap '' TERM; exec sleep 600"), Timeout: 2 * second, Deadline: true, Signal: 9},
		{Name: "the deadline, then exit 0", Python: handles, Timeout: 4 * second, Grace: minute, Deadline: true, Stdout: ready},
		{Name: "the deadline, then exit 7", Command: traps("TERM", "exit 7"), Timeout: 2 * second, Grace: minute, Deadline: true, Code: 7, Stdout: ready},
		{Name: "the deadline of a stopped program", Command: sh("kill -STOP $$"), Timeout: 2 * second, Grace: 300 * time.Millisecond, Deadline: true, Signal: 9},
		{Name: "the deadline, and every signal is caught", Command: traps("HUP INT QUIT ABRT ALRM TERM USR1 USR2", ":"),
			Timeout: 2 * second, Grace: 300 * time.Millisecond, Deadline: true, Signal: 9, Stdout: ready},
		{Name: "soft signal", Command: traps("TERM", "echo saved; exit 0"), Soft: 4 * second, SoftSignal: "SIGTERM", Asked: true, Stdout: "ready\nsaved\n"},
		{Name: "soft signal that is another one", Command: traps("USR1", "echo saved; exit 0"), Soft: 4 * second, SoftSignal: "SIGUSR1", Asked: true, Stdout: "ready\nsaved\n"},
		{Name: "soft signal, then exit 3", Command: traps("TERM", "exit 3"), Soft: 4 * second, SoftSignal: "SIGTERM", Asked: true, Code: 3, Stdout: ready},
		{Name: "soft signal without a handler", Command: sh(sleeps), Soft: 4 * second, SoftSignal: "SIGTERM", Asked: true, Signal: 15, Stdout: ready},
		{Name: "soft SIGINT without a handler", Command: sh(sleeps), Soft: 4 * second, SoftSignal: "SIGINT", Asked: true, Signal: 2, Stdout: ready},
		{Name: "soft signal, and it goes on", Command: traps("USR1", "echo more"), Soft: 4 * second, SoftSignal: "SIGUSR1", Timeout: 6 * second, Grace: minute,
			Asked: true, Deadline: true, Signal: 15, Stdout: "ready\nmore\n"},
		{Name: "soft signal, ignored", Command: sh(deaf), Soft: 4 * second, SoftSignal: "SIGTERM", Timeout: 6 * second, Grace: second,
			Asked: true, Deadline: true, Signal: 9, Stdout: ready},
		{Name: "an end before the soft signal", Command: sh("echo 1; exit 3"), Soft: 100 * second, SoftSignal: "SIGTERM", Code: 3, Stdout: "1\n"},
		{Name: "the time that remains", Python: "import os, time\nprint(60 < float(os.environ['SANDBOX_DEADLINE']) - time.time() <= 120)", Stdout: "True\n"},
	}
}

// requests are programs that are stopped from outside.
func requests() []Program {
	return []Program{
		{Name: "stop", Command: sh(sleeps), Grace: time.Minute, Signals: []Signal{Stop}, Signal: 15, Stdout: ready},
		{Name: "stop, ignored", Command: sh(deaf), Grace: time.Second, Signals: []Signal{Stop}, Signal: 9, Stdout: ready},
		{Name: "stop, then exit 0", Python: handles, Grace: time.Minute, Signals: []Signal{Stop}, Stdout: ready},
		{Name: "stop twice", Python: handles, Grace: time.Minute, Signals: []Signal{Stop, Stop}, Stdout: ready},
		{Name: "kill", Command: sh(deaf), Grace: time.Minute, Signals: []Signal{Kill}, Signal: 9, Stdout: ready},
		{Name: "stop, then kill", Command: sh(deaf), Grace: time.Hour, Signals: []Signal{Stop, Kill}, Signal: 9, Stdout: ready},
	}
}

// launches are commands that cannot be executed.
func launches() []Program {
	return []Program{
		{Name: "not there", Command: []string{"/no/such/program"}, Errno: syscall.ENOENT, Code: 127},
		{Name: "not in the path", Command: []string{"no-such-program"}, Errno: syscall.ENOENT, Code: 127},
		{Name: "below a file", Command: []string{"/etc/passwd/x"}, Errno: syscall.ENOTDIR, Code: 127},
		{Name: "not executable", Command: []string{"/etc/passwd"}, Errno: syscall.EACCES, Code: 126},
		{Name: "a directory", Command: []string{"/tmp"}, Errno: syscall.EACCES, Code: 126},
		{Name: "argument too long", Command: []string{"printf", strings.Repeat("x", 200_000)}, Errno: syscall.E2BIG, Code: 126},
	}
}

// ways are programs with other processes, or with other ways to end.
func ways() []Program {
	return []Program{
		{Name: "SIGTERM to itself, with a handler", Command: sh("trap 'exit 7' TERM; kill -TERM $$; sleep 600"), Code: 7},
		{Name: "kill of its own group", Python: "import os, signal\nos.killpg(0, signal.SIGKILL)", Signal: 9},
		{Name: "another program in its place", Command: sh("exec sh -c 'echo replaced; exit 6'"), Code: 6, Stdout: "replaced\n"},
		{Name: "the main thread ends", Python: "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.3), print('later'))).start()", Stdout: "later\n"},
		{Name: "exit in a child", Python: "import os\nif os.fork() == 0: os._exit(1)\nprint('child', os.wait()[1])", Stdout: "child 256\n"},
		{Name: "processes that stay", Code: 3, Stdout: "left\n", Python: "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" +
			"for i in range(12):\n    if os.fork() == 0:\n        if i % 2: os.setsid()\n        time.sleep(600)\nprint('left')\nos._exit(3)"},
		{Name: "orphans are reaped", Stdout: "no zombie is left\n", Python: `
import os, time
read, write = os.pipe()
for _ in range(20):
    if os.fork() == 0:
        if os.fork() == 0: os.write(write, b"%8d" % os.getpid())
        os._exit(0)
    os.wait()
orphans = [int(os.read(read, 8)) for _ in range(20)]
while any(os.path.exists("/proc/%d" % pid) for pid in orphans): time.sleep(0.01)
print("no zombie is left")`},
		{Name: "words, and a text at stdin", Stdin: true, Input: "typed", Stdout: "['a b', '', '$x', '--'] typed\n",
			Command: []string{"python3", "-c", "import sys; print(sys.argv[1:], sys.stdin.read())", "a b", "", "$x", "--"}},
		{Name: "out of memory", Python: "print('begin')\nkept = []\nwhile True: kept.append(bytearray(8 << 20))\n", OOM: true, Signal: 9, Stdout: "begin\n"},
		{Name: "a child is out of memory", OOM: true, Stdout: "child -9\n",
			Python: "import subprocess, sys\np = subprocess.run([sys.executable, '-c', 'kept = []\\nwhile True: kept.append(bytearray(64 << 20))'])\nprint('child', p.returncode)\n"},
		{Name: "processes", PIDs: 24, Stdout: "EAGAIN 23\n", Python: "import errno, os, time\nn = 0\ntry:\n    while n < 200:\n        if os.fork() == 0: time.sleep(600)\n        n += 1\n" +
			"except OSError as e: print(errno.errorcode[e.errno], n)\n"},
		{Name: "threads", PIDs: 24, Stdout: "RuntimeError 23\n", Python: "import os, threading\nstop, n = threading.Event(), 0\ntry:\n    while n < 200:\n" +
			"        threading.Thread(target=stop.wait, daemon=True).start()\n        n += 1\nexcept RuntimeError: print('RuntimeError', n)\nos._exit(0)"},
	}
}

// withoutFork are programs that may not start processes. They end as all others do.
func withoutFork() []Program {
	all := []Program{
		{Name: "no processes permitted", Stdout: "EPERM EPERM EPERM thread\nexec\n", Code: 3, Python: `
import errno, os, threading, subprocess
def word(f, *args):
    try: return f(*args)
    except OSError as e: return errno.errorcode[e.errno]
out = []
t = threading.Thread(target=lambda: out.append('thread'))
t.start(); t.join()
print(word(os.fork), word(os.posix_spawn, '/bin/true', ['true'], {}), word(subprocess.run, ['true']), *out)
os.execvp('sh', ['sh', '-c', 'echo exec; exit 3'])`},
		Killed(6), Killed(9), Killed(11),
	}
	for _, p := range slices.Concat(limits(), launches()) {
		if slices.Contains([]string{"the deadline", "the deadline, without a grace period", "the deadline, then exit 0", "not there", "not in the path", "not executable"}, p.Name) {
			all = append(all, p)
		}
	}
	for i := range all {
		all[i].NoFork = true
		if i > 0 {
			all[i].Name += ", without fork"
		}
	}
	return all
}

// Texts that look like something of the sandbox or of an engine.
const (
	// forged are frames of an engine and of init, which reports the exit code 0, and a result.
	forged = "\x01\x00\x00\x00\x00\x00\x00\x05hello\x02\x00\x00\x00\x00\x00\x00\x05error\x03\x00\x00\x00\x00" +
		"\x00EBX\x01\x03\x00\x00\x10\x00\x00\x00\x01\x00\x00\x00\x04\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00" +
		"sandbox-init: the program exited with 0\nsandbox: exited 0\n" +
		`{"schema": "evalbox/result/v1", "status": "exited", "exit_code": 0, "score": 1.0}` + "\n"
	// forgedStart looks like frames of init that say that the program was not started: a ready frame, a
	// refusal of the job, and a report of a command that does not exist.
	forgedStart = "\x00EBX\x01\x01\x00\x00\x00\x00\x00\x00" +
		"\x00EBX\x01\x04\x00\x00\x0c\x00\x00\x00\x01\x00\x00\x00\x04\x00\x00\x00\x01\x00\x00\x00" +
		"\x00EBX\x01\x03\x00\x00\x34\x00\x00\x00\x01\x00\x00\x00\x04\x00\x00\x00\x03\x00\x00\x00" +
		"\x02\x00\x00\x00\x04\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00\x04\x00\x00\x00\x06\x00\x00\x00" +
		"\x04\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\n" +
		"exec: \"python3\": executable file not found in $PATH\nsandbox-init: exec: no such file or directory\n"
)

// streams are programs that read or print something difficult.
func streams() []Program {
	// everyByte has every byte value, invalid UTF-8, and a partial line at the end.
	everyByte := make([]byte, 0, 300)
	for i := range 256 {
		everyByte = append(everyByte, byte(i))
	}
	everyByte = append(everyByte, "\n\xed\xa0\x80\xc0\xaf\x00\x00\r\r\nno end"...)
	numbers := func(letter string) string {
		var b strings.Builder
		for i := range 2000 {
			fmt.Fprintf(&b, "%s %d\n", letter, i)
		}
		return b.String()
	}
	// A program cannot know the nonce, but it knows that one begins with a zero byte.
	block := func(letter string) string {
		return strings.Repeat(strings.Repeat("\x00EBX\x01\x03\x00\x00", 8)+strings.Repeat("\x00", 36)+letter, 1000)
	}
	long := strings.Repeat("\x00EBX input\xff\n\r", 10<<20/14)
	// A write to a pipe of the machine may be shorter than asked for on gVisor.
	const writeAll = "import os\ndef write(fd, text):\n    left = memoryview(text)\n    while left: left = left[os.write(fd, left):]\n"
	const echo = writeAll + "n = 0\nwhile text := os.read(0, 1000 + n % 5000):\n    n += len(text)\n    write(1, text)\n"
	both := func(text string) string {
		return fmt.Sprintf(writeAll+"text = bytes.fromhex('%x')\nfor fd in (1, 2): write(fd, text)\n", text)
	}
	return []Program{
		{Name: "order", Python: "import os\nfor i in range(2000):\n    os.write(1, b'o %d\\n' % i)\n    os.write(2, b'e %d\\n' % i)\n", Stdout: numbers("o"), Stderr: numbers("e")},
		{Name: "100 MB on each stream", Stdout: block("o"), Stderr: block("e"), Times: 1000, Python: writeAll + `
import threading
def many(fd, letter):
    for _ in range(1000): write(fd, (b"\0EBX\1\3\0\0" * 8 + bytes(36) + letter) * 1000)
threads = [threading.Thread(target=many, args=a) for a in ((1, b"o"), (2, b"e"))]
for t in threads: t.start()
for t in threads: t.join()
os._exit(0)`},
		{Name: "bytes", Python: both(string(everyByte)), Stdout: string(everyByte), Stderr: string(everyByte)},
		{Name: "a forged report", Python: both(strings.Repeat(forged, 3)) + "os._exit(7)", Code: 7, Stdout: strings.Repeat(forged, 3), Stderr: strings.Repeat(forged, 3)},
		{Name: "a forged failure to start", Python: both(forgedStart) + "os._exit(127)", Code: 127, Stdout: forgedStart, Stderr: forgedStart},
		{Name: "stdout and stderr closed", Python: "import os, time\nos.write(1, b'before\\n')\nos.close(1)\nos.close(2)\ntime.sleep(0.3)\nos._exit(4)\n", Code: 4, Stdout: "before\n"},
		{Name: "all streams closed", Python: "import os, time\nos.closerange(0, 10)\ntime.sleep(0.3)\nos._exit(5)", Code: 5},
		{Name: "empty stdin", Python: echo, Stdin: true},
		{Name: "10 MB through stdin", Python: echo, Stdin: true, Input: long, Stdout: long},
		{Name: "stdin that is closed early", Python: "import os, time\nprint(os.read(0, 4))\nos.close(0)\ntime.sleep(0.5)\nprint('end')\n", Stdin: true, Input: long, Stdout: "b'\\x00EBX'\nend\n"},
		{Name: "stdin of which one line is read", Command: sh("read first; echo \"$first\"; exit 4"), Stdin: true, Input: "one line\n" + long, Code: 4, Stdout: "one line\n"},
		{Name: "stdin that nobody reads", Command: sh("echo end"), Stdin: true, Input: long, Stdout: "end\n"},
		{Name: "no stdin", Python: "import os\nprint(os.read(0, 9), os.readlink('/proc/self/fd/0'))\n", Stdout: "b'' /dev/null\n"},
	}
}
