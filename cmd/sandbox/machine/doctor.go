package machine

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/internal/dockerhost"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/doctor"
)

// NewDoctor returns the command `doctor`.
func NewDoctor(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what works on this machine, and suggest fixes for the rest",
		Long: `Check the engine, its parts, the state directory and the image, and then run small programs
in the sandbox that try to break each limit. The exit code is 1 if a check failed.`,
		Example: "  sandbox doctor\n  sandbox doctor --json",
		Args:    cobra.NoArgs,
		RunE:    a.With(func(ctx context.Context, s settings.Settings, _ []string) error { return examine(ctx, a, s) }),
	}
	a.SettingFlags(cmd, "image", "runtime", "transfer", "json")
	return cmd
}

func examine(ctx context.Context, a *cli.App, s settings.Settings) error {
	machine, err := machine(a, s)
	if err != nil {
		return err
	}
	if machine.Runner != nil {
		defer machine.Runner.Close()
	}
	findings, err := doctor.Examine(ctx, machine)
	if err != nil {
		return err
	}
	for i, f := range findings {
		if f.Verdict == doctor.Fail {
			a.Code = cli.ExitProblem
		}
		if f.Err != nil {
			if all := a.Hints(f.Err); len(all) > 0 {
				findings[i].Advice = all[0]
			}
		}
	}
	return a.Show(s, findings, func() error { return printFindings(a, findings) })
}

// machine is the machine that the settings describe. The caller closes its runner, if
// there is one.
func machine(a *cli.App, s settings.Settings) (m doctor.Machine, err error) {
	m.Address = s.Engine
	if _, notFound := dockerhost.Find(s.Engine); notFound != nil {
		store, err := s.Store()
		if err != nil {
			return m, err
		}
		m.StateDir = store.Dir()
		return m, nil
	}
	catalog, err := s.Catalog()
	if err != nil {
		return m, err
	}
	if m.Runner, err = s.Runner(a.Logger()); err != nil {
		return m, err
	}
	m.StateDir, m.Images = m.Runner.Store().Dir(), catalog.Names()
	m.Request = sandbox.Request{Image: s.Image, AllowUnlocked: s.AllowUnlocked, Runtime: s.Runtime, Transfer: s.Transfer}
	return m, nil
}

func printFindings(a *cli.App, findings []doctor.Finding) error {
	p := render.Palette(a.OutTerminal) && a.Palette()
	paint := map[doctor.Verdict]func(string) string{
		doctor.OK: p.Good, doctor.Warn: p.Odd, doctor.Fail: p.Bad,
		doctor.Info: func(text string) string { return text },
	}
	for _, f := range findings {
		label := paint[f.Verdict](fmt.Sprintf("%-4s", f.Verdict))
		text := fmt.Sprintf("%s  %-17s %s\n", label, f.Check, terminal.Line(f.Seen))
		if f.Advice != "" {
			text += fmt.Sprintf("      %-17s -> %s\n", "", terminal.Line(a.RepeatFlags(f.Advice)))
		}
		if _, err := fmt.Fprint(a.Out, text); err != nil {
			return cli.ReaderGone(err)
		}
	}
	return nil
}
