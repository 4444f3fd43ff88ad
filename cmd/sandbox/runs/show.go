package runs

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/sandbox/record"
)

// NewShow returns the command `show`.
func NewShow(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show how a run ended",
		Long: `Show how a run ended: the result, the limits that were enforced, the outputs and the
traceback; of a contract also what came out otherwise, and where its outcome is. With
--json: the result itself. The beginning of an ID is enough.`,
		Example: "  sandbox show 20260102t150405-1a2b3c4d5e\n  sandbox show 20260102t150405-1a --json | jq .score",
		Args:    cobra.ExactArgs(1),
		RunE: a.With(func(_ context.Context, s settings.Settings, args []string) error {
			store, each, err := find(s, args[0])
			switch {
			case err != nil:
				return err
			case s.JSON && each.Result == nil:
				return fmt.Errorf("run %s: has no result: it is %s", each.ID, each.State)
			}
			return a.Show(s, each.Result, func() error {
				return a.Print("%s", render.Record(each, contract.OfRecord(each), finalOf(store, each.Spec.Job.Final, each.ID)))
			})
		}),
	}
	a.SettingFlags(cmd, "json")
	return cmd
}

// find opens the records and returns the one of an ID.
func find(s settings.Settings, id string) (*record.Store, record.Record, error) {
	store, err := s.Store()
	if err != nil {
		return nil, record.Record{}, err
	}
	each, err := store.Get(id)
	return store, each, err
}

// finalOf is the directory of the outputs of a run.
func finalOf(store *record.Store, asked, id string) string {
	if asked != "" {
		return asked
	}
	each, err := store.Get(id)
	if err != nil {
		return "" // the record is gone
	}
	return filepath.Join(each.Dir, "final")
}
