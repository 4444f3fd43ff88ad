package enginetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/ends"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// testAttacks runs programs that attack init, each in its own container. The reported end must
// be the true one: no program gets a better one, and none keeps its container alive.
func testAttacks(t *testing.T, s *suite) {
	if s.Scripted {
		return // an attack needs a kernel
	}
	e := s.connect(t)
	for _, c := range attackCases() {
		if !s.can(c.Name) {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			s.program(t, e, c)
		})
	}
	t.Run("the file of init", func(t *testing.T) {
		t.Parallel()
		testInitFile(t, s)
	})
}

func attackCases() []programCase {
	var all []programCase
	for i, p := range ends.Attacks() {
		all = append(all, programCase{Program: p, class: func(class *spec.Class) {
			class.User = fmt.Sprintf("%[1]d:%[1]d", firstUser+i)
			if p.NoQuota {
				class.Ulimits = append(class.Ulimits, spec.Ulimit{Name: "sigpending"})
			}
		}})
	}
	all = slices.Concat(all, pidsCases(), memoryCases())
	for i := range all {
		all[i].Stderr = ends.Anything
		all[i].check = func(t *testing.T, got observed) { assert.Less(t, got.took, time.Minute) }
	}
	return all
}

// firstUser is the user of the first attack. Each attack has a user of its own, because the
// kernel counts pending signals by user: a flood of them in one container makes it lose the
// senders of signals in the others. A user namespace has these users too.
const firstUser = 30000

// pidsCases use up the process limit of the container. Each process keeps forking, even while
// init kills them.
func pidsCases() []programCase {
	const bomb = ends.Prelude + `
deaf()
n = 0
while (child := fork()) is not None:
    if child == 0:
        os.setsid()
        while True: fork()
    n += 1
print('full', n > 0, flush=True)
`
	// Init has idle threads if the limit is small.
	const threads = ends.Prelude + `
import threading
tasks = [int(n) for n in os.listdir('/proc/1/task')]
print(len(tasks), *{call(PRLIMIT, task, resource.RLIMIT_CPU, struct.pack('QQ', 0, 0), 0) for task in tasks},
      *{call(TGKILL, 1, task, signal.SIGKILL) for task in tasks}, flush=True)
stop, n = threading.Event(), 0
try:
    while True:
        threading.Thread(target=stop.wait, daemon=True).start()
        n += 1
except RuntimeError: print(n, flush=True)
os._exit(42)`
	full := "full True\n"
	return []programCase{
		{Program: ends.Program{Name: "threads of init", Python: threads, Code: ends.Success, Stdout: "5 EPERM 0\n2\n"}, class: func(class *spec.Class) { class.Cgroup.PIDs = 3 }},
		{Program: ends.Program{Name: "no process left, then an exit", Python: bomb + "os._exit(42)", Grace: 2 * time.Second, Code: ends.Success, Stdout: full}},
		{Program: ends.Program{Name: "no process left, then the deadline", Python: bomb + "while True: fork()", Timeout: 3 * time.Second, Grace: 100 * time.Millisecond,
			Deadline: true, Signal: 9, Stdout: full}},
	}
}

// memoryCases use up the memory of the container.
func memoryCases() []programCase {
	// eaters are children that the OOM killer keeps killing. It chooses them because the other
	// processes have the OOM score of init, and none can lower its own below that.
	const eaters = ends.Prelude + `
deaf()
def score(n): return attempt(lambda: os.write(os.open('/proc/self/oom_score_adj', os.O_WRONLY), b'%d' % n))
print('scores', score(0), score(-1), flush=True)
r, w = os.pipe()
for i in range(3):
    if os.fork() == 0:
        os.setsid()
        while True:
            eater = fork()
            if eater == 0:
                score(1000)
                kept = []
                while True: kept.append(bytearray(1 << 20))
            if eater and os.waitpid(eater, 0)[1] == 9: os.write(w, b'x')
for i in range(3): os.read(r, 1)
`
	const scores = "scores 1 EACCES\n"
	// outlives fills memory that does not belong to a process. At the end only one process is
	// left besides init: it has a few pages and init's score, so killing it frees little.
	const outlives = ends.Prelude + `
code = b'\xb8\x1d\x01\0\0\xbf\3\0\0\0\x31\xf6\x31\xd2\x41\xba\0\0\0\x40\x0f\5\xeb\xe8' if x86 else bytes.fromhex(
    'e80580d2600080d2010080d2020080d20300a8d2010000d4faffff17')  # fallocate(3, 0, 0, 1 GiB), again and again
header = struct.pack('<16sHHIQQQIHHHHHH', b'\x7fELF\2\1\1', 2, 62 if x86 else 183, 1, 0x400078, 64, 0, 0, 64, 56, 1, 0, 0, 0)
segment = struct.pack('<IIQQQQQQ', 1, 5, 0, 0x400000, 0x400000, 120 + len(code), 120 + len(code), 0x1000)
with open('/work/tiny', 'wb') as f: f.write(header + segment + code)
os.chmod('/work/tiny', 0o755)
os.write(os.open('/proc/self/oom_score_adj', os.O_WRONLY), b'0')
held = %s
if held != 3: os.dup2(held, 3)
os.set_inheritable(3, True)
print('goes on as', os.path.getsize('/work/tiny'), flush=True)
os.execv('/work/tiny', ['tiny'])`
	// A tmpfs larger than the memory limit keeps its files.
	tight := func(class *spec.Class) {
		class.Cgroup.MemoryBytes, class.Tmpfs[0].SizeBytes = 24*mib, 1<<30
	}
	const tiny = `/goes on as 1\d\d\n/`
	return []programCase{
		{Program: ends.Program{Name: "no memory left, then an exit", Python: eaters + "os._exit(42)", OOM: true, Code: ends.Success, Stdout: scores}},
		{Program: ends.Program{Name: "no memory left, then the deadline", Python: eaters + "while True: time.sleep(1)", Timeout: 10 * time.Second, Grace: 100 * time.Millisecond,
			OOM: true, Deadline: true, Signal: 9, Stdout: scores}},
		// The kernel kills init or the program. The run ends out of memory either way.
		{mayDie: true, Program: ends.Program{Name: "memory that no process maps", Python: fmt.Sprintf(outlives, "os.memfd_create('held')"),
			Timeout: 20 * time.Second, Grace: time.Second, OOM: true, Signal: 9, Stdout: tiny}},
		{mayDie: true, class: tight, Program: ends.Program{Name: "memory that outlives its program", Python: fmt.Sprintf(outlives, "os.open('/tmp/held', os.O_RDWR | os.O_CREAT)"),
			Timeout: 20 * time.Second, Grace: time.Second, OOM: true, Signal: 9, Stdout: tiny}},
	}
}

