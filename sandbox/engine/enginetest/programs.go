package enginetest

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// programCase is one program in one container, and its expected end.
type programCase struct {
	name string
	// python is the program. fake stands in for it on a scripted engine; it is nil if the
	// case needs a kernel.
	python string
	fake   func(p *Program) int
	class  func(class *spec.Class)
	job    func(job *spec.Job)
	stdin  func() io.Reader
	// signals are sent once the program has printed "ready".
	signals []engine.Signal
	// hashed compares hashes of the streams instead of their text.
	hashed bool
	want   want
	// oneOf selects the expectation if more than one end is correct.
	oneOf func(end engine.End) want
	check func(t *testing.T, got observed)
}

// want is the expected end of a program.
type want struct {
	code, signal   int
	cause          engine.Cause
	escalated, oom bool
	soft           bool
	unreported     bool
	// mayEscalate, if not empty, is why End.Escalated is not compared.
	mayEscalate string
	launch      *engine.LaunchError
	// duration, if not 0, is compared with a tolerance of 0.9 s.
	duration       time.Duration
	stdout, stderr string
}

func limit(seconds, grace float64) func(job *spec.Job) {
	return func(job *spec.Job) { job.TimeoutSeconds, job.GraceSeconds = seconds, grace }
}

// softly gives a job a soft signal. It leaves a busy machine some seconds to start python.
func softly(soft, seconds float64, signal string) func(job *spec.Job) {
	return func(job *spec.Job) {
		job.SoftTimeoutSeconds, job.TimeoutSeconds, job.GraceSeconds, job.SoftSignal = soft, seconds, 1, signal
	}
}

func command(words ...string) func(job *spec.Job) {
	return func(job *spec.Job) { job.Command = words }
}

const (
	sleeps   = "import time\nprint('ready')\ntime.sleep(600)\n"
	ignores  = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready')\ntime.sleep(600)\n"
	withTerm = "import os, signal, time\nsignal.signal(signal.SIGTERM, lambda *_: os._exit(0))\nprint('ready')\ntime.sleep(600)\n"
	// ignoresAll ignores SIGTERM in two processes.
	ignoresAll = "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nif os.fork() == 0: os.setsid()\nelse: print('ready')\ntime.sleep(600)\n"
)

// saves is a program that finishes at a signal.
func saves(signal string) string {
	return fmt.Sprintf("import os, signal, time\nsignal.signal(signal.SIG%s, lambda *_: (os.write(1, b'saved\\n'), os._exit(0)))\nprint('ready')\ntime.sleep(600)\n", signal)
}

// prints returns a fake that prints a text and exits with 0.
func prints(text string) func(p *Program) int {
	return func(p *Program) int {
		p.Print(text)
		return 0
	}
}

func fakeSleeps(p *Program) int {
	p.Print("ready\n")
	<-p.Term()
	return Died(15)
}

func fakeIgnores(p *Program) int {
	p.Print("ready\n")
	<-p.Kill()
	return 0
}

func fakeSoft(p *Program) int {
	p.Print("ready\n")
	<-p.Soft()
	p.Print("saved\n")
	return 0
}

func fakeTerm(p *Program) int {
	p.Print("ready\n")
	<-p.Term()
	return 0
}

