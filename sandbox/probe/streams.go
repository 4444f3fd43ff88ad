package probe

import (
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
)

// label is the text before a score, in two parts: the text of a program must not have one by
// accident.
const label = "Final Validation " + "Performance: "

// shortWrites is why gVisor differs: a write to a pipe of the machine may be shorter than
// asked for even if it waits, and Python writes the rest only if its output is buffered.
const shortWrites = "a write to stdout takes 64 KiB at a time, and Python without a buffer forgets the rest"

// streamRuns print odd things, among them scores.
func streamRuns() []Run {
	// everything writes a whole text, however much of it one call takes.
	const everything = "import os\ndef write(text):\n    left = memoryview(text.encode())\n    while left: left = left[os.write(1, left):]\n"
	return []Run{
		{Group: "streams", Name: "a flood", Deep: true, Limits: policy.Limits{CaptureStdout: 4 * policy.KiB, StreamFile: 64 * policy.MiB},
			Want:   Want{Score: "0.5", Stdout: `/(?s)HEAD\n.*` + `\n` + label + `0.5\n(xxx\n)*TAIL\n/`, StdoutBytes: 5 + 8_000_000 + int64(len(label)) + 4 + 400 + 5},
			Python: everything + "write('HEAD\\n' + 'xxx\\n' * 2_000_000 + '" + label + "0.5\\n' + 'xxx\\n' * 100 + 'TAIL\\n')"},
		{Group: "streams", Name: "a print of a megabyte", Want: Want{Stdout: `/x+\n/`, StdoutBytes: 1_000_001}, Python: "print('x' * 1_000_000)",
			Under: []TraitWant{{Trait: "runsc", Why: shortWrites, Want: Want{Stdout: `/x+\n?/`, StdoutBytes: 65_537}}}},
		{Group: "streams", Name: "a score in the part that was cut", Limits: policy.Limits{CaptureStdout: 4 * policy.KiB}, Want: Want{Score: "0.25", Stdout: `/(?s)xxx\n.*xxx\n\n/`, StdoutBytes: 8_000_001 + int64(len(label)) + 5},
			Python: everything + "write('xxx\\n' * 1_000_000 + '" + label + "0.25' + '\\n' + 'xxx\\n' * 1_000_000 + '\\n')"},
		{Group: "streams", Name: "floods of both", Limits: policy.Limits{CaptureStdout: 4 * policy.KiB, CaptureStderr: 4 * policy.KiB},
			Want: Want{Stdout: `/(?s)out\n.*out\n/`, Stderr: `/(?s)err\n.*err\n/`, StdoutBytes: 4_000_000, StderrBytes: 4_000_000}, Python: `
import os, threading
def write(fd, text):
    left = memoryview(text * 1_000_000)
    while left: left = left[os.write(fd, left):]
threads = [threading.Thread(target=write, args=a) for a in ((1, b'out\n'), (2, b'err\n'))]
for t in threads: t.start()
for t in threads: t.join()`},
		{Group: "streams", Name: "a line without an end", Limits: policy.Limits{CaptureStdout: 4 * policy.KiB}, Want: Want{Stdout: `/(?s)x+.*x+/`, StdoutBytes: 16 << 20},
			Python: everything + "for i in range(16): write('x' * (1 << 20))"},
		{Group: "streams", Name: "two million lines", Long: true, Limits: policy.Limits{CaptureStdout: 4 * policy.KiB}, Want: Want{Stdout: `/(?s)\n+.*\n+/`, StdoutBytes: 2_000_000},
			Python: "import os\nfor i in range(2000): os.write(1, b'\\n' * 1000)"},
		{Group: "streams", Name: "bytes that are not text", Want: Want{Stdout: "a\x00b\uFFFD\uFFFDc\n", StdoutBytes: 7}, Python: "import os\nos.write(1, b'a\\0b\\xff\\xfec\\n')"},
		{Group: "streams", Name: "a character in two writes", Want: Want{Stdout: "\u20ac\n"}, Python: "import os, time\nos.write(1, b'\\xe2\\x82')\ntime.sleep(0.2)\nos.write(1, b'\\xac\\n')"},
		{Group: "streams", Name: "commands for a terminal", Want: Want{Stdout: "\x1b[2J\x1b]0;title\x07\x1b]52;c;eA==\x07done\n"}, Python: `print('\x1b[2J\x1b]0;title\x07\x1b]52;c;eA==\x07done')`},
		{Group: "streams", Name: "a bar of progress", Want: Want{Stdout: "10 %\r20 %\r100 %\r\n" + label + "0.75\r\n", Score: "0.75"}, Python: "import os\nos.write(1, b'10 %\\r20 %\\r100 %\\r\\n" + label + "0.75\\r\\n')"},
		{Group: "streams", Name: "no newline at the end", Want: Want{Stdout: label + "0.125", Score: "0.125"}, Python: "import os\nos.write(1, b'" + label + "0.125')"},
		{Group: "streams", Name: "stdout by its names", Want: Want{Stdout: "0\n1\n2\n"}, Python: `
for i, path in enumerate(('/dev/stdout', '/proc/self/fd/1', '/dev/fd/1')):
    with open(path, 'w') as f: f.write('%d\n' % i)`},
		{Group: "streams", Name: "stderr moved to stdout", Want: Want{Stdout: "to stderr\n"}, Python: "import os, sys\nos.dup2(1, 2)\nsys.stderr.write('to stderr\\n')"},
		{Group: "streams", Name: "stdout that does not wait", Limits: policy.Limits{CaptureStdout: 4 * policy.KiB}, Want: Want{Stdout: `/(?s)x+.*x+/`, StdoutBytes: 4 << 20}, Python: `
import os, select
os.set_blocking(1, False)
left = 4 << 20
while left:
    select.select([], [1], [])
    try: left -= os.write(1, b'x' * min(left, 65536))
    except BlockingIOError: pass`},
		{Group: "streams", Name: "lines of three processes", Want: Want{Stdout: "/(?:[abc]{99}\n)*/", StdoutBytes: 30_000}, Python: `
import os
for letter in b'abc':
    if os.fork() == 0:
        for i in range(100): os.write(1, bytes([letter]) * 99 + b'\n')
        os._exit(0)
for i in range(3): os.wait()`},
		{Group: "streams", Name: "a child that prints at the end", Want: Want{Stdout: "/main\n(late\n)*/"}, Python: `
import os, time
print('main', flush=True)
if os.fork() == 0:
    os.setsid()
    while True: os.write(1, b'late\n'); time.sleep(0.01)`},
		{Group: "streams", Name: "the output limit", Deep: true, Limits: policy.Limits{Output: 64 * policy.KiB, CaptureStdout: policy.KiB, Timeout: 50e9},
			Want:   Want{Status: result.StatusOutputLimit, Code: 143, Signal: 15, Stdout: `/(?s)x+.*/`, StdoutBytes: Cut},
			Python: everything + "import time\nwrite('x' * (1 << 20))\ntime.sleep(40)"},

		{Group: "scores", Name: "the last one counts", Deep: true, Want: Want{Score: "0.75", Stdout: label + "0.5\n" + label + "0.75\nbye\n"}, Python: "print('" + label + "0.5')\nprint('" + label + "0.75')\nprint('bye')"},
		{Group: "scores", Name: "in stderr it does not count", Want: Want{Stderr: label + "0.9\n"}, Python: "import sys\nsys.stderr.write('" + label + "0.9\\n')"},
		{Group: "scores", Name: "not finite", Want: Want{Stdout: label + "1e999\n", Warnings: []string{"/.*not.*finite.*/"}}, Python: "print('" + label + "1e999')"},
		{Group: "scores", Name: "not a number", Want: Want{Stdout: label + "nan\n", Warnings: []string{"the last score line has no number"}}, Python: "print('" + label + "nan')"},
		{Group: "scores", Name: "then a crash", Want: Want{Score: "0.5", Stdout: label + "0.5\n", Code: 1, Traceback: `/(?s)Traceback .*ValueError: after the score/`, Stderr: `/(?s)Traceback .*ValueError: after the score\n/`},
			Python: "print('" + label + "0.5')\nraise ValueError('after the score')"},
		{Group: "scores", Name: "in two writes", Want: Want{Score: "0.375", Stdout: label + "0.375\n"}, Python: "import os, time\nos.write(1, b'" + label[:20] + "')\ntime.sleep(0.2)\nos.write(1, b'" + label[20:] + "0.3')\ntime.sleep(0.2)\nos.write(1, b'75\\n')"},
		{Group: "scores", Name: "ten thousand", Want: Want{Score: "9999", Stdout: `/(?s)Final.*/`}, Python: "for i in range(10_000): print('" + label + "%d' % i)"},
	}
}
