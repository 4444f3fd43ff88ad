package result

import "fmt"

// Signal numbers that the exit table gives rows of their own, and the highest
// signal of Linux.
const (
	sigKill   = 9
	sigTerm   = 15
	maxSignal = 64
)

// ExitContext is the evidence about the end of a run beside its exit code. The
// zero value means that there is no evidence.
type ExitContext struct {
	// Known says that a field with its zero value is a fact: without TimedOut, the time
	// limit had no part in the end, and 143 is a signal like others. Without Known, a
	// zero field may be unknown.
	Known bool
	// TimedOut says that the time limit ended the run. It decides before any
	// exit code.
	TimedOut bool
	// Canceled says that the caller ended the run.
	Canceled bool
	// OOM says that the kernel reported a kill for memory in the run.
	OOM bool
	// Signal is the signal that ended a run after its time limit or a cancellation; 0 for
	// a program that then ended by itself. It counts only if Known.
	Signal int
}

// ExitMeaning is a row of the exit table (CX-06) for one exit code.
type ExitMeaning struct {
	// Meaning is one of success, tool_error, permission_denied,
	// command_not_found, signal, out_of_memory, timeout_sigterm, timeout and canceled.
	Meaning string `json:"meaning"`
	// Action is one of continue, log_and_handle, escalate, check_allowlist,
	// log_signal_number, more_memory_or_fail, extend_timeout_or_fail and none.
	Action string `json:"action"`
	// Signal is the number of the signal that the code stands for, 0 if none.
	Signal int `json:"signal"`
	// SignalName is its name; empty without a signal or without a name.
	SignalName string `json:"signal_name"`
	// Text is a sentence for people. It claims only facts that the code proves: a
	// program can exit with 139 without any signal.
	Text string `json:"text"`
}

// ExplainExit returns the row of the exit table (CX-06) for an exit code, which
// is 128+n for signal n as a shell has it, or -n as Python has it.
//
// A number alone proves little, so ctx has the evidence: 137 is a kill for memory
// only with ctx.OOM, and a run that hit its time limit is a time-out with any
// code. The exception is the row for 143, SIGTERM, which means a time-out unless
// ctx.Known.
func ExplainExit(code int, ctx ExitContext) ExitMeaning {
	m := ExitMeaning{Signal: exitSignal(code)}
	stopped := ctx.TimedOut || ctx.Canceled
	if ctx.Known && stopped {
		m.Signal = 0 // the code stands for the stop, not for a signal
		if ctx.Signal > 0 && ctx.Signal <= maxSignal {
			m.Signal = ctx.Signal
		}
	}
	m.SignalName = SignalName(m.Signal)
	killed := m.Signal == sigKill || m.Signal == sigTerm
	switch {
	case ctx.TimedOut && ctx.Known && m.Signal == 0 && code == 128+sigTerm:
		// 143 stands for the time limit; the program ended by itself after SIGTERM.
		m.Meaning, m.Action = "timeout_sigterm", "extend_timeout_or_fail"
		m.Text = "The time limit ended the run; the program ended by itself when it was asked to."
	case ctx.TimedOut && killed:
		m.Meaning, m.Action = "timeout_sigterm", "extend_timeout_or_fail"
		m.Text = fmt.Sprintf("The time limit ended the program with %s.", m.signalText())
	case ctx.TimedOut:
		m.Meaning, m.Action = "timeout", "extend_timeout_or_fail"
		m.Text = "The time limit ended the run."
		if code == -1 {
			m.Signal, m.SignalName = 0, "" // it stands for "no exit code" here
		} else {
			m.Text = fmt.Sprintf("The time limit ended the run; the exit code is %d.", code)
		}
	case ctx.Canceled:
		m.explainCanceled(code, ctx.Known)
	case ctx.OOM && m.Signal == sigKill:
		m.Meaning, m.Action = "out_of_memory", "more_memory_or_fail"
		m.Text = "The kernel killed the program at its memory limit."
	default:
		m.explainCode(code)
		if ctx.Known && code == 128+sigTerm {
			m.Meaning, m.Action = "signal", "log_signal_number"
		}
		if ctx.OOM {
			m.Text += " The kernel killed a process of the run for memory."
		}
	}
	return m
}

