package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/record"
)

// poolSize is the size of a pool that somebody starts without one.
const poolSize = 4

// NewPool returns the command `pool`.
func NewPool(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pool",
		Short: "Keep containers ready, so that runs start at once",
		Long: `Keep containers ready in the background. After a run, the pool prepares containers for
runs that agree with it on the image, the limits, the directories and the file name of the
script. The next such run takes one of them, instead of creating its own, and starts in the
time that its program needs. Each container has one run, and is removed after it.

Runs with GPUs, working copies, a network level, observation, --keep, --id, or files that are
copied to the engine create their own containers. So do runs whose --final is on another file
system than the state directory. Their results say why, in the field pool.`,
		Example: `  sandbox pool start --size 4
  sandbox run train.py
  sandbox pool status
  sandbox pool stop`,
	}
	cmd.AddCommand(newPoolStart(a), newPoolStatus(a), newPoolStop(a))
	return cmd
}

func newPoolStart(a *cli.App) *cobra.Command {
	foreground := false
	cmd := &cobra.Command{
		Use:     "start",
		Short:   "Start the pool of the state directory, in the background",
		Example: "  sandbox pool start --size 8 --idle 1h",
		Args:    cobra.NoArgs,
		RunE: a.With(func(ctx context.Context, s settings.Settings, _ []string) error {
			if foreground {
				return keepPool(ctx, a, s)
			}
			status, err := startPool(ctx, a, s)
			if err != nil {
				return err
			}
			return a.Show(s, poolDocument{"evalbox/pool/v1", status}, func() error {
				return a.Print("the pool keeps up to %d containers ready: process %d\n", status.Size, status.PID)
			})
		}),
	}
	a.SettingFlags(cmd, "pool.size", "pool.idle", "pool.memory", "json")
	cmd.Flags().BoolVar(&foreground, "foreground", false, "keep the pool in this process, until a signal ends it")
	return cmd
}

// keepPool keeps the pool in this process. It prints a line when it is ready.
func keepPool(ctx context.Context, a *cli.App, s settings.Settings) (err error) {
	size := int(s.PoolSize)
	if size == 0 {
		size = poolSize
	}
	// Containers wait as long as the pool does: a pool without containers is of no use.
	bounds := sandbox.Pool{Size: size, Memory: int64(s.PoolMemory), Age: max(sandbox.DefaultPoolAge, s.PoolIdle)}
	runner, err := a.OpenRunner(s, sandbox.WithPool(bounds))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, runner.Close()) }()
	return hintedPool(runner.KeepPool(ctx, s.PoolIdle, func() {
		_ = a.Print("the pool is ready: process %d\n", os.Getpid()) // a reader that has gone does not end it
	}))
}

func hintedPool(err error) error {
	switch {
	case errors.Is(err, sandbox.ErrKept):
		return cli.WithHint(err, "look at it with: sandbox pool status; end it with: sandbox pool stop")
	case errors.Is(err, sandbox.ErrNoKeeper):
		return cli.WithHint(err, "start one with: sandbox pool start")
	}
	return err
}

// startPool starts a pool in the background, and returns when it is ready.
func startPool(ctx context.Context, a *cli.App, s settings.Settings) (sandbox.KeeperStatus, error) {
	none := sandbox.KeeperStatus{}
	store, err := s.Store()
	if err != nil {
		return none, err
	}
	if status, err := sandbox.Keeper(store); err == nil {
		return none, hintedPool(fmt.Errorf("%w, by process %d", sandbox.ErrKept, status.PID))
	}
	if err := a.StartPool(ctx, store, true); err != nil {
		return none, err
	}
	return sandbox.Keeper(store)
}

func newPoolStatus(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show the containers that wait, and how many runs took one",
		Example: "  sandbox pool status\n  sandbox pool status --json",
		Args:    cobra.NoArgs,
		RunE: a.With(func(_ context.Context, s settings.Settings, _ []string) error {
			status, err := askPool(s, sandbox.Keeper)
			if err != nil {
				return err
			}
			return a.Show(s, poolDocument{"evalbox/pool/v1", status}, func() error { return printPool(a, status) })
		}),
	}
	a.SettingFlags(cmd, "json")
	return cmd
}

func newPoolStop(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "stop",
		Short:   "Remove the containers that wait, and end the pool",
		Example: "  sandbox pool stop",
		Args:    cobra.NoArgs,
		RunE: a.With(func(_ context.Context, s settings.Settings, _ []string) error {
			status, err := askPool(s, sandbox.StopKeeper)
			if err != nil {
				return err
			}
			return a.Show(s, poolDocument{"evalbox/pool/v1", status}, func() error { return a.Print("the pool has ended: process %d\n", status.PID) })
		}),
	}
	a.SettingFlags(cmd, "json")
	return cmd
}

// poolDocument is the JSON of the commands of a pool.
type poolDocument struct {
	Schema string `json:"schema"`
	sandbox.KeeperStatus
}

// askPool asks the keeper of the state directory.
func askPool(s settings.Settings, ask func(*record.Store) (sandbox.KeeperStatus, error)) (sandbox.KeeperStatus, error) {
	store, err := s.Store()
	if err != nil {
		return sandbox.KeeperStatus{}, err
	}
	status, err := ask(store)
	return status, hintedPool(err)
}

func printPool(a *cli.App, status sandbox.KeeperStatus) error {
	rows := [][]string{
		{"process", strconv.Itoa(status.PID)},
		{"waiting", fmt.Sprintf("%d of %d containers, %v", status.Waiting, status.Size, policy.Size(status.Memory))},
		{"runs", fmt.Sprintf("%d took one, %d found none", status.Taken, status.Cold)},
		{"idle", fmt.Sprintf("it ends after %v without a run", time.Duration(status.IdleSeconds*float64(time.Second)))},
	}
	if status.Problem != "" {
		rows = append(rows, []string{"problem", status.Problem})
	}
	return a.PrintTable(rows[0], rows[1:])
}
