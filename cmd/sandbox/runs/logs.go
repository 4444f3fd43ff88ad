package runs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/sandbox/record"
)

// NewLogs returns the command `logs`.
func NewLogs(a *cli.App) *cobra.Command {
	var goOn, stderr bool
	cmd := &cobra.Command{
		Use:   "logs [flags] ID",
		Short: "Print what a run printed",
		Long: `Print the stdout, or the stderr, of a run. With --follow, go on until it ends.
The beginning of an ID is enough.`,
		Example: "  sandbox logs -f 20260102t150405-1a2b3c4d5e\n  sandbox logs --stderr 20260102t150405-1a",
		Args:    cobra.ExactArgs(1),
		RunE: a.With(func(ctx context.Context, s settings.Settings, args []string) error {
			return logs(ctx, a, s, args[0], goOn, stderr)
		}),
	}
	cmd.Flags().BoolVarP(&goOn, "follow", "f", false, "go on until the run ends")
	cmd.Flags().BoolVar(&stderr, "stderr", false, "its stderr instead of its stdout")
	a.SettingFlags(cmd, "raw")
	return cmd
}

func logs(ctx context.Context, a *cli.App, s settings.Settings, id string, goOn, stderr bool) error {
	store, each, err := find(s, id)
	if err != nil {
		return err
	}
	path := each.StdoutPath()
	if stderr {
		path = each.StderrPath()
	}
	out := a.Out
	if a.OutTerminal && !s.Raw {
		harmless := terminal.NewWriter(out)
		defer harmless.Flush() //nolint:errcheck // nothing is left to do about a terminal that went away
		out = harmless
	}
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("run %s: opening its log: %w", each.ID, err)
	}
	defer file.Close()
	if goOn {
		return follow(ctx, store, each.ID, file, out)
	}
	_, err = io.Copy(out, file)
	return cli.ReaderGone(err)
}

// followInterval is how often a running program's log is looked at.
const followInterval = 100 * time.Millisecond

// follow copies a log until its run has ended. A record that is removed
// meanwhile has ended too.
func follow(ctx context.Context, store *record.Store, id string, file io.Reader, out io.Writer) error {
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	for {
		// First the state, then the log: output between the two is not lost.
		each, stateErr := store.Get(id)
		if _, err := io.Copy(out, file); err != nil {
			return cli.ReaderGone(err)
		}
		switch {
		case errors.Is(stateErr, record.ErrNoRecord):
			return nil
		case stateErr != nil:
			return stateErr
		case each.State != record.Running:
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