// cases returns all programs.
var cases = sync.OnceValue(func() []programCase {
	all := []programCase{
		{name: "deadline", python: sleeps, fake: fakeSleeps, job: limit(1, 30), want: want{signal: 15, cause: engine.ByDeadline, duration: time.Second}},
		{name: "deadline ignored", python: ignoresAll, fake: fakeIgnores, job: limit(1, 1),
			want: want{signal: 9, cause: engine.ByDeadline, escalated: true, duration: 2 * time.Second}},
		{name: "deadline without grace", python: ignores, fake: fakeIgnores, job: limit(1, 0),
			want: want{signal: 9, cause: engine.ByDeadline, escalated: true, duration: time.Second}},
		{name: "exit 0 at the deadline", python: withTerm, fake: fakeTerm, job: limit(1, 30), want: want{cause: engine.ByDeadline, duration: time.Second}},
		{name: "soft signal", python: saves("TERM"), fake: fakeSoft, job: softly(6, 110, "SIGTERM"),
			want: want{soft: true, stdout: "ready\nsaved\n", duration: 6 * time.Second}},
		{name: "soft signal by another signal", python: saves("USR1"), fake: fakeSoft, job: softly(6, 110, "SIGUSR1"),
			want: want{soft: true, stdout: "ready\nsaved\n", duration: 6 * time.Second}},
		{name: "soft signal without a handler", python: sleeps, fake: fakeSleeps, job: softly(6, 110, "SIGTERM"),
			want: want{soft: true, signal: 15, duration: 6 * time.Second}},
		{name: "soft signal ignored", python: ignoresAll, fake: fakeIgnores, job: softly(6, 8, "SIGTERM"),
			want: want{soft: true, signal: 9, cause: engine.ByDeadline, escalated: true, duration: 9 * time.Second}},
		{name: "an end before the soft signal", python: "print(1)", fake: prints("1\n"), job: softly(100, 110, "SIGTERM"), want: want{stdout: "1\n"}},
		{name: "deadline variable", python: "import os, time\nassert 50 < float(os.environ['SANDBOX_DEADLINE']) - time.time() < 100\nprint('ok')\n",
			job: func(job *spec.Job) {
				job.TimeoutSeconds, job.Env = 100, []string{"SANDBOX_DEADLINE=0"}
			},
			fake: func(p *Program) int {
				deadline, err := strconv.ParseFloat(p.Env()[spec.DeadlineEnv], 64)
				p.Print(map[bool]string{true: "ok\n", false: "not ok\n"}[err == nil && time.Until(time.UnixMilli(int64(deadline*1000))) > 50*time.Second])
				return 0
			}, want: want{stdout: "ok\n"}},
		{name: "no deadline variable", python: "import os\nprint(os.environ.get('SANDBOX_DEADLINE'))\n",
			job: func(job *spec.Job) { job.NoDeadlineEnv = true },
			fake: func(p *Program) int {
				_, set := p.Env()[spec.DeadlineEnv]
				p.Print(map[bool]string{true: "set\n", false: "None\n"}[set])
				return 0
			}, want: want{stdout: "None\n"}},
		{name: "no time limit", python: "import time; time.sleep(1)", fake: func(p *Program) int { p.Sleep(time.Second); return 0 }, job: limit(0, 0)},
		{name: "stop", python: sleeps, fake: fakeSleeps, job: limit(0, 30), signals: []engine.Signal{engine.Stop}, want: want{signal: 15, cause: engine.BySignal}},
		{name: "stop ignored", python: ignoresAll, fake: fakeIgnores, job: limit(120, 1), signals: []engine.Signal{engine.Stop},
			want: want{signal: 9, cause: engine.BySignal, escalated: true}},
		{name: "stop and exit 0", python: withTerm, fake: fakeTerm, signals: []engine.Signal{engine.Stop}, want: want{cause: engine.BySignal}},
		{name: "stop twice", python: withTerm, fake: fakeTerm, signals: []engine.Signal{engine.Stop, engine.Stop}, want: want{cause: engine.BySignal}},
		{name: "kill", python: ignoresAll, fake: fakeIgnores, signals: []engine.Signal{engine.Kill}, want: want{signal: 9, cause: engine.BySignal}},
		{name: "stop, then kill", python: ignores, fake: fakeIgnores, job: limit(120, 110), signals: []engine.Signal{engine.Stop, engine.Kill},
			want: want{signal: 9, cause: engine.BySignal, mayEscalate: "it was stopped before, and its grace period was not over"}},
		{name: "abort", python: ignores, fake: fakeIgnores, signals: []engine.Signal{engine.Abort}, want: want{unreported: true}},

		{name: "not there", job: command("/no/such/program"), want: want{launch: &engine.LaunchError{Stage: "exec", Errno: syscall.ENOENT}}},
		{name: "not in the path", job: command("no-such-program"), want: want{launch: &engine.LaunchError{Stage: "exec", Errno: syscall.ENOENT}}},
		{name: "below a file", job: command("/etc/passwd/x"), want: want{launch: &engine.LaunchError{Stage: "exec", Errno: syscall.ENOTDIR}}},
		{name: "not executable", job: command("/etc/passwd"), want: want{launch: &engine.LaunchError{Stage: "exec", Errno: syscall.EACCES}}},
		{name: "a directory", job: command("/tmp"), want: want{launch: &engine.LaunchError{Stage: "exec", Errno: syscall.EACCES}}},
		{name: "argument too long", job: command("python3", "-c", "pass", strings.Repeat("x", 200_000)),
			want: want{launch: &engine.LaunchError{Stage: "exec", Errno: syscall.E2BIG}}},

		{name: "out of memory", python: "kept = []\nwhile True: kept.append(bytearray(8 << 20))\n", fake: func(p *Program) int {
			p.End(func(end *engine.End) { end.OOMKilled = true })
			return Died(9)
		}, want: want{signal: 9, oom: true}},
		{name: "a child is out of memory", python: "import subprocess, sys\np = subprocess.run([sys.executable, '-c', 'b = bytearray(1 << 30)'])\nprint('child', p.returncode)\n",
			fake: func(p *Program) int {
				p.End(func(end *engine.End) { end.OOMKilled = true })
				p.Print("child -9\n")
				return 0
			}, want: want{oom: true, stdout: "child -9\n"}},
		{name: "leaves children behind", python: "import subprocess\n" +
			"for extra in ({}, {'start_new_session': True}): subprocess.Popen(['sleep', '600'], **extra)\nprint('done')\n",
			want: want{stdout: "done\n"}, check: atOnce},
		{name: "usage", python: "import time\nb = bytearray(32 << 20)\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n",
			fake: prints(""), check: func(t *testing.T, got observed) {
				if got.end.Usage.Source == "" {
					t.Log("the engine reports no usage")
					return
				}
				assert.GreaterOrEqual(t, got.end.Usage.CPU, 300*time.Millisecond)
				assert.GreaterOrEqual(t, got.end.Usage.PeakMemory, int64(32<<20))
				assert.LessOrEqual(t, got.end.Usage.PeakMemory, int64(memory))
			}},
	}
	for _, code := range []int{0, 1, 2, 125, 126, 127, 128, 137, 139, 143, 255} {
		all = append(all, programCase{name: fmt.Sprint("exit ", code), python: fmt.Sprintf("import os; os._exit(%d)", code),
			fake: func(*Program) int { return code }, want: want{code: code}})
	}
	for _, signal := range []int{1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 13, 14, 15, 24, 25, 31, 34, 64} {
		all = append(all, programCase{name: fmt.Sprint("signal ", signal), fake: func(*Program) int { return Died(signal) }, want: want{signal: signal},
			python: fmt.Sprintf("import os, signal\nif %[1]d != 9: signal.signal(%[1]d, signal.SIG_DFL)\nos.kill(os.getpid(), %[1]d)\n", signal)})
	}
	return slices.Concat(all, streamCases(), limitCases(), environmentCases(), preloadCases())
})

