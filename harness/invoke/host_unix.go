//go:build unix

package invoke

import (
	"cmp"
	"context"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/evalbox/evalbox/policy"
)

func hostSupported() error { return nil }

// run starts the tool in a process group of its own, with an empty stdin, and returns
// when it and its group have ended and their output was read.
func (h Host) run(ctx context.Context, c call, p Plan) (ran, error) {
	out := ran{ended: ReasonNonzeroExit, result: RunResult{OutputComplete: true}}
	env := hostEnv(c.env)
	program, err := findProgram(p.Command[0], p.WorkDir, env)
	if err != nil {
		out.ended, out.detail, out.err = ReasonCannotExecute, err.Error(), err
		return out, nil
	}
	defaults := policy.Default()
	stdout, err := newCapture(cmp.Or(h.CaptureStdout, defaults.CaptureStdout), h.Stdout, h.Clock.After)
	if err != nil {
		return ran{}, err
	}
	defer stdout.close()
	stderr, err := newCapture(cmp.Or(h.CaptureStderr, defaults.CaptureStderr), h.Stderr, h.Clock.After)
	if err != nil {
		return ran{}, err
	}
	defer stderr.close()
	if context.Cause(ctx) != nil {
		out.ended, out.detail, out.err = ReasonCanceled, "it was canceled before the start", context.Cause(ctx)
		return out, nil
	}
	limit := h.Clock.After(c.timeout)
	tool, err := h.start(&exec.Cmd{
		Path: program, Args: p.Command, Dir: p.WorkDir, Env: env, Stdout: stdout.write, Stderr: stderr.write, SysProcAttr: toolAttributes(),
	})
	if err != nil {
		out.ended, out.err = startFailure(err)
		out.detail = err.Error()
		return out, nil
	}
	stdout.start()
	stderr.start()
	h.wait(ctx, tool, limit, &out)
	deadline := h.Clock.After(drain)
	r := &out.result
	for _, stream := range []*capture{stdout, stderr} {
		if !stream.ended(deadline) {
			r.OutputComplete = false
			deadline = closed // the second stream gets no time of its own
		}
	}
	shownOut, shownErr := stdout.shown(), stderr.shown()
	r.Stdout, r.StdoutBytes, r.StdoutTruncated = stdout.text()
	r.Stderr, r.StderrBytes, r.StderrTruncated = stderr.text()
	if !r.OutputComplete {
		r.Warnings = append(r.Warnings, "a process that left the tool's group holds its output open and may still run")
	}
	if !shownOut || !shownErr {
		r.Warnings = append(r.Warnings, "the reader of the live output is stuck: the rest was not shown")
	}
	return out, nil
}

// closed is a time that is over.
var closed = func() <-chan time.Time { c := make(chan time.Time); close(c); return c }()

// started is a tool that was started.
type started struct {
	cmd   *exec.Cmd
	began time.Time
	// ended is closed when the tool has ended, at that time.
	ended chan struct{}
	at    time.Time
}

// start starts the tool, and waits for it in the background.
func (h Host) start(cmd *exec.Cmd) (*started, error) {
	tool, failed := &started{cmd: cmd, began: h.Clock.Now(), ended: make(chan struct{})}, make(chan error)
	go func() {
		// The kernel takes the end of the thread that started a child for that of the parent.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		failed <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // the state says it
		tool.at = h.Clock.Now()
		close(tool.ended)
	}()
	return tool, <-failed
}

// wait waits for the end of the tool or brings it about, and ends what is left of its
// group.
func (h Host) wait(ctx context.Context, tool *started, limit <-chan time.Time, out *ran) {
	select {
	case <-tool.ended:
	case <-limit:
		out.ended, out.result.TimedOut = ReasonTimeout, true
	case <-ctx.Done():
		out.ended, out.detail, out.err = ReasonCanceled, "it was canceled", context.Cause(ctx)
	}
	if !h.endGroup(tool.cmd.Process.Pid) {
		out.result.Warnings = append(out.result.Warnings, "a process of the tool did not end on SIGKILL")
	}
	select {
	case <-tool.ended:
	case <-h.Clock.After(drain):
		out.ended, out.detail, out.result.TimedOut = ReasonEngine, "its end was not seen", false
		return
	}
	out.result.DurationSeconds = tool.at.Sub(tool.began).Seconds()
	state := tool.cmd.ProcessState
	code := state.ExitCode()
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		out.result.Signal = int(status.Signal())
		code = 128 + out.result.Signal
	}
	if out.ended == ReasonNonzeroExit {
		out.result.ExitCode = &code
	}
}
