package invoke

import (
	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/harness/invoke/sweep"
)

// sweepReportSchema is the schema of a [sweepReport].
const sweepReportSchema = "evalbox/sweep-report/v1"

// sweepReport is the JSON of `sweep --json` and `sweep --dry-run`.
type sweepReport struct {
	Schema    string `json:"schema"`
	TotalRuns int    `json:"total_runs"`
	Dir       string `json:"dir"`
	// Manifest is null in a plan, and when none was written.
	Manifest *string          `json:"manifest"`
	Runs     []sweepReportRun `json:"runs"`
}

type sweepReportRun struct {
	Name       string         `json:"name"`
	AxisValues map[string]any `json:"axis_values"`
	Seed       invoke.Seed    `json:"seed"`
	// Status is planned, or how the run stands.
	Status sweep.Status `json:"status"`
	// Kept says that the run ended in an earlier call.
	Kept         bool    `json:"kept"`
	ManifestHash *string `json:"manifest_hash"`
	ExitCode     *int    `json:"exit_code"`
	TimedOut     bool    `json:"timed_out"`
	// Failure says why a run failed or is missing; null if there is nothing to say.
	Failure *string `json:"failure"`
}

const statusPlanned sweep.Status = "planned"

// sweepPlan is the report of a sweep in a directory before it begins.
func sweepPlan(plan sweep.Plan, dir string) sweepReport {
	shown := sweepReport{Schema: sweepReportSchema, TotalRuns: plan.Len(), Dir: dir, Runs: make([]sweepReportRun, plan.Len())}
	for i := range shown.Runs {
		point := plan.Point(i)
		shown.Runs[i] = sweepReportRun{Name: plan.Name(i), AxisValues: point.Values, Seed: point.Seed, Status: statusPlanned}
	}
	return shown
}

func sweepJSON(report sweep.Report) sweepReport {
	shown := sweepReport{Schema: sweepReportSchema, TotalRuns: len(report.Runs), Dir: report.Dir, Manifest: unlessEmpty(report.Manifest),
		Runs: make([]sweepReportRun, len(report.Runs))}
	for i, end := range report.Runs {
		failure := end.Failure
		if end.Err != nil {
			failure = end.Err.Error()
		}
		shown.Runs[i] = sweepReportRun{
			Name: end.Name, AxisValues: end.Values, Seed: end.Seed, Status: end.Status, Kept: end.Kept,
			ManifestHash: unlessEmpty(end.ManifestHash), ExitCode: end.ExitCode, TimedOut: end.TimedOut, Failure: unlessEmpty(failure),
		}
	}
	return shown
}

func unlessEmpty(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
