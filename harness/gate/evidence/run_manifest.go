package evidence

// RunManifestV1 names the wire form of [RunManifest].
const RunManifestV1 = "evalbox/run-manifest/v1"

// GateKind is what a command can prove.
type GateKind string

// Kinds of gates.
const (
	KindTests GateKind = "tests"
	KindCheck GateKind = "check" // has only an exit code, as a linter has; alone it proves no pass
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
	Cmd        string       `json:"cmd"`
	ExpectExit int          `json:"expect_exit"` // the exit code that passes
	Kind       GateKind     `json:"kind"`
	Report     ReportFormat `json:"report"`
	// ReportPath is the path of a JUnit XML file, relative to the boundary or below
	// /work/final; empty for other formats.
	ReportPath string            `json:"report_path"`
	TimeoutMS  int64             `json:"timeout_ms"` // 0 in a wish is the limit of the wish
	Env        map[string]string `json:"env"`        // added to the environment of all gates
}

// Paths are the paths of a wish, relative to the boundary and clean, with forward slashes.
type Paths struct {
	ArtifactPaths  []string `json:"artifact_paths"`  // patterns of files that are kept and hashed
	ProtectedPaths []string `json:"protected_paths"` // hidden from the gates, must not be touched
	ReadOnlyPaths  []string `json:"read_only_paths"` // must not be changed
	Exclude        []string `json:"exclude"`         // not copied
}

// Flags say how strict a run is. A wish has them, and a run only makes them stricter.
type Flags struct {
	Offline    bool `json:"offline"`     // the gates reach nothing
	Strict     bool `json:"strict"`      // demands a clean tree and full observation
	ClaimGrade bool `json:"claim_grade"` // demands a pinned toolchain
	// AllowUnobserved accepts that attempts at the network and at protected paths are known
	// from error messages only, as where the engine is on another machine.
	AllowUnobserved bool `json:"allow_unobserved"`
}

// RunManifest is the decision of node 1: everything that node 2 needs, and all that it sees
// (RT-10, RT-17). It has the parts of the wish that apply, and the facts of this machine.
type RunManifest struct {
	Schema     string `json:"schema"`
	Name       string `json:"name"`
	WishSHA256 string `json:"wish_sha256"` // the hash by which the wish was sealed
	// GateCommands are the wished commands, in order; Gates are the same ones, decided.
	GateCommands []string `json:"gate_commands"`
	Gates        []Gate   `json:"gates"`
	// IOBoundary is the workspace relative to the directory of the wish, with a slash at its
	// end, and Workspace its absolute path on this host.
	IOBoundary  string    `json:"io_boundary"`
	Workspace   string    `json:"workspace"`
	Baseline    string    `json:"baseline"` // a directory that the gates run on first; empty for none
	EnvPolicy   EnvPolicy `json:"env_policy"`
	TimeoutCaps Caps      `json:"timeout_caps"`
	Paths                 // Exclude also has those of the run, such as its own directory
	Uncounted   []string  `json:"uncounted"` // paths that make no tree dirty, such as the lock of the wish
	Egress      *Egress   `json:"egress"`    // nil is offline
	Toolchain   Toolchain `json:"toolchain"`
	Repo        Repo      `json:"repo"`
	Mode        Mode      `json:"mode"`
	Rules       []Rule    `json:"rules"`   // further rules of normalization
	Allowed     []string  `json:"allowed"` // patterns of text that the detector ignores
}

// Gate is one command, in its own container.
type Gate struct {
	Index int `json:"index"` // counts from 1
	// Command is that of the wish. Its Env and ReportPath also make a test runner write its
	// report, and TimeoutMS is the effective limit.
	Command
	Argv []string `json:"argv"` // the arguments of Cmd
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
	LogBytes    int64 `json:"log_bytes"` // of each stream
}

// Egress is a network level with its hosts; see policy.Egress.
type Egress struct {
	Level string   `json:"level"`
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

// Toolchain describes the programs that the gates run with (RT-08, UNPINNED_TOOLCHAIN).
type Toolchain struct {
	Image   string      `json:"image"`
	ImageID string      `json:"image_id"` // the meaning of Image when the wish was sealed
	Locked  bool        `json:"locked"`   // the image lock has the same ID
	Python  string      `json:"python"`   // the version that the wish pins; empty if it pins none
	Mounts  []ToolMount `json:"mounts"`   // read-only directories of the host, such as an SDK
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
	Root   string `json:"root"` // relative to the directory of the wish
	// BaselineRev and BaselineCommit are the requested revision and its commit.
	BaselineRev    string `json:"baseline_rev"`
	BaselineCommit string `json:"baseline_commit"`
}

// Mode are the flags of a run.
type Mode struct {
	Execute bool `json:"execute"` // false in plan mode: nothing may run (resolution 41)
	Sealed  bool `json:"sealed"`  // the wish is what was sealed
	Tools   bool `json:"tools"`   // false where running anything is switched off (RT-07)
	Flags
	Replay       bool   `json:"replay"`
	Repeats      int    `json:"repeats"`       // passes that prove that the gates are deterministic
	ToolRegistry string `json:"tool_registry"` // the SHA-256 of the registry of commands; empty for none
}

// Rule is one rule of normalization: text that matches Pattern (RE2) becomes Replace.
type Rule struct {
	Name    string `json:"name"`
	Pattern string `json:"pattern"`
	Replace string `json:"replace"`
}
