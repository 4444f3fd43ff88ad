package runs

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/sandbox/record"
)

// NewShow returns the command `show`.
func NewShow(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show how a run ended",
		Long: `Show how a run ended: the result, the limits that were enforced, the outputs and the
traceback; of a contract also what came out otherwise, and where its outcome lies. With --json: the result itself. The beginning of an ID is enough.`,
		Example: "  sandbox show 20260102t150405-1a2b3c4d5e\n  sandbox show 20260102t150405-1a --json | jq .score",
		Args:    cobra.ExactArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return show(a, args[0]) },
	}
	a.SettingFlags(cmd, "json")
	return cmd
}

func show(a *cli.App, id string) error {
	s, store, record, err := a.Record(id)
	if err != nil {
		return err
	}
	switch {
	case s.JSON && record.Result == nil:
		return fmt.Errorf("run %s: has no result: it is %s", record.ID, record.State)
	case s.JSON:
		return a.PrintJSON(record.Result)
	}
	return a.Print("%s", render.Record(record, contract.OfRecord(record), finalOf(store, record.Spec.Job.Final, record.ID)))
}

// finalOf is the directory of the outputs of a run.
func finalOf(store *record.Store, asked, id string) string {
	if asked != "" {
		return asked
	}
	record, err := store.Get(id)
	if err != nil {
		return "" // the record is gone
	}
	return filepath.Join(record.Dir, "final")
}
