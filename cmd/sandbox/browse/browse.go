// Package browse is the command `browse`: a web page of the runs and trials of this machine.
package browse

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/cmd/sandbox/runs"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/browse"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/sandbox/gpu"
)

const (
	// farewell is how long browsers may take for their last answers.
	farewell = 2 * time.Second
	// startTime bounds the start of a run that is done again.
	startTime = 5 * time.Minute
)

// New returns the command `browse`.
func New(a *cli.App) *cobra.Command {
	address, control := "127.0.0.1:0", false
	cmd := &cobra.Command{
		Use:   "browse [flags]",
		Short: "Show runs and trials in a web browser, live",
		Long: `Show the runs and trials of the state directory in a web browser, live: the list
with the filters of 'sandbox ls', a page for each run with its log, metrics and
files, the difference of two runs, leaderboards, GPUs and the queue.

The command prints a URL. It is for this machine and this user only: the URL has
a random token, and anyone who has the token can read every output. The page reads
the records and the log of trials, and changes nothing without --control.

Ctrl-C and SIGTERM end it.`,
		Example: `  sandbox browse
  sandbox browse --listen 127.0.0.1:8765
  sandbox browse --control`,
		Args:    cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error { return cli.Check(cmd, cli.NotEmpty("", "listen")) },
		RunE: a.With(func(ctx context.Context, s settings.Settings, _ []string) error {
			return serve(ctx, a, s, address, control)
		}),
	}
	cmd.Flags().StringVar(&address, "listen", address, "loopback `address`; port 0 is any")
	cmd.Flags().BoolVar(&control, "control", false, "let the page stop runs, and start them again")
	return cmd
}

// serve answers until ctx ends, which is not an error.
func serve(ctx context.Context, a *cli.App, s settings.Settings, address string, control bool) error {
	store, err := s.Store()
	if err != nil {
		return err
	}
	if err := store.Prepare(); err != nil {
		return err
	}
	log, err := trial.OpenLog(cli.TrialsDir(store.Dir()))
	if err != nil {
		return err
	}
	listener, err := cli.ListenLocal(ctx, "listen", address)
	if err != nil {
		return err
	}
	token := make([]byte, 32)
	_, _ = rand.Read(token) // never fails
	gpus := s.GPUDir
	if gpus == "" {
		gpus = filepath.Join(store.Dir(), "gpus")
	}
	o := browse.Options{
		Store: store, Trials: log, Host: listener.Addr().String(), Token: hex.EncodeToString(token), Since: runs.ReadSince,
		GPUs: func(ctx context.Context) (gpu.Listing, error) {
			return gpu.Open(gpus, gpu.LocalPool).List(ctx, gpu.Inventory{})
		},
	}
	if control {
		o.Control = &browse.Control{Rerun: func(ctx context.Context, args []string) (string, error) { return start(ctx, a, args) }}
	}
	web := &http.Server{
		Handler: browse.New(ctx, o), BaseContext: func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: startTime + time.Minute, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10,
	}
	if err := a.Print("http://%s/?token=%s\n", o.Host, o.Token); err != nil {
		return errors.Join(err, listener.Close())
	}
	a.Say("open this URL in a browser of this machine; Ctrl-C ends the page")
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serving at %s: %w", o.Host, err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if err := web.Shutdown(last); errors.Is(err, context.DeadlineExceeded) {
		return web.Close()
	}
	return nil
}

// start starts a run in the background with the settings of this command line, and returns its ID.
func start(ctx context.Context, a *cli.App, args []string) (string, error) {
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	var out, messages bytes.Buffer
	run := exec.CommandContext(ctx, program, append(a.GivenArgs("engine", "context", "host", "state_dir", "catalog", "lock"), args...)...)
	run.Args[0], run.Env, run.Stdout, run.Stderr = os.Args[0], a.Environ, &out, &messages
	// A signal that ends this page does not end the run.
	run.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := run.Run(); err != nil {
		return "", fmt.Errorf("%w: %s", err, text.Fit(strings.TrimSpace(messages.String()), 1000))
	}
	return strings.TrimSpace(out.String()), nil
}
