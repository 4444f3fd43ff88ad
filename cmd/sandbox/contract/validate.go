package contract

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
)

// validated is one contract as `contract validate --json` prints it. Its lists are never null.
type validated struct {
	Contract string `json:"contract"`
	Valid    bool   `json:"valid"`
	// ContractSHA256 is the hash that approvals are bound to.
	ContractSHA256 string               `json:"contract_sha256"`
	Violations     []contract.Violation `json:"violations"`
	// Stripped are variables that the program would not get.
	Stripped []contract.Violation `json:"stripped"`
	// Needs are the levels that need an approval.
	Needs    []string `json:"needs"`
	Warnings []string `json:"warnings"`
}

func newValidate(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "validate CONTRACT.yaml...",
		Short: "Check contracts without carrying them out",
		Long: `Check the text of contracts against the tool registry, the profiles of limits and the
levels, and report every problem at once. The files of this machine are not checked:
'sandbox exec --dry-run' does that.

The exit code is 1 when a contract is not valid. - is stdin.`,
		Example: "  sandbox contract validate contract.yaml\n  sandbox contract validate --strict --json contracts/*.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: a.With(func(ctx context.Context, s settings.Settings, args []string) error {
			return validate(ctx, a, s, args)
		}),
	}
	a.SettingFlags(cmd, append(slices.Clone(contractKeys), "json")...)
	return cmd
}

// validate shows the problems of the contracts that can be read, and then reports
// the contracts that cannot.
func validate(ctx context.Context, a *cli.App, s settings.Settings, files []string) error {
	rules, err := rulesOf(s)
	if err != nil {
		return err
	}
	all := []validated{}
	var unreadable []error
	for _, file := range files {
		text, err := readDocument(ctx, a, file)
		if ctx.Err() != nil {
			return err
		}
		if err != nil {
			unreadable = append(unreadable, err)
			continue
		}
		x := rules.Examine(text)
		all = append(all, validated{
			Contract: sourceName(file), Valid: len(x.Violations) == 0, ContractSHA256: x.Effective.ContractSHA256,
			Violations: append([]contract.Violation{}, x.Violations...), Stripped: append([]contract.Violation{}, x.Stripped...),
			Needs: append([]string{}, x.Effective.Needs...), Warnings: append([]string{}, x.Effective.Warnings...),
		})
		if len(x.Violations) > 0 {
			a.Code = cli.ExitProblem
		}
	}
	err = a.Show(s, all, func() error {
		var lines []string
		for _, v := range all {
			lines = append(lines, v.lines()...)
		}
		return a.PrintAll(lines)
	})
	return errors.Join(err, errors.Join(unreadable...))
}

func (v validated) lines() []string {
	lines := render.Violations(v.Contract, v.Violations)
	for _, warning := range v.Warnings {
		lines = append(lines, fmt.Sprintf("%s: warning: %s", v.Contract, warning))
	}
	for _, s := range v.Stripped {
		lines = append(lines, fmt.Sprintf("%s: stripped %s: %s", v.Contract, strings.TrimPrefix(s.Field, "inputs.environment."), s.Rule))
	}
	switch {
	case v.Valid && len(v.Needs) > 0:
		lines = append(lines, fmt.Sprintf("%s: valid, needs an approval of %s", v.Contract, needsText(v.Needs)))
	case v.Valid:
		lines = append(lines, v.Contract+": valid")
	}
	return lines
}

// needsText are the levels that need an approval, for people.
func needsText(needs []string) string { return strings.Join(slices.Sorted(slices.Values(needs)), ", ") }
