package wish

import (
	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// SchemaV1 names the wire form of a wish. A breaking change gets a new name.
const SchemaV1 = "evalbox/wish/v1"

// Wish is a wish in its normal form: every default filled in, every path clean with
// forward slashes, every size in bytes and every time in milliseconds. Lists keep their
// order. Nothing in it is nil.
type Wish struct {
	// Schema is [SchemaV1].
	Schema string `json:"schema"`
	// Name is for people, and part of the names of runs.
	Name string `json:"name"`
	// GateCommands are what is run, in this order. A wish without any can be sealed; it
	// is refused when it is carried out (RT-10).
	GateCommands []Command `json:"gate_commands"`
	// IOBoundary is the workspace, relative to the folder of the wish; "." is that folder.
	IOBoundary string `json:"io_boundary"`
	// Offline is true if the gates reach nothing. Network is what they may reach; its
	// level is "offline" if Offline is true.
	Offline bool            `json:"offline"`
	Network evidence.Egress `json:"network"`
	// Image is a catalog name, a reference or an ID; empty is the default image.
	Image string `json:"image"`
	// Python is the version that is pinned, such as "3.11" or "3.11.2"; empty pins none.
	Python string `json:"python"`
	// Env is added to the environment of every gate; see policy.CheckEnv.
	Env map[string]string `json:"env"`
	// Limits bound each gate. What is 0 is left to the policy of the machine.
	Limits evidence.Caps `json:"limits"`
	// ArtifactPaths are patterns of files below the boundary that are kept; see [Match].
	ArtifactPaths []string `json:"artifact_paths"`
	// ProtectedPaths are hidden and must not be touched, ReadOnlyPaths must not be
	// changed, and Exclude is not copied. All are below the boundary.
	ProtectedPaths []string `json:"protected_paths"`
	ReadOnlyPaths  []string `json:"read_only_paths"`
	Exclude        []string `json:"exclude"`
	// Toolchain are read-only folders of the host that gates find below /host.
	Toolchain []Tool `json:"toolchain"`
	// ClaimGrade demands a pinned toolchain, Strict a clean tree and full observation.
	ClaimGrade bool `json:"claim_grade"`
	Strict     bool `json:"strict"`
	// AllowUnobserved accepts that attempts at the network and at protected paths are
	// known from error messages only, as where the engine is on another machine.
	AllowUnobserved bool `json:"allow_unobserved"`
	// Normalize are further rules for logs, AllowSuspects patterns (RE2) of what the
	// detector of nondeterminism passes over.
	Normalize     []evidence.Rule `json:"normalize"`
	AllowSuspects []string        `json:"allow_suspects"`
}

// Command is one gate.
type Command struct {
	// Cmd is split by [Words]; no shell is involved.
	Cmd string `json:"cmd"`
	// ExpectExit is the exit code that passes.
	ExpectExit int                   `json:"expect_exit"`
	Kind       evidence.GateKind     `json:"kind"`
	Report     evidence.ReportFormat `json:"report"`
	// ReportPath is where a JUnit XML file is left, relative to the boundary or below
	// /work/final; empty for other formats.
	ReportPath string `json:"report_path"`
	// TimeoutMS is the time limit of this command in milliseconds; 0 is that of the wish.
	TimeoutMS int64 `json:"timeout_ms"`
	// Env is added to that of the wish.
	Env map[string]string `json:"env"`
}

// Tool is a folder of the host, an absolute path, and where gates find it.
type Tool struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// FromCommand is the wish for one command and the defaults, as `gate run -- CMD…` has
// it. The words reach the program unchanged.
func FromCommand(argv []string) (Wish, error) {
	cmd, err := join(argv)
	if err != nil {
		return Wish{}, err
	}
	w := normal(document{Name: "command", GateCommands: []command{{Cmd: cmd}}})
	return w, checked(w, "command line", nil)
}
