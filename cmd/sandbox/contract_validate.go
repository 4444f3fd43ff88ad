package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/render"
)

// validated is one contract as `contract validate --json` prints it.
type validated struct {
	Contract string `json:"contract"`
	Valid    bool   `json:"valid"`
	// ContractSHA256 is the hash that approvals are bound to.
	ContractSHA256 string               `json:"contract_sha256"`
	Violations     []contract.Violation `json:"violations"`
	// Stripped are variables that the program would not be given.
	Stripped []contract.Violation `json:"stripped"`
	// Needs are the levels that need an approval.
	Needs    []string `json:"needs"`
	Warnings []string `json:"warnings"`
}

func newContractValidateCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "validate CONTRACT.yaml...",
		Short: "Check contracts without carrying them out",
		Long: `Check the text of contracts against the tool registry, the profiles of limits and the
levels. Everything that is wrong is told at once. What the files of this machine
are is not looked at: that does 'sandbox exec --dry-run'.

The exit code is 1 when a contract is not valid. - is stdin.`,
		Example: "  sandbox contract validate contract.yaml\n  sandbox contract validate --strict --json contracts/*.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.validateContracts(cmd.Context(), args) },
	}
	a.settingFlags(cmd, false, append(contractKeys, "json")...)
	return cmd
}

// validateContracts shows the problems of the contracts that can be read, and then reports
// the contracts that cannot.
func (a *app) validateContracts(ctx context.Context, files []string) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	rules, err := rulesOf(s)
	if err != nil {
		return err
	}
	all := []validated{}
	var unreadable []error
	for _, file := range files {
		text, err := a.readDocument(ctx, file)
		if ctx.Err() != nil {
			return err
		}
		file = sourceName(file)
		if err != nil {
			unreadable = append(unreadable, err)
			continue
		}
		_, e, violations, stripped := rules.Examine(text, file)
		v := validated{
			Contract: file, Valid: len(violations) == 0, ContractSHA256: e.ContractSHA256,
			Violations: append([]contract.Violation{}, violations...), Stripped: append([]contract.Violation{}, stripped...),
			Needs: append([]string{}, e.Needs...), Warnings: append([]string{}, e.Warnings...),
		}
		if !v.Valid {
			a.code = exitProblem
		}
		all = append(all, v)
	}
	if s.JSON {
		return errors.Join(a.printJSON(all), errors.Join(unreadable...))
	}
	for _, v := range all {
		if err := a.print("%s", validatedText(v)); err != nil {
			return err
		}
	}
	return errors.Join(unreadable...)
}

func validatedText(v validated) string {
	var b strings.Builder
	for _, line := range render.Violations(v.Contract, v.Violations) {
		fmt.Fprintln(&b, line)
	}
	for _, warning := range v.Warnings {
		fmt.Fprintf(&b, "%s: warning: %s\n", v.Contract, warning)
	}
	for _, s := range v.Stripped {
		fmt.Fprintf(&b, "%s: stripped %s: %s\n", v.Contract, strings.TrimPrefix(s.Field, "inputs.environment."), s.Rule)
	}
	if v.Valid {
		fmt.Fprintf(&b, "%s: valid", v.Contract)
		if len(v.Needs) > 0 {
			fmt.Fprintf(&b, ", needs an approval of %s", needsText(v.Needs))
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}
