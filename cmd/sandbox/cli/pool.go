package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/record"
)

const (
	// poolLog is the file of the state directory with the messages of a pool in the background.
	poolLog = "pool.log"
	// poolPatience is how long a pool may take to be ready. It asks the engine for its description.
	poolPatience = time.Minute
)

// poolKeys are the settings that a pool in the background has from this command line.
var poolKeys = []string{"engine", "context", "host", "state_dir", "catalog", "lock", "pool.size", "pool.idle", "pool.memory"}

// StartPool starts a process that keeps a pool, with a session of its own. With wait set it returns
// when that process is ready, or why it is not.
func (a *App) StartPool(ctx context.Context, store *record.Store, wait bool) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("starting the pool: %w", err)
	}
	if err := store.Prepare(); err != nil {
		return err
	}
	logFile := filepath.Join(store.Dir(), poolLog)
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND|fsx.OpenFlags, 0o600)
	if err != nil {
		return record.StateError(logFile, "cannot be written", err)
	}
	defer log.Close()
	behind := exec.Command(program, a.poolArgs()...) //nolint:noctx // this program, which outlives this process
	behind.Args[0] = os.Args[0]
	behind.Stderr = log
	behind.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if !wait {
		if err := behind.Start(); err != nil {
			return fmt.Errorf("starting the pool: %w", err)
		}
		return behind.Process.Release()
	}
	ready, readyIn, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("starting the pool: %w", err)
	}
	defer ready.Close()
	behind.Stdout = readyIn
	if err := errors.Join(behind.Start(), readyIn.Close()); err != nil {
		return fmt.Errorf("starting the pool: %w", err)
	}
	if awaitLine(ctx, ready) == nil {
		return behind.Process.Release()
	}
	_ = errors.Join(behind.Process.Kill(), behind.Wait()) // it may have ended
	text, err := fsx.Read(logFile, 64<<10)
	if said := strings.TrimSpace(strings.TrimPrefix(string(text), "sandbox: ")); said != "" && err == nil && ctx.Err() == nil {
		return fmt.Errorf("starting the pool: %s", said)
	}
	return errors.Join(fmt.Errorf("the pool was not ready within %v", poolPatience), context.Cause(ctx))
}

// poolArgs are the arguments of a process that keeps a pool.
func (a *App) poolArgs() []string {
	return append([]string{"pool", "start", "--foreground"}, a.GivenArgs(poolKeys...)...)
}

// GivenArgs are the arguments by which another process of this program gets the settings with these
// keys that were given as flags, the file of the settings, and --verbose.
func (a *App) GivenArgs(keys ...string) (args []string) {
	for _, key := range keys {
		if flag, ok := a.Given[key]; ok {
			args = append(args, flag.Name+"="+flag.Text)
		}
	}
	if a.ConfigFile != "" {
		args = append(args, "--config="+a.ConfigFile)
	}
	if a.Verbose {
		args = append(args, "--verbose")
	}
	return args
}

// awaitLine waits for the first line of a process.
func awaitLine(ctx context.Context, from *os.File) error {
	line := make(chan error, 1)
	go func() {
		_, err := bufio.NewReader(from).ReadString('\n')
		line <- err
	}()
	select {
	case err := <-line:
		return err
	case <-time.After(poolPatience):
		return errStuck
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