// Streams.

// everyByte has every byte value, invalid UTF-8, and a partial line at the end.
var everyByte = func() []byte {
	var all []byte
	for i := range 256 {
		all = append(all, byte(i))
	}
	return append(append(all, "\n\xed\xa0\x80\xc0\xaf\x00\x00\r\r\n"...), "no end"...)
}()

// forged looks like a report from init of the exit code 0.
const forged = "\x00EBX\x01\x03\x00\x00\x10\x00\x00\x00\x01\x00\x00\x00\x04\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00"

// forgedStart looks like frames of init that say that the program was not started: a ready frame, a
// refusal of the job, and a report of a command that does not exist.
const forgedStart = "\x00EBX\x01\x01\x00\x00\x00\x00\x00\x00" +
	"\x00EBX\x01\x04\x00\x00\x0c\x00\x00\x00\x01\x00\x00\x00\x04\x00\x00\x00\x01\x00\x00\x00" +
	"\x00EBX\x01\x03\x00\x00\x34\x00\x00\x00\x01\x00\x00\x00\x04\x00\x00\x00\x03\x00\x00\x00" +
	"\x02\x00\x00\x00\x04\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00\x04\x00\x00\x00\x06\x00\x00\x00" +
	"\x04\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\n" +
	"exec: \"python3\": executable file not found in $PATH\n"

