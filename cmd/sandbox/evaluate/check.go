package evaluate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/internal/settings"
)

// checkedScript is one script as `check --json` prints it.
type checkedScript struct {
	Script string `json:"script"`
	OK     bool   `json:"ok"`
	// Errors are why an evaluation refuses the script, Warnings where it hides
	// errors.
	Errors   []evaluate.Violation `json:"errors"`
	Warnings []evaluate.Masking   `json:"warnings"`
	// Failure is why the script cannot be read, and nothing else is known of it;
	// empty when it was read.
	Failure string `json:"failure"`
}

// NewCheck returns the command `check`.
func NewCheck(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check SCRIPT.py...",
		Short: "Check scripts without running them",
		Long: `Check scripts as an evaluation does before it runs them. Refused are: an empty
script, one that is not UTF-8, and a call of exit, sys.exit, os._exit or quit
anywhere in the text, comments and strings included. Pointed out are clauses that
hide errors: "except:", and "except Exception:" with only pass in it. Syntax is not
checked.

No container is involved. The exit code is 1 when a script is refused, and 125 when
one cannot be read.`,
		Example: "  sandbox check train.py\n  sandbox check --json solutions/*.py",
		Args:    cobra.MinimumNArgs(1),
		RunE:    a.With(func(_ context.Context, s settings.Settings, paths []string) error { return check(a, s, paths) }),
	}
	a.SettingFlags(cmd, "json")
	return cmd
}

// check shows the problems of the scripts that can be read, and then reports the scripts
// that cannot.
func check(a *cli.App, s settings.Settings, paths []string) error {
	checked := []checkedScript{}
	var unreadable []error
	for _, path := range paths {
		c := checkedScript{Script: path, Errors: []evaluate.Violation{}, Warnings: []evaluate.Masking{}}
		text, err := evaluate.ReadScript(path)
		if err != nil {
			unreadable = append(unreadable, err)
			c.Failure = err.Error()
			checked = append(checked, c)
			continue
		}
		c.Errors = append(c.Errors, evaluate.ValidateScript(text)...)
		c.Warnings = append(c.Warnings, evaluate.DetectErrorMasking(text)...)
		c.OK = len(c.Errors) == 0
		if !c.OK {
			a.Code = cli.ExitProblem
		}
		checked = append(checked, c)
	}
	if len(unreadable) > 0 {
		a.Code = cli.ExitSandbox
	}
	err := a.Show(s, checked, func() error {
		for _, c := range checked {
			if c.Failure != "" {
				continue
			}
			if err := printChecked(a, c); err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(append(unreadable, err)...)
}

// printChecked prints a line for each thing, in the form that editors know.
func printChecked(a *cli.App, c checkedScript) error {
	text := ""
	for _, e := range c.Errors {
		text += fmt.Sprintf("%s:%d: error: %s\n", c.Script, max(e.Line, 1), e.Rule)
	}
	for _, w := range c.Warnings {
		_, rule, _ := strings.Cut(w.String(), ": ") // the line is named already
		text += fmt.Sprintf("%s:%d: warning: %s\n", c.Script, w.Line, rule)
	}
	if text == "" {
		text = c.Script + ": ok\n"
	}
	return a.Print("%s", text)
}
