package runs

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/record"
)

// NewAdopt returns the command `adopt`.
func NewAdopt(a *cli.App) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "adopt RUN | --all",
		Short: "Finish a run whose own process died",
		Long: `Finish a run whose process died or was killed. The program does not notice that: it
runs until its end or its time limit, and the engine keeps its output. This command
waits for the end, shows the output from its beginning, collects the outputs and writes
the result, as 'sandbox run' would have done. The result says that it was recovered.

Ctrl-C asks the program to end and keeps its outputs. A second Ctrl-C, at least a second
later, ends it at once. A run whose process lives is refused. A program that was never
started has a result that says so, and its ./final does not change.

Outputs that could not come to the directory of --final, for example because its disk was
full, are moved there, also for a run that has its result.

A run whose record is damaged has no result. Its container and volume are removed, its
outputs come to the directory of --final, and the record stays.

A run with the status engine_lost can be adopted again once its engine is back: it gets
another result if the engine knows the end of its program by now.

With --all: every such run of the state directory, without the output of the programs.
'sandbox gc' finishes those whose programs have ended, and leaves the others alone.

The exit code is the same as with 'sandbox run'; with --all it is 0 if every run was
finished, or will never have a result.

` + handleHelp,
		Example: "  sandbox adopt 20260102t150405-1a2b3c4d5e\n  sandbox adopt --all",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) == 1) {
				return cli.Usagef(cmd.CommandPath(), "adopt: which run? give an ID, a name, or last; or --all")
			}
			return a.With(func(ctx context.Context, s settings.Settings, args []string) error {
				if all {
					return adoptAll(ctx, a, s)
				}
				return adopt(ctx, a, s, args[0])
			})(cmd, args)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "every run whose process died")
	a.SettingFlags(cmd, "json", "quiet", "raw")
	return cli.TakesHandles(cmd)
}

func adopt(ctx context.Context, a *cli.App, s settings.Settings, id string) error {
	x, err := a.Begin(ctx, s, cli.Piped)
	if err != nil {
		return err
	}
	defer x.Close()
	if id, err = x.Box.Store().Find(id); err != nil {
		return err
	}
	x.AnnounceEnd(ctx)
	res, adoptErr := x.Box.Adopt(ctx, id, x.IO, x.Hooks)
	_ = x.Ended() // the result has all output
	a.Code = cli.ExitCode(cli.OfRun(res), adoptErr)
	if errors.Is(adoptErr, record.ErrRunning) {
		return cli.WithHint(adoptErr, "see what it prints, until it ends, with: sandbox logs -f "+id)
	}
	if res == nil {
		return adoptErr
	}
	return x.Finish(a.Code, res, adoptErr, func() []string { return adoptedLines(x, res) })
}

func adoptedLines(x *cli.Session, res *result.Result) []string {
	asked := sandbox.Request{Transfer: res.Enforced.Transfer}
	store := x.Box.Store()
	if each, err := store.Get(res.ID); err == nil {
		asked.Final = each.Spec.Job.Final
	}
	return render.Run(res, asked, finalOf(store, asked.Final, res.ID), x.Palette())
}

// adoptAll goes on after a run that cannot be finished.
func adoptAll(ctx context.Context, a *cli.App, s settings.Settings) error {
	x, err := a.Begin(ctx, s, cli.Hidden)
	if err != nil {
		return err
	}
	defer x.Close()
	results := []*result.Result{}
	var errs []error
	defer a.Runs.Begin()()
	err = x.Runner.AdoptAll(ctx, func(done sandbox.Adopted) {
		switch {
		case done.Settled():
			a.Warn("%v", done.Err) // nothing of it is left to do
			return
		case done.Result == nil:
			errs = append(errs, done.Err)
			return
		}
		results = append(results, done.Result)
		if !s.JSON && !s.Quiet {
			for _, line := range adoptedLines(x, done.Result) {
				errs = append(errs, a.Print("%s\n", line))
			}
		}
	}, x.Hooks)
	_ = x.Ended() // there is no live output
	if s.JSON {
		errs = append(errs, a.PrintJSON(struct {
			Schema string           `json:"schema"`
			Runs   []*result.Result `json:"runs"`
		}{"evalbox/adopted/v1", results}))
	} else {
		errs = append(errs, a.Print("%s\n", fmt.Sprintf("finished %d", len(results))))
	}
	return errors.Join(append(errs, err)...)
}
