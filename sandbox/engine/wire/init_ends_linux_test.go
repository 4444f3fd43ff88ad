package wire

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/sandbox/ends"
)

// TestPrograms runs the table of programs and their ends in the bare init.
func TestPrograms(t *testing.T) {
	t.Parallel()
	for _, p := range ends.Programs() {
		if p.OOM || p.PIDs > 0 {
			continue // these are limits of a container
		}
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			requireEnd(t, p)
		})
	}
}

// TestAttacks runs the attacks one by one: some use up a quota of the user.
func TestAttacks(t *testing.T) {
	for _, p := range ends.Attacks() {
		t.Run(p.Name, func(t *testing.T) { requireEnd(t, p) })
	}
}

func TestExitCodes(t *testing.T) {
	for code := range 256 {
		requireEnd(t, ends.Exit(code))
	}
}

func TestSignalDeaths(t *testing.T) {
	harmless := []syscall.Signal{syscall.SIGCHLD, syscall.SIGCONT, syscall.SIGSTOP, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGURG, syscall.SIGWINCH}
	for signal := 1; signal <= 64; signal++ {
		if !slices.Contains(harmless, syscall.Signal(signal)) {
			requireEnd(t, ends.Killed(signal))
		}
	}
}

// requireEnd runs a program of the table in a new container, and checks its report.
func requireEnd(t *testing.T, p ends.Program) {
	t.Helper()
	job := Job{Args: p.Argv(), Timeout: p.Timeout, Grace: p.Grace, NoFork: p.NoFork, Stdin: p.Stdin,
		DeadlineVar: "SANDBOX_DEADLINE", Env: []string{"SANDBOX_DEADLINE=0"}}
	if p.Soft > 0 {
		job.SoftLead, job.SoftSignal = p.Timeout-p.Soft, unix.SignalNum(p.SoftSignal)
	}
	limits := ""
	if p.NoQuota {
		limits = "prlimit --sigpending=0:0"
	}
	c := tappedContainer(t, limits, (*Receiver).Stdout)
	out, errs := &ends.Repeated{Text: p.Stdout}, &ends.Repeated{Text: p.Stderr}
	if p.Times > 0 {
		c.stdout, c.stderr = out, errs
	}
	var next func() string
	if len(p.Signals) > 0 {
		next = lines(c)
	}
	c.begin(job)
	stop, code := StopNone, p.Code
	if p.Signal > 0 {
		code = 128 + p.Signal
	}
	for i, signal := range p.Signals {
		if i == 0 {
			require.Equal(t, "ready", next())
		}
		send := syscall.SIGTERM
		stop, code = StopTerm, 143
		if signal == ends.Kill {
			send, stop, code = syscall.SIGUSR1, StopKill, 137
		}
		require.NoError(t, c.cmd.Process.Signal(send))
	}
	if job.Stdin {
		in := InputWriter(c.stdin)
		n, err := in.Write([]byte(p.Input))
		require.NoError(t, err)
		require.Equal(t, len(p.Input), n)
		require.NoError(t, in.Close())
	}
	report := c.end()

	about := fmt.Sprintf("%s: %+v\nstdout %.300q\nstderr %.2000s", p.Name, report, c.outText.String(), c.errText.String())
	require.Zero(t, report.ProcessesLeft, about)
	if os.Getuid() == 0 { // others cannot look into a namespace
		require.Equal(t, []int{c.cmd.Process.Pid}, processesOf(t, c), about)
	}
	if p.Forged && report.Stop != StopNone {
		stop, code = report.Stop, map[Stop]int{StopTerm: 143, StopKill: 137}[report.Stop]
	} else if p.Forged {
		p.Signal, code = 0, ends.Success
		p.Code = code
	}
	if p.Deadline {
		stop = StopDeadline
	}
	kind, value := Exited, p.Code
	switch {
	case p.Errno != 0:
		kind, value = NotStarted, int(p.Errno)
		require.Equal(t, "exec", report.Stage.String(), about)
	case p.Signal > 0:
		kind, value = Signaled, p.Signal
	}
	require.Equal(t, []any{kind, value, stop}, []any{report.Kind, report.Value, report.Stop}, about)
	require.True(t, p.Forged || report.Escalated == p.Escalated(), about)
	require.Equal(t, p.Asked, report.SoftAfter > 0, about)
	require.False(t, report.Abandoned, about)
	if p.Asked {
		require.GreaterOrEqual(t, report.SoftAfter, p.Soft, about)
		require.GreaterOrEqual(t, report.Wall, report.SoftAfter, about)
	}
	if least := p.Duration(); least > 0 {
		require.GreaterOrEqual(t, report.Wall, least, about)
		require.Less(t, report.Wall, least+5*time.Second, about)
	}
	if p.Times > 0 {
		require.Equal(t, []int{p.Times, p.Times}, []int{out.Times(), errs.Times()}, about)
	} else {
		require.True(t, ends.Fits(p.Stdout, c.outText.String()), about)
		require.True(t, ends.Fits(p.Stderr, c.errText.String()), about)
	}
	_, err := c.stdin.Write(newFrame(typeBye, nil))
	if len(p.Signals) > 1 && errors.Is(err, syscall.EPIPE) {
		err = nil // the program was quick: a signal that comes after its end releases init
	}
	require.NoError(t, err, about)
	require.Equal(t, code, c.wait(), about)
}

// TestNoMoreProcesses checks that init reports although the program has used up the process
// limit of its user.
func TestNoMoreProcesses(t *testing.T) {
	job := python(ends.Prelude + `
try:
    while True:
        if os.fork() == 0:
            while True: time.sleep(1000)
except OSError as e: print(errno.errorcode[e.errno], flush=True)
os._exit(42)`)
	job.Rlimits = []Rlimit{{Resource: 6, Soft: 40, Hard: 40}} // RLIMIT_NPROC
	c, report := run(t, job)
	requireExit(t, c, report, 42)
	require.Equal(t, "EAGAIN\n", c.outText.String())
}