// explainCanceled fills in the row for a run that the caller ended.
func (m *ExitMeaning) explainCanceled(code int, known bool) {
	m.Meaning, m.Action = "canceled", "none"
	if code == -1 && !known {
		m.Signal, m.SignalName = 0, "" // it stands for "no exit code" here
	}
	switch {
	case m.Signal != 0:
		m.Text = fmt.Sprintf("The caller ended the program with %s.", m.signalText())
	case code == -1 || code == 128+sigTerm:
		m.Text = "The caller ended the run."
	default:
		m.Text = fmt.Sprintf("The caller ended the run; the exit code is %d.", code)
	}
}

// explainCode fills in the row for a code without other evidence.
func (m *ExitMeaning) explainCode(code int) {
	switch {
	case code == 0:
		m.Meaning, m.Action = "success", "continue"
		m.Text = "The program exited with 0."
	case code == 126:
		m.Meaning, m.Action = "permission_denied", "escalate"
		m.Text = "The command could not be executed, or the program exited with 126 itself."
	case code == 127:
		m.Meaning, m.Action = "command_not_found", "check_allowlist"
		m.Text = "The command was not found, or the program exited with 127 itself."
	case code == 128+sigTerm:
		m.Meaning, m.Action = "timeout_sigterm", "extend_timeout_or_fail"
		m.Text = m.signalOrExit(code)
	case code < 0 && m.Signal > 0:
		m.Meaning, m.Action = "signal", "log_signal_number"
		m.Text = fmt.Sprintf("The program was ended by %s.", m.signalText())
		if code == -1 {
			m.Text = fmt.Sprintf("The program has no exit code, or was ended by %s.", m.signalText())
		}
	case code >= 128 && code <= 255:
		m.Meaning, m.Action = "signal", "log_signal_number"
		m.Text = m.signalOrExit(code)
	default:
		m.Meaning, m.Action = "tool_error", "log_and_handle"
		m.Text = fmt.Sprintf("The program exited with %d.", code)
	}
}

// exitSignal returns the signal that a code stands for, 0 if none.
func exitSignal(code int) int {
	n := 0
	switch {
	case code < 0:
		n = -code
	case code > 128:
		n = code - 128
	}
	if n < 0 || n > maxSignal { // the lowest int has no negation
		return 0
	}
	return n
}

// signalText names the signal with its number.
func (m *ExitMeaning) signalText() string {
	if m.SignalName == "" {
		return fmt.Sprintf("signal %d", m.Signal)
	}
	return fmt.Sprintf("signal %d (%s)", m.Signal, m.SignalName)
}

// signalOrExit is the sentence for a code of 128 and above, which does not say
// which of the two happened.
func (m *ExitMeaning) signalOrExit(code int) string {
	if m.Signal == 0 {
		return fmt.Sprintf("The program exited with %d itself: the code is in the range for signals, but stands for none.", code)
	}
	return fmt.Sprintf("The program was ended by %s, or exited with %d itself.", m.signalText(), code)
}

// signalNames holds the signals of Linux on x86 and ARM by number. Containers
// run Linux also where this package does not, so the names are not those of
// package syscall.
var signalNames = [...]string{
	1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP",
	6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 10: "SIGUSR1",
	11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM",
	16: "SIGSTKFLT", 17: "SIGCHLD", 18: "SIGCONT", 19: "SIGSTOP", 20: "SIGTSTP",
	21: "SIGTTIN", 22: "SIGTTOU", 23: "SIGURG", 24: "SIGXCPU", 25: "SIGXFSZ",
	26: "SIGVTALRM", 27: "SIGPROF", 28: "SIGWINCH", 29: "SIGIO", 30: "SIGPWR",
	31: "SIGSYS",
}

// SignalName returns the name of a Linux signal, such as "SIGSEGV" for 11. It
// is empty for 0, for real-time signals and for numbers that are not a signal.
func SignalName(n int) string {
	if n < 0 || n >= len(signalNames) {
		return ""
	}
	return signalNames[n]
}
