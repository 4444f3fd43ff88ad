package evidence

// EnvSnapshotV1 names the wire form of [EnvSnapshot].
const EnvSnapshotV1 = "evalbox/env-snapshot/v1"

// EnvSnapshot is what the gates ran in; the keys after Schema up to Locale are those of
// RO-07.
type EnvSnapshot struct {
	Schema           string            `json:"schema"`
	GitCommit        string            `json:"git_commit"`
	GitDirty         bool              `json:"git_dirty"`
	RepoRoot         string            `json:"repo_root"`
	OS               string            `json:"os"`
	Arch             string            `json:"arch"`
	LanguageRuntimes map[string]string `json:"language_runtimes"`
	ToolVersions     map[string]string `json:"tool_versions"`
	Timezone         string            `json:"timezone"`
	Locale           string            `json:"locale"`
	// Image is the image that the gates really ran in.
	Image       string `json:"image"`
	ImageID     string `json:"image_id"`
	ImageLocked bool   `json:"image_locked"`
	// Workspace is the hash of the tree that the gates got; Toolchain of each mount.
	Workspace string      `json:"workspace"`
	Toolchain []ToolMount `json:"toolchain"`
	// Engine and Runtime carried the containers.
	Engine  string `json:"engine"`
	Runtime string `json:"runtime"`
}

// Plan is plan.json with the 13 keys of RO-07, and the manifest's commands.
type Plan struct {
	SkillVersion            string           `json:"skill_version"`
	Profile                 string           `json:"profile"`
	StopReason              string           `json:"stop_reason"`
	LastKnownState          string           `json:"last_known_state"`
	LoopBudgets             map[string]int64 `json:"loop_budgets"`
	LocalizationSummary     []string         `json:"localization_summary"`
	VerificationRungTarget  int              `json:"verification_rung_target"`
	VerificationRung        int              `json:"verification_rung"`
	SeedAgreement           bool             `json:"seed_agreement"`
	NullChecksPerformed     bool             `json:"null_checks_performed"`
	ForecastSummary         []string         `json:"forecast_summary"`
	EnvSnapshotPointer      string           `json:"env_snapshot_pointer"`
	EvidenceManifestPointer string           `json:"evidence_manifest_pointer"`
	// GateCommands are what was going to be run.
	GateCommands []string `json:"gate_commands"`
}
