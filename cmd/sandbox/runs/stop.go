package runs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/sandbox/record"
)

// stopFlags are the flags of `stop`.
type stopFlags struct {
	kill  bool
	grace time.Duration
	// graceGiven says that the caller decides about the grace period, and not the run.
	graceGiven bool
}

// NewStop returns the command `stop`. It goes on after a run that cannot be stopped.
func NewStop(a *cli.App) *cobra.Command {
	var f stopFlags
	cmd := &cobra.Command{
		Use:   "stop [flags] RUN...",
		Short: "Stop runs, and keep their results",
		Long: `Stop runs, wherever they were started: the process that owns a run sends its program
SIGTERM and, after the grace period of the run, SIGKILL. Nothing else that this process runs
is touched. The result has the status canceled and says that 'sandbox stop' ended the run.
The command waits for that result and prints the ID.

The run of a process that died is adopted first, as 'sandbox adopt' does. A run that has
ended already is left as it is.

` + handleHelp,
		Example: "  sandbox stop last\n  sandbox stop --grace 30s train\n  sandbox stop $(sandbox ls -q --status running)",
		Args:    cobra.MinimumNArgs(1),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			f.graceGiven = cmd.Flags().Changed("grace")
			return cli.Check(cmd, cli.Apart("kill", "grace"))
		},
		RunE: a.With(func(ctx context.Context, s settings.Settings, handles []string) error {
			return eachRun(s, handles, func(store *record.Store, id string) error { return stop(ctx, a, s, store, id, f) })
		}),
	}
	cmd.Flags().BoolVar(&f.kill, "kill", false, "at once, without the grace period")
	cmd.Flags().Var(cli.Duration(&f.grace), "grace", "time between SIGTERM and SIGKILL, if it is shorter than that of the run")
	return cli.TakesHandles(cmd)
}

func stop(ctx context.Context, a *cli.App, s settings.Settings, store *record.Store, id string, f stopFlags) error {
	state, err := store.State(id)
	if err != nil {
		return err
	}
	if state != record.Finished {
		if err := store.RequestStop(id, f.kill || f.graceGiven && f.grace == 0); err != nil {
			return err
		}
		if f.graceGiven && f.grace > 0 {
			defer time.AfterFunc(f.grace, func() { _ = store.RequestStop(id, true) }).Stop() // it may have ended
		}
		if state, err = ended(ctx, store, id); err != nil {
			return err
		}
	}
	if state == record.Lost || state == record.Unreadable && store.IsOpen(id) {
		if err := finishLost(ctx, a, s, id); err != nil {
			return err
		}
	}
	return a.Print("%s\n", id)
}

// ended waits until a run has ended, and returns its state. A run whose record is gone ended before
// its program started; its state is empty.
func ended(ctx context.Context, store *record.Store, id string) (record.State, error) {
	if err := untilEnd(ctx, store, id, func() error { return nil }); err != nil {
		return "", err
	}
	state, err := store.State(id)
	if errors.Is(err, record.ErrNoRecord) {
		return "", nil
	}
	return state, err
}

// NewWait returns the command `wait`.
func NewWait(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wait [RUN...]",
		Short: "Wait until runs have ended",
		Long: `Wait until runs have ended, and print how. Without an argument: the last run.
The exit code is the same as with 'sandbox run'; of several runs it is the first that is
not 0.
A run whose own process dies has no result: that is an error, and its hint says how to
finish the run.

` + handleHelp,
		Example: "  sandbox wait $(sandbox run -d train.py)",
		RunE: a.With(func(ctx context.Context, s settings.Settings, handles []string) error {
			if len(handles) == 0 {
				handles = []string{record.Last}
			}
			return eachRun(s, handles, func(store *record.Store, id string) error { return wait(ctx, a, store, id) })
		}),
	}
	return cli.TakesHandles(cmd)
}

func wait(ctx context.Context, a *cli.App, store *record.Store, id string) error {
	switch state, err := ended(ctx, store, id); {
	case err != nil:
		return err
	case state == "":
		return fmt.Errorf("run %s: its record is gone: it was removed, or its program was never started", id)
	case state == record.Unreadable:
		each, err := store.Load(id)
		return errors.Join(each.Damage, err)
	case state == record.Lost:
		return cli.WithHint(fmt.Errorf("run %s: is lost: its own process died", id), "finish the run with: sandbox adopt "+id)
	}
	each, err := store.Load(id)
	if err != nil {
		return err
	}
	if code := cli.ExitCode(cli.OfRun(each.Result), nil); a.Code == 0 {
		a.Code = code
	}
	return a.Print("%s  %s\n", id, render.RecordStatus(each, contract.OfRecord(each)))
}
