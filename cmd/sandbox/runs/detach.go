package runs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/sandbox"
)

// detachedVar is set for the process behind `run --detach`: it writes the ID of its run to
// descriptor startedFD once the container has the program.
const (
	detachedVar = "EVALBOX_DETACHED"
	startedFD   = 3
)

// detach runs this command line in a process of its own session, and prints the ID of the run once
// its container has accepted the program. A run that does not get so far ends here as it would without
// --detach: with the messages and the exit code of that process.
func detach(ctx context.Context, a *cli.App, s settings.Settings) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("starting the run: %w", err)
	}
	started, startedIn, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("starting the run: %w", err)
	}
	defer started.Close()
	behind := exec.Command(program, os.Args[1:]...) //nolint:noctx,gosec // this command line, in a process that outlives this one
	behind.Args[0] = os.Args[0]
	behind.Env = append(slices.Clone(a.Environ), detachedVar+"=1")
	behind.ExtraFiles = []*os.File{startedIn}
	behind.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdout, err := behind.StdoutPipe()
	if err != nil {
		return errors.Join(fmt.Errorf("starting the run: %w", err), startedIn.Close())
	}
	stderr, err := behind.StderrPipe()
	if err != nil {
		return errors.Join(fmt.Errorf("starting the run: %w", err), startedIn.Close())
	}
	if err := errors.Join(behind.Start(), startedIn.Close()); err != nil {
		return fmt.Errorf("starting the run: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = behind.Process.Signal(os.Interrupt) })() // it may have ended
	var relayed sync.WaitGroup
	relayed.Go(func() { _, _ = io.Copy(a.Out, stdout) }) // nothing before its end
	relayed.Go(func() { _, _ = io.Copy(a.Err, stderr) }) // its messages are complete lines
	line, err := bufio.NewReader(started).ReadString('\n')
	if err != nil { // it ended before
		relayed.Wait()
		if ended := new(exec.ExitError); errors.As(behind.Wait(), &ended) && ended.ExitCode() > 0 {
			a.Code = ended.ExitCode()
			return nil
		}
		return errors.New("starting the run: its process ended without a message")
	}
	id := strings.TrimSpace(line)
	_ = behind.Process.Release() // it goes on
	if !s.JSON {
		return a.Print("%s\n", id)
	}
	_, each, err := find(s, id)
	if err != nil {
		return err
	}
	return a.PrintJSON(runsDocument{runsSchema, []listedRun{listed(each, contract.OfRecord(each))}})
}

// isDetached reports whether this is the process behind `run --detach`.
func isDetached(a *cli.App) bool { return a.Getenv(detachedVar) != "" }

// announce lets a detached run write its ID, for the process that started this one and then ends.
// From there on nobody reads what this process prints.
func announce(a *cli.App, hooks *sandbox.Hooks) {
	var id string
	hooks.Begin = func(run string) error {
		id = run
		return nil
	}
	hooks.Running = func() {
		started := os.NewFile(startedFD, "started")
		a.Out, a.Err = io.Discard, io.Discard
		_, _ = fmt.Fprintln(started, id) // that process may have been killed
		_ = started.Close()
	}
}
