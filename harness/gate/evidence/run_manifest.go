package evidence

// RunManifestV1 names the wire form of [RunManifest].
const RunManifestV1 = "evalbox/run-manifest/v1"

// RunManifest is what node 1 decided: everything that node 2 needs, and all that it
// sees (RT-10, RT-17).
type RunManifest struct {
	Schema string `json:"schema"`
	Name   string `json:"name"`
	// WishSHA256 is the hash by which the wish was sealed.
	WishSHA256 string `json:"wish_sha256"`
	// GateCommands are the commands as they were wished, in order; Gates has the same
	// ones, decided.
	GateCommands []string `json:"gate_commands"`
	Gates        []Gate   `json:"gates"`
	// IOBoundary is the workspace relative to the folder of the wish, with a slash at
	// its end, and Workspace its absolute path on this host.
	IOBoundary string `json:"io_boundary"`
	Workspace  string `json:"workspace"`
	// Baseline is a folder with the revision that the gates run on first; empty without.
	Baseline    string    `json:"baseline"`
	EnvPolicy   EnvPolicy `json:"env_policy"`
	TimeoutCaps Caps      `json:"timeout_caps"`
	// ArtifactPaths are patterns of files below the boundary that are kept and hashed.
	ArtifactPaths []string `json:"artifact_paths"`
	// ProtectedPaths are hidden from the gates, and touching them is a violation;
	// ReadOnlyPaths may be read. Both are relative to the boundary.
	ProtectedPaths []string `json:"protected_paths"`
	ReadOnlyPaths  []string `json:"read_only_paths"`
	// Exclude are paths below the boundary that the gates do not see.
	Exclude []string `json:"exclude"`
	// Uncounted are paths below the boundary that make no tree dirty, such as the lock of
	// the wish.
	Uncounted []string `json:"uncounted"`
	// Egress is what the gates may reach; nil is offline.
	Egress    *Egress   `json:"egress"`
	Toolchain Toolchain `json:"toolchain"`
	Repo      Repo      `json:"repo"`
	Mode      Mode      `json:"mode"`
	// Rules are further rules of normalization, and Allowed what the detector is to
	// pass over.
	Rules   []Rule   `json:"rules"`
	Allowed []string `json:"allowed"`
}

// GateKind says what a command can prove.
type GateKind string

// Kinds of gates.
const (
	// KindTests runs tests: it must show that it ran at least one.
	KindTests GateKind = "tests"
	// KindCheck has only an exit code, as a linter has; alone it proves no pass.
	KindCheck GateKind = "check"
)

// ReportFormat is how a command tells its test cases.
type ReportFormat string

// Formats of reports.
const (
	ReportAuto   ReportFormat = "auto"    // found out from the command and from what it left
	ReportPytest ReportFormat = "pytest"  // JUnit XML that pytest is asked for by its environment
	ReportGoTest ReportFormat = "go-test" // the JSON lines of go test -json on stdout
	ReportJUnit  ReportFormat = "junit"   // a JUnit XML file at ReportPath
	ReportTAP    ReportFormat = "tap"     // TAP on stdout
	ReportNone   ReportFormat = "none"    // no test cases
)

// Gate is one command, in its own container.
type Gate struct {
	// Index counts from 1.
	Index int `json:"index"`
	// Cmd is the command as wished, Argv its words. No shell is involved.
	Cmd        string   `json:"cmd"`
	Argv       []string `json:"argv"`
	ExpectExit int      `json:"expect_exit"`
	Kind       GateKind `json:"kind"`
	// Report and ReportPath say how test cases are told; ReportPath is relative to the
	// boundary, or absolute inside the container.
	Report     ReportFormat `json:"report"`
	ReportPath string       `json:"report_path"`
	// Env is added for this command, such as what makes pytest write its report.
	Env map[string]string `json:"env"`
	// TimeoutMS is its own time limit in milliseconds.
	TimeoutMS int64 `json:"timeout_ms"`
}

// EnvPolicy is the environment of all gates (RT-05): what is listed, sorted, and
// nothing of the caller's.
type EnvPolicy struct {
	Vars     map[string]string `json:"vars"`
	Timezone string            `json:"timezone"`
	Locale   string            `json:"locale"`
	HashSeed string            `json:"hash_seed"`
}

// Caps bound each gate. Sizes are bytes; CPUs are thousandths of a processor.
type Caps struct {
	TimeoutMS   int64 `json:"timeout_ms"`
	MemoryBytes int64 `json:"memory_bytes"`
	MilliCPUs   int64 `json:"milli_cpus"`
	PIDs        int64 `json:"pids"`
	DiskBytes   int64 `json:"disk_bytes"`
	// LogBytes is how much of each stream is kept.
	LogBytes int64 `json:"log_bytes"`
}

// Egress is a network level with its hosts; see policy.Egress.
type Egress struct {
	Level string   `json:"level"`
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

// Toolchain is what the gates run with (RT-08, UNPINNED_TOOLCHAIN).
type Toolchain struct {
	// Image is the name, ImageID what the name meant when the wish was sealed, and
	// Locked whether that is what the image lock says.
	Image   string `json:"image"`
	ImageID string `json:"image_id"`
	Locked  bool   `json:"locked"`
	// Python is the version that the wish pins, such as "3.11.2"; empty if it pins none.
	Python string `json:"python"`
	// Mounts are further read-only folders of the host, such as an SDK.
	Mounts []ToolMount `json:"mounts"`
}

// ToolMount is a folder of the host that gates find at Target, pinned by the hash of
// its tree.
type ToolMount struct {
	Source string `json:"source"`
	Target string `json:"target"`
	Hash   string `json:"hash"`
}

// Repo is what git says of the workspace. Commit is empty where there is no repository
// or no commit yet.
type Repo struct {
	Commit string `json:"commit"`
	Dirty  bool   `json:"dirty"`
	// Root is the repository's root relative to the folder of the wish.
	Root string `json:"root"`
	// BaselineRev and BaselineCommit are the revision that was asked for and its commit.
	BaselineRev    string `json:"baseline_rev"`
	BaselineCommit string `json:"baseline_commit"`
}

// Mode are the flags of a run.
type Mode struct {
	// Execute is false in plan mode: nothing may run (resolution 41).
	Execute bool `json:"execute"`
	// Sealed is false if the wish was not sealed, or is not what was sealed.
	Sealed bool `json:"sealed"`
	// Tools is false where running anything is switched off (RT-07).
	Tools   bool `json:"tools"`
	Offline bool `json:"offline"`
	Strict  bool `json:"strict"`
	Replay  bool `json:"replay"`
	// ClaimGrade demands a pinned toolchain.
	ClaimGrade bool `json:"claim_grade"`
	// AllowUnobserved accepts that attempts at the network and at protected paths are
	// known from error messages only.
	AllowUnobserved bool `json:"allow_unobserved"`
	// Repeats is how often everything runs to prove that it is deterministic; 1 is once.
	Repeats int `json:"repeats"`
	// ToolRegistry is the SHA-256 of the registry that the commands were checked
	// against; empty without one.
	ToolRegistry string `json:"tool_registry"`
}

// Rule is one rule of normalization: what matches Pattern (RE2) becomes Replace.
type Rule struct {
	Name    string `json:"name"`
	Pattern string `json:"pattern"`
	Replace string `json:"replace"`
}
