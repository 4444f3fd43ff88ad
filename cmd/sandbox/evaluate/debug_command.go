package evaluate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/harness/evaluate/mlestar"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/result"
)

const (
	// debugTimeout bounds one repair: a model may think for minutes.
	debugTimeout = 15 * time.Minute
	// maxRepair bounds a repaired script.
	maxRepair = 4 << 20
)

// debugInput is the text that a debugger gets on stdin.
type debugInput struct {
	Script string `json:"script"`
	// Error is never empty; Traceback is null without one.
	Error     string  `json:"error"`
	Traceback *string `json:"traceback"`
}

// debugCommand is a debugger that is a command of the caller's shell. It runs on this
// machine as the caller, gets the script and its error as JSON on stdin, and prints the
// repaired script. A command that fails, prints nothing or too much, or takes too long
// uses up an attempt.
func debugCommand(command string) evaluate.DebugFunc {
	return func(ctx context.Context, solution mlestar.SolutionScript, failure evaluate.Failure) (mlestar.SolutionScript, error) {
		input, err := json.Marshal(debugInput{Script: solution.Content, Error: failure.Text(), Traceback: failure.Traceback})
		if err != nil {
			return solution, err
		}
		text, err := runDebugger(ctx, command, input, debugTimeout)
		if err != nil {
			return solution, err
		}
		repaired := mlestar.NewSolution(text, mlestar.PhaseRefined)
		repaired.SourceModel = solution.SourceModel
		return repaired, nil
	}
}

func runDebugger(ctx context.Context, command string, input []byte, limit time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Stdin = bytes.NewReader(input)
	stdout, stderr := &boundedBuffer{limit: maxRepair, full: cancel}, result.NewHeadTail(4<<10)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	// Processes that the command started may hold the pipes open.
	cmd.WaitDelay = time.Second
	ownGroup(cmd)
	err := cmd.Run()
	endGroup(cmd) // also the processes that a good end left behind
	switch {
	case stdout.more:
		return "", fmt.Errorf("it printed more than %s", text.Size(maxRepair))
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "", fmt.Errorf("it took more than %v", limit)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		if why := result.ErrorSummary(stderr.Text()); why != "" {
			err = fmt.Errorf("%w: %s", err, why)
		}
		return "", err
	}
	return stdout.kept.String(), nil
}

// boundedBuffer keeps the first bytes. When there are more it says so, and calls full.
// The buffer is not embedded: its ReadFrom would go past the limit.
type boundedBuffer struct {
	kept  bytes.Buffer
	limit int
	more  bool
	full  func()
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	room := min(len(p), b.limit-b.kept.Len())
	b.kept.Write(p[:room]) // never fails
	if room < len(p) && !b.more {
		b.more = true
		b.full()
	}
	return len(p), nil
}

// ownGroup gives a command a process group of its own, which ends with it.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// endGroup ends the remaining processes of the group of a command that has ended. The
// kernel does not use the number of a group again while a process is in it.
func endGroup(cmd *exec.Cmd) {
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the group may be empty
	}
}
