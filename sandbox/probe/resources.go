package probe

import (
	"time"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// stopped is the end of a run at its time limit, by a program that dies of SIGTERM.
const stopped = "The program was stopped at its time limit."

// killed is the end of one that does not.
const killed = stopped + " It did not end on SIGTERM and was killed."

// ownLimits and wholeKernel are why gVisor differs.
const (
	ownLimits   = "the limit counts the threads of gVisor as well, which does not start with so few"
	wholeKernel = "the kernel kills the whole of gVisor, with the container's init"
)

// vanished is the warning of a program that fills the working directory.
const vanished = "1 file (4 MiB) was written to the working directory and is gone: x; only ./final is kept"

// noLimitOfPods is for runs with a limit of their processes.
var noLimitOfPods = TraitWant{Trait: "pod", Why: "the kubelet limits the processes of a pod, and a run cannot have a limit of its own",
	Want: Want{Refused: "/.*pids-limit 24: is not enforced by this engine/"}}

// resourceRuns use up what a run has.
func resourceRuns() []Run {
	const fill = `
import errno
def fill(path, step=1 << 16, most=1 << 33):
    n = 0
    with open(path, 'wb', buffering=0) as f:
        try:
            while n < most: n += f.write(bytes(step))
        except OSError as e:
            print(errno.errorcode[e.errno], n, flush=True)
`
	return []Run{
		{Group: "resources", Name: "fork bomb that never rests", Limits: policy.Limits{PIDs: 24, Timeout: 6 * time.Second, Grace: 100 * time.Millisecond},
			Want:  Want{Status: result.StatusTimedOut, Signal: 9, Explanation: killed, Seconds: 20},
			Under: []TraitWant{{Trait: "runsc", Why: ownLimits, Want: Want{Refused: `/(?s).*start.*/`}}, noLimitOfPods}, Python: `
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    try: os.fork()
    except OSError: pass`},
		{Group: "resources", Name: "memory of a file without a name", Limits: policy.Limits{Memory: 64 * policy.MiB},
			Want: Want{Status: result.StatusOutOfMemory}, Under: []TraitWant{{Trait: "runsc", Why: wholeKernel, Want: Want{Status: result.StatusOutOfMemory, Incomplete: true}}},
			Python: "import os\nfd = os.memfd_create('x')\nwhile True: os.write(fd, bytes(1 << 20))"},
		{Group: "resources", Name: "memory of /dev/shm", Limits: policy.Limits{Memory: 64 * policy.MiB, Shm: 8 * policy.MiB},
			Want: Want{Stdout: "ENOSPC 8388608\n"}, Python: fill + "fill('/dev/shm/x')"},
		{Group: "resources", Name: "/tmp is full", Deep: true, Limits: policy.Limits{Tmp: 4 * policy.MiB}, Want: Want{Stdout: "ENOSPC 4194304\n"}, Python: fill + "fill('/tmp/x')"},
		{Group: "resources", Name: "the working directory is full", Limits: policy.Limits{Scratch: 4 * policy.MiB}, Want: Want{Stdout: "ENOSPC\n", Warnings: []string{vanished}}, Python: fill +
			"import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()) as out: fill('/work/x')\nprint(out.getvalue().split()[0])"},
		{Group: "resources", Name: "names in /tmp", Long: true, Limits: policy.Limits{Memory: 512 * policy.MiB}, Want: Want{Stdout: "ENOSPC 124999\n"},
			Under: []TraitWant{{Trait: "runsc", Why: "gVisor does not count names, which are memory of its own", Want: Want{Stdout: "200000\n"}}}, Python: `
import errno, os
n = 0
try:
    while n < 200_000:
        os.mknod('/tmp/%d' % n)
        n += 1
    print(n)
except OSError as e: print(errno.errorcode[e.errno], n)`},
		{Group: "resources", Name: "memory that /tmp holds", Limits: policy.Limits{Memory: 48 * policy.MiB, Tmp: 47 * policy.MiB},
			Want: Want{Status: result.StatusOutOfMemory}, Under: []TraitWant{{Trait: "runsc", Why: wholeKernel, Want: Want{Status: result.StatusOutOfMemory, Incomplete: true}}},
			Python: fill + "fill('/tmp/x')"},
		{Group: "resources", Name: "the disk limit", Deep: true, Limits: policy.Limits{Disk: policy.MiB},
			Want: Want{Stdout: "EFBIG 1048576\n", Outputs: []string{"big 0644 1048576"}, Warnings: []string{"/final/big is exactly as large as a file may be, 1MiB .*/"}}, Python: fill + "fill('final/big')"},
		{Group: "resources", Name: "the disk limit of a program that does not look", Limits: policy.Limits{Disk: policy.MiB}, Command: []string{"sh", "-c", "cat /dev/zero > final/big; echo $?"},
			Want: Want{Stdout: "153\n", Stderr: "/(File size limit exceeded\n)?/", Outputs: []string{"big 0644 1048576"}, Warnings: []string{"/final/big is exactly as large as a file may be, 1MiB .*/"}}},
		{Group: "resources", Name: "the disk limit ends the program itself", Limits: policy.Limits{Disk: policy.MiB}, Command: []string{"cp", "/dev/zero", "final/big"},
			Want: Want{Status: result.StatusDiskLimit, Code: 153, Signal: 25, Outputs: []string{"big 0644 1048576"}, Warnings: []string{"/final/big is exactly as large as a file may be, 1MiB .*/"}}},
		{Group: "resources", Name: "the disk limit with many files", Limits: policy.Limits{Disk: policy.MiB, OutputFiles: 5},
			Want: Want{Status: result.StatusDiskLimit, Code: 143, Signal: 15,
				Outputs: []string{"/\\d+ 0644 4096/", "/\\d+ 0644 4096/", "/\\d+ 0644 4096/", "/\\d+ 0644 4096/", "/\\d+ 0644 4096/"}, Skipped: []string{"/\\d+ other: more than 5 entries/"}},
			Under: []TraitWant{{Trait: "pod", Why: listedByCopy, Want: Want{Status: result.StatusDiskLimit, Code: 143, Signal: 15,
				Outputs: []string{"/\\d+ 0644 4096/", "/\\d+ 0644 4096/", "/\\d+ 0644 4096/", "/\\d+ 0644 4096/", "/\\d+ 0644 4096/"}, Skipped: []string{"/\\d+ other: more than 5 entries/"}, Warnings: []string{"/final held more than could be listed: .*/"}}}}, Python: `
import time
for n in range(4000):
    with open('final/%d' % n, 'wb') as f: f.write(bytes(4096))
time.sleep(50)`},
		{Group: "resources", Name: "open files", Limits: policy.Limits{NoFile: 64}, Want: Want{Stdout: "EMFILE 61\n"}, Python: `
import errno, os
kept = []
try:
    while len(kept) < 10_000: kept.append(os.open('/dev/null', os.O_RDONLY))
except OSError as e:
    n = len(kept)
    for fd in kept: os.close(fd)
    print(errno.errorcode[e.errno], n)`},
		{Group: "resources", Name: "processors", Limits: policy.Limits{CPUs: 0.5, Timeout: 3 * time.Second}, Want: Want{Status: result.StatusTimedOut, Signal: 15, Seconds: 20, CPU: 2.6},
			Python: "import os\nfor i in range(3): os.fork()\nwhile True: pass"},
		{Group: "resources", Name: "processor time of a process", Ulimits: []spec.Ulimit{{Name: "cpu", Soft: 1, Hard: 3}},
			Want: Want{Status: result.StatusSignaled, Signal: 24}, Long: true,
			Under:  []TraitWant{{Trait: "runsc", Why: "gVisor does not count this limit; the time limit ends the run", Want: Want{Status: result.StatusTimedOut, Signal: 15, Seconds: 70}}},
			Python: "while True: pass"},
		{Group: "resources", Name: "zombies", Want: Want{Stdout: "300\n"}, Python: `
import os
n = 0
for i in range(300):
    child = os.fork()
    if child == 0:
        if os.fork() == 0: os._exit(0)
        os._exit(0)
    os.waitpid(child, 0)
    n += 1
print(n)`},
		{Group: "resources", Name: "core file", Want: Want{Status: result.StatusSignaled, Signal: 6, Stderr: `/(?s)Fatal Python error: Aborted.*/`}, Python: "import os\nos.chdir('final')\nos.abort()"},
		{Group: "resources", Name: "stack", Want: Want{Status: result.StatusSignaled, Signal: 11, Stderr: `/(?s)Fatal Python error: Segmentation fault.*/`},
			Python: "import sys\nsys.setrecursionlimit(10**9)\ndef f():\n    return str(type('x', (), {'__str__': lambda s: f()})())\nf()"},
		{Group: "resources", Name: "a hole as large as a disk", Want: Want{Stdout: "EFBIG\n", Outputs: []string{"hole 0644 0"}}, Python: `
import errno
with open('final/hole', 'wb') as f:
    try: f.truncate(1 << 40)
    except OSError as e: print(errno.errorcode[e.errno])`},
	}
}
