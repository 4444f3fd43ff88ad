package manifest

import (
	"github.com/evalbox/evalbox/harness/gate/evidence"
)

const (
	// planProfile and planVersion say by what the plan was made.
	planProfile = "evalbox-gate"
	planVersion = "1.0.0"
	// stateBuilt is the state of a run whose manifest is there (RO-01).
	stateBuilt = "MANIFEST_BUILD"
	// planOpen stands for a stop reason before there is one.
	planOpen = "NONE"
)

// Rungs that a plan aims at (RO-10): once, or often enough to show that it is stable.
const (
	rungLocal  = 641
	rungStable = 274177
)

// Plan is plan.json (RO-07): what is going to be run, before anything was. findings are
// those of [Build]. Seeds are not varied (resolution 46), and what was not shown yet is
// not claimed: the rung is 0.
func Plan(m evidence.RunManifest, findings []evidence.Finding) evidence.Plan {
	p := evidence.Plan{
		SkillVersion: planVersion, Profile: planProfile, StopReason: planOpen, LastKnownState: stateBuilt,
		LoopBudgets: budgets(m), LocalizationSummary: []string{}, ForecastSummary: []string{},
		VerificationRungTarget: rungLocal,
		// Missing, null and empty commands were told apart from commands.
		NullChecksPerformed: true,
		EnvSnapshotPointer:  evidence.EnvSnapshotFile, EvidenceManifestPointer: evidence.ManifestFile,
		GateCommands: append([]string{}, m.GateCommands...),
	}
	if m.Mode.Repeats > 1 {
		p.VerificationRungTarget = rungStable
	}
	if len(findings) > 0 {
		p.StopReason = string(findings[0].Reason)
	}
	return p
}

// budgets are the most that the run can take.
func budgets(m evidence.RunManifest) map[string]int64 {
	rounds := int64(max(m.Mode.Repeats, 1))
	if m.Baseline != "" {
		rounds++
	}
	var ms int64
	for _, g := range m.Gates {
		ms += g.TimeoutMS
	}
	return map[string]int64{"iterations": rounds, "tool_calls": rounds * int64(len(m.Gates)), "milliseconds": rounds * ms}
}
