//go:build unix

package invoke

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/evalbox/evalbox/policy"
)

func hostSupported() error { return nil }

// defaultGrace is that of the sandbox.
const defaultGrace = 5 * time.Second

// run starts the tool in a process group of its own, with an empty stdin, and returns
// when it and its group have ended and their output was read.
func (h Host) run(ctx context.Context, c call, p Plan) (ran, error) {
	out := ran{ended: ReasonNonzeroExit, result: RunResult{OutputComplete: true}}
	env := hostEnv(c.env)
	program, err := findProgram(p.Command[0], p.WorkDir, env)
	if err != nil {
		out.ended, out.detail = ReasonCannotExecute, err.Error()
		return out, nil
	}
	defaults := policy.Default()
	stdout, err := newCapture(cmp.Or(h.CaptureStdout, defaults.CaptureStdout), h.Stdout)
	if err != nil {
		return ran{}, err
	}
	defer stdout.close()
	stderr, err := newCapture(cmp.Or(h.CaptureStderr, defaults.CaptureStderr), h.Stderr)
	if err != nil {
		return ran{}, err
	}
	defer stderr.close()
	cmd := &exec.Cmd{
		Path: program, Args: p.Command, Dir: p.WorkDir, Env: env, Stdout: stdout.write, Stderr: stderr.write,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if context.Cause(ctx) != nil {
		out.ended, out.detail, out.err = ReasonCanceled, "it was canceled before the start", context.Cause(ctx)
		return out, nil
	}
	limit, began := h.Clock.After(c.timeout), h.Clock.Now()
	if err := cmd.Start(); err != nil {
		out.ended, out.detail, out.err = ReasonCannotExecute, err.Error(), err
		if errors.Is(err, os.ErrPermission) {
			out.err = ErrNotExecutable
		}
		return out, nil
	}
	stdout.start()
	stderr.start()
	h.wait(ctx, cmd, limit, began, &out)
	deadline := h.Clock.After(drain)
	for _, stream := range []*capture{stdout, stderr} {
		select {
		case <-stream.done:
		case <-deadline:
			out.result.OutputComplete = false
			deadline = closed // the second stream gets no time of its own
		}
	}
	r := &out.result
	r.Stdout, r.StdoutBytes, r.StdoutTruncated = stdout.text()
	r.Stderr, r.StderrBytes, r.StderrTruncated = stderr.text()
	if !r.OutputComplete {
		r.Warnings = append(r.Warnings, "a process that left the tool's group holds its output open and may still run")
	}
	return out, nil
}

// closed is a time that is over.
var closed = func() <-chan time.Time { c := make(chan time.Time); close(c); return c }()

// wait waits for the end of the tool or brings it about, and ends what is left of its
// group.
func (h Host) wait(ctx context.Context, cmd *exec.Cmd, limit <-chan time.Time, began time.Time, out *ran) {
	ended, at := make(chan struct{}), began
	go func() {
		_ = cmd.Wait() // the state says it
		at = h.Clock.Now()
		close(ended)
	}()
	select {
	case <-ended:
	case <-limit:
		out.ended, out.result.TimedOut = ReasonTimeout, true
	case <-ctx.Done():
		out.ended, out.detail, out.err = ReasonCanceled, "it was canceled", context.Cause(ctx)
	}
	if !h.endGroup(cmd.Process.Pid) {
		out.result.Warnings = append(out.result.Warnings, "a process of the tool did not end on SIGKILL")
	}
	select {
	case <-ended:
	case <-h.Clock.After(drain):
		out.ended, out.detail, out.result.TimedOut = ReasonEngine, "its end was not seen", false
		return
	}
	out.result.DurationSeconds = at.Sub(began).Seconds()
	code := cmd.ProcessState.ExitCode()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		out.result.Signal = int(status.Signal())
		code = 128 + out.result.Signal
	}
	if out.ended == ReasonNonzeroExit {
		out.result.ExitCode = &code
	}
}

// groupPoll is how often a group is looked at while it ends.
const groupPoll = 50 * time.Millisecond

// endGroup ends what is left of a process group: SIGTERM, the grace period, SIGKILL,
// also when its leader is gone (E2 of the requirements). It reports whether the group
// is empty. The number of a group is not given to another process as long as it has a
// member.
func (h Host) endGroup(group int) bool {
	if !signalGroup(group, syscall.SIGTERM) {
		return true
	}
	grace, kill := h.Clock.After(cmp.Or(h.Grace, defaultGrace)), h.Kill
	for waiting := true; waiting; {
		select {
		case <-grace:
			waiting = false
		case <-kill:
			waiting = false
		case <-h.Clock.After(groupPoll):
			if !groupLives(group) {
				return true
			}
		}
	}
	patience := h.Clock.After(drain)
	for {
		if !signalGroup(group, syscall.SIGKILL) || !groupLives(group) {
			return true
		}
		select {
		case <-patience:
			return false
		case <-h.Clock.After(groupPoll):
		}
	}
}

// signalGroup reports whether the group has members.
func signalGroup(group int, signal syscall.Signal) bool {
	err := syscall.Kill(-group, signal)
	return err == nil || errors.Is(err, os.ErrPermission) // EPERM: members of another user
}
