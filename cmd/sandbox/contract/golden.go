package contract

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/harness/contract/adapter"
	"github.com/evalbox/evalbox/internal/settings"
)

func newAdapterGolden(a *cli.App) *cobra.Command {
	var f execFlags
	var update bool
	cmd := &cobra.Command{
		Use:   "golden ID [EXAMPLE...]",
		Short: "Run the examples of an adapter, and compare their values",
		Long: `Run the examples of an adapter, and compare the value of each with its golden
output. Golden outputs are kept for good, in the directory golden/ID beside the
file of the adapter; those of shipped adapters are in the state directory.
--update replaces them.

The state of an example is same, differs, missing (there is no golden output),
failed (the call had no success) or updated. The exit code is 1 unless all are
same or updated.`,
		Example: "  sandbox adapter golden MY-001 --update\n  sandbox adapter golden MY-001",
		Args:    cobra.MinimumNArgs(1),
		PreRunE: func(cmd *cobra.Command, _ []string) error { return cli.Check(cmd, cli.NotEmpty(cli.Directory, "root")) },
		RunE: a.With(func(ctx context.Context, s settings.Settings, args []string) error {
			return golden(ctx, a, s, f, args[0], args[1:], update)
		}),
	}
	cmd.Flags().BoolVar(&update, "update", false, "replace the golden outputs")
	cmd.Flags().StringVar(&f.root, "root", "", rootOfCall)
	a.SettingFlags(cmd, slices.Concat(cli.ContractKeys, []string{"image", "allow_unlocked", "runtime", "json"})...)
	return cmd
}

// checkedExample is one example as `adapter golden --json` prints it.
type checkedExample struct {
	Example string `json:"example"`
	// State is same, differs, missing, updated or failed.
	State string `json:"state"`
	Error string `json:"error"`
	Value any    `json:"value"`
}

func golden(ctx context.Context, a *cli.App, s settings.Settings, f execFlags, id string, names []string, update bool) error {
	adapters, found, err := chosen(s, id, false)
	if err != nil {
		return err
	}
	examples, err := examplesOf(found, names)
	if err != nil {
		return err
	}
	stateDir, err := s.StateDirectory()
	if err != nil {
		return err
	}
	f.adapters = adapters
	x, h, err := f.hidden(ctx, a, s)
	if err != nil {
		return err
	}
	defer x.Close()
	kept := adapters.GoldenOf(id, stateDir)
	var all []checkedExample
	var rows [][]string
	for _, e := range examples {
		checked, err := checkExample(ctx, h, found, kept, e, update)
		if err != nil {
			return err
		}
		if checked.State != "same" && checked.State != "updated" {
			a.Code = cli.ExitProblem
		}
		all, rows = append(all, checked), append(rows, []string{checked.Example, checked.State, checked.Error})
	}
	_ = x.Ended() // nothing was shown
	header := []string{"EXAMPLE", "STATE", "ERROR"}
	if !slices.ContainsFunc(all, func(c checkedExample) bool { return c.Error != "" }) {
		header = header[:2]
		for i := range rows {
			rows[i] = rows[i][:2]
		}
	}
	return a.ShowTable(s, all, header, rows)
}

// examplesOf are the examples with the given names, or all.
func examplesOf(found *adapter.Adapter, names []string) ([]adapter.Example, error) {
	if len(found.Examples) == 0 {
		return nil, cli.WithHint(fmt.Errorf("adapter %s has no examples", found.ID), "add examples to its document: a name, an operation and parameters each")
	}
	examples := slices.DeleteFunc(slices.Clone(found.Examples), func(e adapter.Example) bool { return len(names) > 0 && !slices.Contains(names, e.Name) })
	for _, name := range names {
		if !slices.ContainsFunc(examples, func(e adapter.Example) bool { return e.Name == name }) {
			return nil, cli.WithHint(fmt.Errorf("adapter %s has no example %q", found.ID, name), "see its examples with: sandbox adapter show "+found.ID+" --level L3")
		}
	}
	return examples, nil
}

// checkExample runs an example. The error means that we failed.
func checkExample(ctx context.Context, h *contract.Harness, found *adapter.Adapter, kept adapter.Golden, e adapter.Example, update bool) (checkedExample, error) {
	checked := checkedExample{Example: e.Name}
	o, err := h.Run(ctx, contract.Job{Contract: new(e.Contract(found))})
	if err != nil {
		return checked, err
	}
	if !o.Success {
		checked.State, checked.Error = "failed", o.Err().Error()
		return checked, nil
	}
	checked.Value = o.Call.Value
	if update {
		checked.State = "updated"
		return checked, kept.Write(e.Name, o.Call.Value)
	}
	before, err := kept.Read(e.Name)
	if err != nil {
		return checked, err
	}
	if before == nil {
		checked.State, checked.Error = "missing", "there is no golden output; make it with --update"
		return checked, nil
	}
	same, err := kept.Same(before, o.Call.Value)
	if checked.State = "same"; !same {
		checked.State, checked.Error = "differs", "the value is not the golden output"
	}
	return checked, errors.Join(err, context.Cause(ctx))
}
