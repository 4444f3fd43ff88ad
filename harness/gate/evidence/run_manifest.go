package evidence

// RunManifestV1 names the wire form of [RunManifest].
const RunManifestV1 = "evalbox/run-manifest/v1"

// GateKind is what a command can prove.
type GateKind string

// Kinds of gates.
const (
	// KindTests runs tests.
	KindTests GateKind = "tests"
	// KindCheck has only an exit code, as a linter has; alone it proves no pass.
	KindCheck GateKind = "check"
)

// ReportFormat is the form in which a command reports its test cases.
type ReportFormat string

// Formats of reports.
const (
	ReportAuto   ReportFormat = "auto"    // found by the command and its files
	ReportPytest ReportFormat = "pytest"  // JUnit XML that pytest is asked for by its environment
	ReportGoTest ReportFormat = "go-test" // the JSON lines of go test -json on stdout
	ReportJUnit  ReportFormat = "junit"   // a JUnit XML file at ReportPath
	ReportTAP    ReportFormat = "tap"     // TAP on stdout
	ReportNone   ReportFormat = "none"    // no test cases
)

// Command is one command of a wish.
type Command struct {
	// Cmd is split into arguments by the rules of a shell for quotes; no shell is involved.
	Cmd string `json:"cmd"`
	// ExpectExit is the exit code that passes.
	ExpectExit int          `json:"expect_exit"`
	Kind       GateKind     `json:"kind"`
	Report     ReportFormat `json:"report"`
	// ReportPath is the path of a JUnit XML file, relative to the boundary or below
	// /work/final; empty for other formats.
	ReportPath string `json:"report_path"`
	// TimeoutMS is the time limit in milliseconds; 0 in a wish is that of the wish.
	TimeoutMS int64 `json:"timeout_ms"`
	// Env is added to the environment of all gates.
	Env map[string]string `json:"env"`
}

// Paths are the paths of a wish, relative to the boundary and clean, with forward slashes.
type Paths struct {
	// ArtifactPaths are patterns of files that are kept and hashed.
	ArtifactPaths []string `json:"artifact_paths"`
	// ProtectedPaths are hidden from the gates and must not be touched, ReadOnlyPaths must not
	// be changed, and Exclude is not copied.
	ProtectedPaths []string `json:"protected_paths"`
	ReadOnlyPaths  []string `json:"read_only_paths"`
	Exclude        []string `json:"exclude"`
}

// Flags say how strict a run is. A wish has them, and a run only makes them stricter.
type Flags struct {
	// Offline is true if the gates reach nothing.
	Offline bool `json:"offline"`
	// Strict demands a clean tree and full observation, ClaimGrade a pinned toolchain.
	Strict     bool `json:"strict"`
	ClaimGrade bool `json:"claim_grade"`
	// AllowUnobserved accepts that attempts at the network and at protected paths are known
	// from error messages only, as where the engine is on another machine.
	AllowUnobserved bool `json:"allow_unobserved"`
}

// RunManifest is the decision of node 1: everything that node 2 needs, and all that it sees
// (RT-10, RT-17). It has the parts of the wish that apply, and the facts of this machine.
type RunManifest struct {
	Schema string `json:"schema"`
	Name   string `json:"name"`
	// WishSHA256 is the hash by which the wish was sealed.
	WishSHA256 string `json:"wish_sha256"`
	// GateCommands are the wished commands, in order; Gates are the same ones, decided.
	GateCommands []string `json:"gate_commands"`
	Gates        []Gate   `json:"gates"`
	// IOBoundary is the workspace relative to the directory of the wish, with a slash at its
	// end, and Workspace its absolute path on this host.
	IOBoundary string `json:"io_boundary"`
	Workspace  string `json:"workspace"`
	// Baseline is a directory with the revision that the gates run on first; empty without.
	Baseline    string    `json:"baseline"`
	EnvPolicy   EnvPolicy `json:"env_policy"`
	TimeoutCaps Caps      `json:"timeout_caps"`
	// Paths are those of the wish. Exclude also has those of the run, such as its own
	// directory.
	Paths
	// Uncounted are paths below the boundary that make no tree dirty, such as the lock of the
	// wish.
	Uncounted []string `json:"uncounted"`
	// Egress is the network that the gates may reach; nil is offline.
	Egress    *Egress   `json:"egress"`
	Toolchain Toolchain `json:"toolchain"`
	Repo      Repo      `json:"repo"`
	Mode      Mode      `json:"mode"`
	// Rules are further rules of normalization, and Allowed patterns of text that the detector
	// ignores.
	Rules   []Rule   `json:"rules"`
	Allowed []string `json:"allowed"`
}

// Gate is one command, in its own container.
type Gate struct {
	// Index counts from 1.
	Index int `json:"index"`
	// Command is that of the wish. Its Env and ReportPath also have what makes a test runner
	// write its report, and TimeoutMS is the effective limit.
	Command
	// Argv are the arguments of Cmd.
	Argv []string `json:"argv"`
}

// EnvPolicy is the whole environment of all gates (RT-05). Nothing of the caller's is in it.
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

// Toolchain describes the programs that the gates run with (RT-08, UNPINNED_TOOLCHAIN).
type Toolchain struct {
	// Image is the name, ImageID its meaning when the wish was sealed, and Locked whether the
	// image lock has the same.
	Image   string `json:"image"`
	ImageID string `json:"image_id"`
	Locked  bool   `json:"locked"`
	// Python is the version that the wish pins, such as "3.11.2"; empty if it pins none.
	Python string `json:"python"`
	// Mounts are further read-only directories of the host, such as an SDK.
	Mounts []ToolMount `json:"mounts"`
}

// ToolMount is a directory of the host that gates find at Target, pinned by the hash of its
// tree.
type ToolMount struct {
	Source string `json:"source"`
	Target string `json:"target"`
	Hash   string `json:"hash"`
}

// Repo is the state of the git repository of the workspace. Commit is empty without a
// repository, and before its first commit.
type Repo struct {
	Commit string `json:"commit"`
	Dirty  bool   `json:"dirty"`
	// Root is the repository's root relative to the directory of the wish.
	Root string `json:"root"`
	// BaselineRev and BaselineCommit are the requested revision and its commit.
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
	Tools bool `json:"tools"`
	Flags
	Replay bool `json:"replay"`
	// Repeats is the number of passes that prove that the gates are deterministic; 1 is one
	// pass.
	Repeats int `json:"repeats"`
	// ToolRegistry is the SHA-256 of the registry that the commands were checked against;
	// empty without one.
	ToolRegistry string `json:"tool_registry"`
}

// Rule is one rule of normalization: text that matches Pattern (RE2) becomes Replace.
type Rule struct {
	Name    string `json:"name"`
	Pattern string `json:"pattern"`
	Replace string `json:"replace"`
}