func streamCases() []programCase {
	const blocks = 1600 // of 64 KiB
	block := bytes.Repeat([]byte("0123456789abcdef"), 4096)
	other := bytes.ToUpper(block)
	numbers := func(letter string) string {
		var b strings.Builder
		for i := range 2000 {
			fmt.Fprintf(&b, "%s %d\n", letter, i)
		}
		return b.String()
	}
	long := bytes.Repeat([]byte("input\x00\xff\n\r"), 10<<20/9)
	echo := func() io.Reader { return bytes.NewReader(long) }
	fakeEcho := func(p *Program) int {
		_, _ = io.Copy(p.Stdout(), p.Stdin())
		return 0
	}
	// Unbuffered streams of Python may write a part only. Linux blocks instead, gVisor does not.
	const writeAll = "import sys\ndef write(to, data):\n    while data: data = data[to.buffer.write(data):]\n"
	const pythonEcho = writeAll + "while data := sys.stdin.buffer.read(65536): write(sys.stdout, data)\n"
	return []programCase{
		{name: "order", python: "import os\nfor i in range(2000):\n    os.write(1, b'o %d\\n' % i)\n    os.write(2, b'e %d\\n' % i)\n",
			fake: func(p *Program) int {
				for i := range 2000 {
					p.Print(fmt.Sprintf("o %d\n", i))
					p.PrintErr(fmt.Sprintf("e %d\n", i))
				}
				return 0
			}, want: want{stdout: numbers("o"), stderr: numbers("e")}},
		{name: "100 MB on each stream", hashed: true, python: fmt.Sprintf(writeAll+"a = b'0123456789abcdef' * 4096\nb = a.upper()\n"+
			"for _ in range(%d):\n    write(sys.stdout, a)\n    write(sys.stderr, b)\n", blocks),
			fake: func(p *Program) int {
				for range blocks {
					_, _ = p.Stdout().Write(block)
					_, _ = p.Stderr().Write(other)
				}
				return 0
			}, want: want{stdout: sumOf(block, blocks), stderr: sumOf(other, blocks)}},
		{name: "bytes", python: "import os\nall = bytes(range(256)) + b'\\n\\xed\\xa0\\x80\\xc0\\xaf\\0\\0\\r\\r\\nno end'\nos.write(1, all)\nos.write(2, all)\n",
			fake: func(p *Program) int {
				p.Print(string(everyByte))
				p.PrintErr(string(everyByte))
				return 0
			}, want: want{stdout: string(everyByte), stderr: string(everyByte)}},
		{name: "a forged report", python: fmt.Sprintf("import os\nfor n in (1, 2): os.write(n, bytes.fromhex('%x') * 3)\nos._exit(7)\n", forged),
			fake: func(p *Program) int {
				p.Print(strings.Repeat(forged, 3))
				p.PrintErr(strings.Repeat(forged, 3))
				return 7
			}, want: want{code: 7, stdout: strings.Repeat(forged, 3), stderr: strings.Repeat(forged, 3)}},
		{name: "a forged failure to start", python: fmt.Sprintf("import os\nfor n in (1, 2): os.write(n, bytes.fromhex('%x'))\nos._exit(127)\n", forgedStart),
			fake: func(p *Program) int {
				p.Print(forgedStart)
				p.PrintErr(forgedStart)
				return 127
			}, want: want{code: 127, stdout: forgedStart, stderr: forgedStart}},
		{name: "nothing printed", python: "pass", fake: prints(""),
			check: func(t *testing.T, got observed) { assert.Empty(t, got.stdout+got.stderr) }},
		{name: "both streams closed", python: "import os, time\nos.write(1, b'x')\nos.close(1)\nos.close(2)\ntime.sleep(0.5)\nos._exit(4)\n",
			fake: func(p *Program) int { p.Print("x"); return 4 }, want: want{code: 4, stdout: "x"}},
		{name: "empty stdin", python: pythonEcho, fake: fakeEcho, stdin: func() io.Reader { return strings.NewReader("") },
			check: func(t *testing.T, got observed) { assert.Empty(t, got.stdout) }},
		{name: "10 MB through stdin", python: pythonEcho, fake: fakeEcho, stdin: echo, hashed: true, want: want{stdout: sumOf(long, 1)}},
		{name: "stdin that is closed early", python: "import os\nprint(os.read(0, 5).decode())\nos.close(0)\nimport time\ntime.sleep(0.5)\nprint('end')\n",
			stdin: echo, want: want{stdout: "input\nend\n"}, fake: func(p *Program) int {
				first := make([]byte, 5)
				_, _ = io.ReadFull(p.Stdin(), first)
				p.CloseStdin()
				p.Print(string(first) + "\nend\n")
				return 0
			}},
		{name: "stdin that nobody reads", python: "print('end')", fake: prints("end\n"), stdin: echo, want: want{stdout: "end\n"}},
		{name: "no stdin", python: "import os\nprint(os.read(0, 9), os.readlink('/proc/self/fd/0'))\n", fake: prints("b'' /dev/null\n"), want: want{stdout: "b'' /dev/null\n"}},
	}
}