// initFileAttack tries to change the binary of its container's init: through its name, its
// mount, and the processes that execute it.
const initFileAttack = ends.Prelude + `
import hashlib, mmap, subprocess
path = open('/proc/1/cmdline', 'rb').read().split(b'\0')[0].decode()
def identity(): return hashlib.sha256(open(path, 'rb').read()).hexdigest(), os.stat(path).st_ino, os.stat(path).st_mode
before, answers = identity(), {}
def refused(name, what, *args): answers[name] = attempt(what, *args)
with open('/tmp/fake', 'wb') as f: f.write(b'#!/bin/true\n')
os.chmod('/tmp/fake', 0o755)
child = os.fork()
if child == 0:
    call(PTRACE, 0, 0, 0, 0)  # TRACEME: it stops once it is init's binary
    os.execv(path, [path])
os.waitpid(child, 0)
executed = '/proc/%d/exe' % child
assert os.stat(executed).st_ino == before[1]
for name in (path, executed, '/proc/1/exe', '/proc/1/root' + path, '/proc/%d/root%s' % (child, path)):
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND): refused('open %s %d' % (name, flags), os.open, name, flags)
    refused('truncate ' + name, os.truncate, name, 0)
    refused('chmod ' + name, os.chmod, name, 0o777)
    refused('utime ' + name, os.utime, name)
    refused('setxattr ' + name, os.setxattr, name, 'user.x', b'x')
readable = os.open(path, os.O_RDONLY)
refused('reopen', os.open, '/proc/self/fd/%d' % readable, os.O_RDWR)
refused('fchmod', os.fchmod, readable, 0o777)
refused('mmap', lambda: mmap.mmap(readable, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE))
refused('unlink', os.unlink, path)
refused('rename away', os.rename, path, path + '.old')
refused('rename over', os.rename, '/tmp/fake', path)
refused('link', os.link, path, path + '.old')
refused('create beside', os.open, path + '.new', os.O_WRONLY | os.O_CREAT)
MOUNT, UMOUNT, UNSHARE = (165, 40), (166, 39), (272, 97)
for name, flags in (('bind', 4096), ('remount', 32 | 4096), ('private', 1 << 18)):
    refused(name, call, MOUNT, b'/tmp/fake', path.encode(), b'none', flags, 0)
refused('umount', call, UMOUNT, path.encode(), 2)
for flags in (0x10000000, 0x20000000, 0x00020000): refused('unshare %x' % flags, call, UNSHARE, flags)
# What a process changes of the text that it executes is its own copy.
text = next(l for l in open('/proc/%d/maps' % child) if 'x' in l.split()[1] and path in l)
patched = attempt(lambda: os.pwrite(os.open('/proc/%d/mem' % child, os.O_RDWR), b'\xcc' * 64, int(text.split('-')[0], 16)))
os.kill(child, 9)
ran = subprocess.run([path], capture_output=True)
taken = {name: answer for name, answer in answers.items() if not isinstance(answer, str) or answer[0] != 'E'}
print(taken or '%d refused' % len(answers), 'patched', patched, 'ran', ran.returncode, ran.stderr.decode().strip(), identity() == before)
os._exit(42 if not taken else 1)
`

// testInitFile attacks the file of init. All containers share it, so a program that could
// change it would be PID 1 of the next one.
func testInitFile(t *testing.T, s *suite) {
	e := s.connect(t)
	s.program(t, e, programCase{Program: ends.Program{Name: "the file of init", Python: initFileAttack, Code: ends.Success, Stderr: ends.Anything,
		Stdout: `/5\d refused patched (64|E[A-Z]+) ran 125 sandbox-init: not process 1 of a container True\n/`}})
	again := s.must(t, s.connect(t), s.class(), s.meta(t))
	require.Equal(t, wire.BuildID(), again.Ready().Build)
	got := do(t, again, s.job(t, "prints"), nil)
	require.True(t, got.end.Reported && got.end.Complete, "%+v", got.end)
	require.Zero(t, got.end.ExitCode)
}
