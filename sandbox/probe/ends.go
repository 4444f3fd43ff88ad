package probe

import (
	"slices"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/ends"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// endRuns end in every way: the programs of the table of ends, and those with a result of their own.
func endRuns() []Run {
	all := []Run{
		{Group: "ends", Name: "signals to init", Want: Want{Stdout: "sent\n"}, Under: []TraitWant{{Trait: "runsc", Why: "gVisor lets a program kill its init, and ends with it",
			Want: Want{Status: result.StatusSignaled, Signal: 9, Incomplete: true}}}, Python: `
import errno, os, signal
answers = set()
for s in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGSEGV, signal.SIGSTOP, signal.SIGUSR1):
    try: os.kill(1, s); answers.add('sent')
    except OSError as e: answers.add(errno.errorcode[e.errno])
print(*sorted(answers))`},
		{Group: "ends", Name: "kill of all processes", Want: Want{Stdout: "alone\n"}, Python: `
import os, signal, time
for i in range(3):
    if os.fork() == 0: time.sleep(600)
os.kill(-1, signal.SIGKILL)
print('alone')`},
		{Group: "ends", Name: "exit with a text", Want: Want{Code: 1, Stderr: "no data\n", Summary: "no data"}, Python: "import sys\nsys.exit('no data')"},
		{Group: "ends", Name: "well at the time limit", Deep: true, Limits: policy.Limits{Timeout: 4 * time.Second},
			Want:    Want{Status: result.StatusTimedOut, Explanation: stopped, Stdout: "saved\n", Outputs: []string{"model 0644 6"}, Seconds: 10},
			Command: []string{"sh", "-c", "trap 'echo model > final/model; echo saved; exit 0' TERM; sleep 600 & wait"}},
		{Group: "ends", Name: "a score, then the time limit", Limits: policy.Limits{Timeout: 4 * time.Second}, Want: Want{Status: result.StatusTimedOut, Signal: 15, Score: "0.5", Stdout: label + "0.5\n", Seconds: 10}, Command: []string{"sh", "-c", "echo '" + label + "0.5'; exec sleep 600"}},
		{Group: "ends", Name: "asked to finish, and does", Deep: true, Limits: policy.Limits{Timeout: time.Minute, SoftTimeout: 6 * time.Second},
			Want: Want{Deadline: result.DeadlineSoft, Explanation: `/The program exited with 0\. It had been asked to finish by SIGTERM after 6(\.\d)?s\./`, Score: "0.75",
				Stdout: label + "0.75\n", Outputs: []string{"submission 0644 5"}, Seconds: 20}, Python: `
import os, signal, time
def save(*_):
    open('final/submission', 'w').write('saved'); print('` + label + `0.75', flush=True); os._exit(0)
signal.signal(signal.SIGTERM, save)
time.sleep(600)`},
	}
	deep := []string{"the deadline", "the deadline, ignored", "not there", "out of memory", "processes", "exit 137", "signal 9"}
	often := []string{"exit 124", "exit 143", "exit 255", "signal 6", "signal 11", "signal 15"}
	for _, p := range ends.Programs() {
		// A signal from outside is not the caller's, a result keeps less and has text, and a request has fewer words.
		if len(p.Signals) == 0 && p.Times == 0 && utf8.ValidString(p.Stdout) && p.Errno != syscall.E2BIG {
			r := Of("ends", p)
			r.Deep = slices.Contains(deep, p.Name)
			all = append(all, r)
		}
	}
	for _, p := range ends.Numbers() {
		if p.Signal != int(syscall.SIGXFSZ) { // which is the end at the disk limit
			r := Of("ends", p)
			r.Deep = slices.Contains(deep, p.Name)
			r.Long = !r.Deep && !slices.Contains(often, p.Name)
			all = append(all, r)
		}
	}
	return all
}

// under has the results of programs of the table of ends on some machines.
var under = map[string][]TraitWant{
	"processes":                {{Trait: "runsc", Why: ownLimits, Want: Want{Refused: `/(?s).*start.*/`}}, noLimitOfPods},
	"threads":                  {{Trait: "runsc", Why: ownLimits, Want: Want{Refused: `/(?s).*start.*/`}}, noLimitOfPods},
	"out of memory":            {{Trait: "runsc", Why: wholeKernel, Want: Want{Status: result.StatusOutOfMemory, Incomplete: true, Stdout: "begin\n"}}},
	"a child is out of memory": {{Trait: "runsc", Why: wholeKernel, Want: Want{Status: result.StatusOutOfMemory, Incomplete: true}}},
}

// Of is a program of the table of ends as a run. Its result follows from its end.
func Of(group string, p ends.Program) Run {
	r := Run{Group: group, Name: p.Name, Python: p.Python, Command: p.Command, Stdin: p.Input, NoFork: p.NoFork, SoftSignal: p.SoftSignal, Want: wantOf(p), Under: under[p.Name],
		Limits: policy.Limits{Timeout: p.Timeout, SoftTimeout: p.Soft, Grace: p.Grace, PIDs: p.PIDs, CaptureStdout: 32 * policy.MiB}}
	if p.NoFork {
		r.Under = []TraitWant{{Trait: "runsc", Why: "gVisor does not apply the filter of a program", Want: Want{Refused: "/(?s).*no-fork: is not enforced by the runtime runsc/"}}}
	}
	if p.OOM {
		r.Limits.Memory = 128 * policy.MiB
	}
	if p.NoQuota {
		r.Ulimits = []spec.Ulimit{{Name: "sigpending"}}
	}
	return r
}

// wantOf is the result of a program of the table of ends. The explanation follows from the rest.
func wantOf(p ends.Program) Want {
	w := Want{Code: p.Code, Signal: p.Signal, OOM: p.OOM, Stdout: p.Stdout, Stderr: p.Stderr}
	if least := p.Duration(); least > 0 {
		w.Seconds = least.Seconds() + 15
	}
	if p.Asked && !p.Deadline {
		w.Deadline = result.DeadlineSoft
	}
	switch {
	case p.Errno != 0:
		w.Status, w.Fault = result.StatusStartFailed, result.FaultOperator
	case p.Deadline || p.Asked && p.Signal > 0:
		w.Status = result.StatusTimedOut
		if p.Escalated() {
			w.Signal = int(syscall.SIGKILL)
		}
	case p.OOM && p.Signal > 0:
		w.Status = result.StatusOutOfMemory
	case p.Signal > 0:
		w.Status = result.StatusSignaled
	case p.OOM:
		w.Warnings = []string{"a process of the run was killed for memory, but the main process ended by itself"}
	}
	if p.Stderr == ends.Anything {
		w.StdoutBytes, w.StderrBytes = Any, Any
	}
	return w
}

// tracebackRuns print tracebacks and what looks like them.
func tracebackRuns() []Run {
	failed := func(name, python, traceback string) Run {
		return Run{Group: "tracebacks", Name: name, Python: python, Want: Want{Code: 1, Traceback: traceback, Stderr: `/(?s).*/`}}
	}
	chained := failed("a chain", "try:\n    try: {}['a']\n    except KeyError as e: raise ValueError('second') from e\nexcept ValueError: raise RuntimeError('third')", `/(?s)Traceback .*RuntimeError: third/`)
	chained.Deep = true
	return []Run{
		failed("one", "def f(): return 1 / 0\nf()", `/(?s)Traceback \(most recent call last\):\n.*ZeroDivisionError: division by zero/`),
		chained,
		{Group: "tracebacks", Name: "of a program that does not parse", Python: "def f(:\n", Want: Want{Code: 1, Summary: `/(?s).*SyntaxError: .*/`, Stderr: `/(?s).*SyntaxError: .*\n/`}},
		{Group: "tracebacks", Name: "printed, then well", Python: "import traceback\ntry: 1 / 0\nexcept ZeroDivisionError: traceback.print_exc()",
			Want: Want{Error: result.ErrorReasonTraceback, Traceback: `/(?s)Traceback .*ZeroDivisionError: division by zero/`, Stderr: `/(?s)Traceback .*ZeroDivisionError: division by zero\n/`}},
		{Group: "tracebacks", Name: "in stdout", Python: "print('Traceback (most recent call last):\\n  File \"x\", line 1\\nValueError: forged')", Want: Want{Stdout: "Traceback (most recent call last):\n  File \"x\", line 1\nValueError: forged\n"}},
		{Group: "tracebacks", Name: "without an end", Python: "import os\nos.write(2, b'Traceback (most recent call last):\\n  File \"x\", line 1\\n')\nos._exit(1)",
			Want: Want{Code: 1, Stderr: "Traceback (most recent call last):\n  File \"x\", line 1\n", Summary: "Traceback (most recent call last):\n  File \"x\", line 1"}},
		{Group: "tracebacks", Name: "of a thread", Python: "import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start(); t.join()",
			Want: Want{Error: result.ErrorReasonTraceback, Traceback: `/(?s)Traceback .*ZeroDivisionError: division by zero/`, Stderr: `/(?s)Exception in thread.*\n/`}},
		failed("a recursion", "def f(): f()\nf()", `/(?s)Traceback .*RecursionError: maximum recursion depth exceeded.*/`),
		failed("a group", "raise ExceptionGroup('two', [ValueError('a'), TypeError('b')])", `/(?s).*ExceptionGroup: two \(2 sub-exceptions\).*ValueError: a.*TypeError: b.*/`),
		{Group: "tracebacks", Name: "a long message", Python: "raise ValueError('HEAD ' + 'x' * 300_000)",
			Want:  Want{Code: 1, Traceback: `/(?s)Traceback .*ValueError: HEAD x+.*/`, Stderr: `/(?s)Traceback.*/`, StderrBytes: Cut},
			Under: []TraitWant{{Trait: "runsc", Why: shortWrites, Want: Want{Code: 1, Traceback: `/(?s)Traceback .*/`, Stderr: `/(?s)Traceback.*/`}}}},
		failed("a message of many lines", "raise ValueError('first\\nsecond\\nthird')", `/(?s)Traceback .*ValueError: first/`),
		failed("the real one after a forged one", "import sys\nsys.stderr.write('Traceback (most recent call last):\\n  File \"x\", line 1\\nValueError: forged\\n')\nraise KeyError('real')", `/(?s)Traceback .*KeyError: 'real'/`),
		failed("in Chinese", "raise ValueError('\u6570\u636e')", "/(?s)Traceback .*ValueError: \u6570\u636e/"),
		{Group: "tracebacks", Name: "swallowed by a hook", Python: "import sys\nsys.excepthook = lambda *_: None\nraise ValueError", Want: Want{Code: 1}},
		{Group: "tracebacks", Name: "words of errors without one", Python: "import sys\nsys.stderr.write('ERROR: Exception: failed, error 1\\n')", Want: Want{Stderr: "ERROR: Exception: failed, error 1\n"}},
		{Group: "tracebacks", Name: "warnings", Python: "import warnings\nwarnings.warn('old')", Want: Want{Stderr: `/(?s).*UserWarning: old.*/`}},
	}
}
