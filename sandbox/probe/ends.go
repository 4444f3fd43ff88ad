package probe

import (
	"fmt"
	"slices"
	"time"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
)

// endRuns end in every way.
func endRuns() []Run {
	all := []Run{
		{Group: "ends", Name: "SIGTERM to itself, with a handler", Want: Want{Code: 7}, Python: "import os, signal\nsignal.signal(signal.SIGTERM, lambda *_: os._exit(7))\nos.kill(os.getpid(), signal.SIGTERM)\nsignal.pause()"},
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
		{Group: "ends", Name: "kill of its own group", Want: Want{Status: result.StatusSignaled, Signal: 9}, Python: "import os, signal\nos.killpg(0, signal.SIGKILL)"},
		{Group: "ends", Name: "another program in its place", Want: Want{Stdout: "replaced\n", Code: 6}, Python: "import os\nos.execvp('sh', ['sh', '-c', 'echo replaced; exit 6'])"},
		{Group: "ends", Name: "the child goes on", Want: Want{Stdout: "parent\n", Code: 3, Seconds: 15}, Python: "import os, time\nif os.fork() == 0:\n    time.sleep(600)\nprint('parent', flush=True)\nos._exit(3)"},
		{Group: "ends", Name: "the main thread ends", Want: Want{Stdout: "later\n"}, Python: "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.3), print('later'))).start()"},
		{Group: "ends", Name: "exit with a text", Want: Want{Code: 1, Stderr: "no data\n", Summary: "no data"}, Python: "import sys\nsys.exit('no data')"},
		{Group: "ends", Name: "exit with a negative number", Want: Want{Code: 255}, Python: "raise SystemExit(-1)"},
		{Group: "ends", Name: "exit in a child", Want: Want{Stdout: "child 256\n"}, Python: "import os\nif os.fork() == 0: os._exit(1)\nprint('child', os.wait()[1])"},
		{Group: "ends", Name: "everything is caught", Limits: policy.Limits{Timeout: 4 * time.Second, Grace: 200 * time.Millisecond}, Want: Want{Status: result.StatusTimedOut, Signal: 9, Explanation: killed, Seconds: 10},
			Command: []string{"sh", "-c", "trap : HUP INT QUIT ABRT ALRM TERM USR1 USR2; while :; do sleep 0.1; done"}},
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
		{Group: "ends", Name: "asked to finish, without a handler", Limits: policy.Limits{Timeout: time.Minute, SoftTimeout: time.Second},
			Want: Want{Status: result.StatusTimedOut, Deadline: result.DeadlineSoft, Signal: 15, Seconds: 10,
				Explanation: `/The program was asked to finish by SIGTERM after 1(\.\d)?s, and ended by that signal: it does not handle it\./`}, Command: []string{"sleep", "600"}},
		{Group: "ends", Name: "asked to finish, and goes on", Limits: policy.Limits{Timeout: 7 * time.Second, SoftTimeout: 6 * time.Second, Grace: 200 * time.Millisecond},
			Want: Want{Status: result.StatusTimedOut, Signal: 9, Explanation: "/" + killed + ` It had been asked to finish by SIGTERM after 6(\.\d)?s\./`, Seconds: 15}, Python: `
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(600)`},
		{Group: "ends", Name: "the time that remains", Limits: policy.Limits{Timeout: time.Minute}, Want: Want{Stdout: "True\n"}, Python: `
import os, time
print(0 < float(os.environ['SANDBOX_DEADLINE']) - time.time() <= 60)`},
		{Group: "ends", Name: "a command that is not there", Deep: true, Command: []string{"/no/such/program"}, Want: Want{Status: result.StatusStartFailed, Fault: result.FaultOperator, Code: 127, Explanation: "The command is not in the image."}},
		{Group: "ends", Name: "a name that is not in the path", Command: []string{"no-such-program"}, Want: Want{Status: result.StatusStartFailed, Fault: result.FaultOperator, Code: 127, Explanation: "The command is not in the image."}},
		{Group: "ends", Name: "a file that is not a program", Command: []string{"/etc/passwd"}, Want: Want{Status: result.StatusStartFailed, Fault: result.FaultOperator, Code: 126, Explanation: "The command is not executable."}},
		{Group: "ends", Name: "a directory", Command: []string{"/usr"}, Want: Want{Status: result.StatusStartFailed, Fault: result.FaultOperator, Code: 126, Explanation: "The command is not executable."}},
		{Group: "ends", Name: "the words of a missing program", Want: Want{Code: 127, Stderr: "sandbox-init: exec: no such file or directory\n", Summary: "sandbox-init: exec: no such file or directory"},
			Python: "import sys\nsys.stderr.write('sandbox-init: exec: no such file or directory\\n')\nraise SystemExit(127)"},
	}
	for _, code := range []int{0, 1, 2, 64, 77, 124, 125, 126, 128, 130, 134, 137, 139, 143, 254, 255} {
		often := code == 124 || code == 137 || code == 143 || code == 255
		all = append(all, Run{Group: "ends", Name: fmt.Sprintf("exit %d", code), Long: !often, Deep: code == 137, Python: fmt.Sprintf("import os\nos._exit(%d)", code),
			Want: Want{Code: code, Explanation: fmt.Sprintf("The program exited with %d.", code)}})
	}
	for _, signal := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14, 15, 24, 31, 34, 64} {
		often := slices.Contains([]int{6, 9, 11, 15}, signal)
		all = append(all, Run{Group: "ends", Name: fmt.Sprintf("signal %d", signal), Long: !often, Deep: signal == 9, Command: []string{"sh", "-c", fmt.Sprintf("kill -%d $$", signal)},
			Want: Want{Status: result.StatusSignaled, Signal: signal, Explanation: fmt.Sprintf("The program was ended by signal %d (%s).", signal, result.SignalName(signal))}})
	}
	return all
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