// The environment.

func environmentCases() []programCase {
	arguments := []string{"", " ", "a b", "a\nb", "tab\t", "ü", "\xff\xfe", `"'\$`, "--", "-c", "*", "\x01"}
	environment := []string{"CHANGED=of the job", "EMPTY=", "EQUALS=a=b", "LINES=a\nb", "ODD=\xff\x01 ü", "SPACE= x "}
	pack := func(pairs ...string) string { return strings.Join(pairs, "\x00") }
	return []programCase{
		{name: "arguments", python: "import os, sys\nos.write(1, b'\\0'.join(map(os.fsencode, sys.argv[1:])))\n",
			job:  func(job *spec.Job) { job.Command = append(job.Command, arguments...) },
			fake: func(p *Program) int { p.Print(pack(p.Job.Command[4:]...)); return 0 }, want: want{stdout: pack(arguments...)}},
		{name: "environment", python: "import os\nnames = (b'CHANGED', b'EMPTY', b'EQUALS', b'LINES', b'ODD', b'SPACE', b'KEPT')\n" +
			"os.write(1, b'\\0'.join(n + b'=' + os.environb[n] for n in names))\n" +
			"assert os.environ['PATH'] and not [n for n in os.environ if n.startswith('LD_')]\n",
			job: func(job *spec.Job) { job.Env = environment }, want: want{stdout: pack(append(environment, "KEPT="+classEnv)...)},
			fake: func(p *Program) int {
				var pairs []string
				for _, name := range []string{"CHANGED", "EMPTY", "EQUALS", "LINES", "ODD", "SPACE", "KEPT"} {
					pairs = append(pairs, name+"="+p.Env()[name])
				}
				p.Print(pack(pairs...))
				return 0
			}},
		{name: "working directory", python: "import os; print(os.getcwd())", fake: func(p *Program) int { p.Print(p.Class.WorkDir + "\n"); return 0 },
			class: func(class *spec.Class) { class.WorkDir = "/usr/share" }, want: want{stdout: "/usr/share\n"}},
		{name: "files that are left", python: "open('/work/model.pkl', 'w').write('x' * 1000)\nopen('/work/.hidden', 'w')\n",
			fake: func(p *Program) int {
				p.End(func(end *engine.End) {
					end.Left = &wire.Left{Files: 1, Bytes: 1000, Complete: true, Names: []string{"model.pkl"}}
				})
				return 0
			},
			check: func(t *testing.T, got observed) {
				assert.Equal(t, &wire.Left{Files: 1, Bytes: 1000, Complete: true, Names: []string{"model.pkl"}}, got.end.Left)
			}},
		{name: "aliases", python: "import os\nopen('/work/data/x', 'w').write('1')\nprint(open('/links/in/deep').read(), os.readlink('/work/data'))\n" +
			"try: open('/links/file', 'w').write('x')\nexcept OSError as e: print(e.strerror)\n",
			class: func(class *spec.Class) {
				class.Tmpfs = append(class.Tmpfs, spec.Tmpfs{Target: "/links", SizeBytes: 64 << 10, Inodes: 3})
			},
			job: func(job *spec.Job) {
				job.Aliases = []spec.Alias{{Name: "/work/data", Target: "/tmp"}, {Name: "/links/in/deep", Target: "/work/data/x"}}
			},
			fake: prints("1 /tmp\nNo space left on device\n"), want: want{stdout: "1 /tmp\nNo space left on device\n"}},
		{name: "the command is found by the path", job: command("python3", "-c", "print(1)"),
			fake: prints("1\n"), want: want{stdout: "1\n"}},
	}
}
