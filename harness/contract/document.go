package contract

// SchemaV1 names the wire form of [Contract]. A breaking change gets a new name.
const SchemaV1 = "evalbox/contract/v1"

// Contract is what a program is run with, what it may do and what it must give
// (CX-01). Pointers tell what the contract says from what it leaves to the
// profile of limits. Its JSON has what the contract says, and is a contract itself.
type Contract struct {
	// Schema is [SchemaV1]; empty in a document means that.
	Schema string `json:"schema,omitempty"`
	// ExecutionID identifies the execution; the default is a random UUID (CI-01).
	ExecutionID string `json:"execution_id,omitempty"`
	// ToolID is the tool of the registry that is run (IV-01).
	ToolID string `json:"tool_id,omitempty"`
	// AdapterID is the adapter that carries the call out; empty is none.
	AdapterID string `json:"adapter_id,omitempty"`

	Inputs      Inputs      `json:"inputs"`
	Sandbox     Sandbox     `json:"sandbox,omitzero"`
	Outputs     Outputs     `json:"outputs,omitzero"`
	Determinism Determinism `json:"determinism,omitzero"`
	Metadata    Metadata    `json:"metadata,omitzero"`
}

// Inputs are what the program gets.
type Inputs struct {
	// Command is the first word, looked up in the image's PATH. There is no
	// shell (resolution 8).
	Command string `json:"command"`
	// Arguments are passed on as they are.
	Arguments []string `json:"arguments,omitempty"`
	// Environment is what the program is given beside the fixed variables; names
	// that are not approved are stripped and reported (IV-04).
	Environment map[string]string `json:"environment,omitempty"`
	// WorkingDirectory is a folder of the root; empty, or ".", is the root itself.
	WorkingDirectory string `json:"working_directory,omitempty"`
	// InputFiles are files that must be readable; relative paths are of the
	// working directory. They are hashed and counted (IV-05).
	InputFiles []string `json:"input_files,omitempty"`
	// Stdin is what the program reads; nil is an empty stdin.
	Stdin *string `json:"stdin,omitempty"`
}

// Sandbox is what the program may do (CX-02 to CX-04).
type Sandbox struct {
	// Profile names the limits: "contract" (the default), "evaluation" or one of
	// a profile file.
	Profile string `json:"profile,omitempty"`
	// TimeoutMS is the wall-clock limit in milliseconds.
	TimeoutMS *int64 `json:"timeout_ms,omitempty"`
	// MemoryMB is the memory limit in MiB.
	MemoryMB *int64 `json:"memory_mb,omitempty"`
	// CPUCores is the number of processors.
	CPUCores *int64 `json:"cpu_cores,omitempty"`

	Filesystem Filesystem `json:"filesystem,omitzero"`
	Network    Network    `json:"network,omitzero"`
	Processes  Processes  `json:"processes,omitzero"`
}

// Filesystem is what the program may read and write. Paths are of the host:
// relative ones lie below the root.
type Filesystem struct {
	// Level is one of minimal (default), standard, extended and elevated (CX-03).
	Level string `json:"level,omitempty"`
	// Read and Write are opened beside what the level opens; Deny is hidden
	// even inside of them.
	Read  []string `json:"read,omitempty"`
	Write []string `json:"write,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}

// Network is which hosts the program may reach, through a proxy of ours.
type Network struct {
	// Level is one of offline (default), registry, api and open (CX-04).
	Level string `json:"level,omitempty"`
	// Enabled false is offline whatever the level; true without a level is api.
	Enabled *bool `json:"enabled,omitempty"`
	// Allow and Deny are hosts: "name", "*.suffix", an address or a network in
	// CIDR notation, each with an optional ":port". Deny wins.
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}

// Processes bounds what the program starts.
type Processes struct {
	// MaxChildren is the number of processes and threads beside the program itself.
	MaxChildren *int64 `json:"max_children,omitempty"`
	// AllowFork false forbids further processes, not threads.
	AllowFork *bool `json:"allow_fork,omitempty"`
}

// Outputs are what the program must give.
type Outputs struct {
	Stdout Stream `json:"stdout,omitzero"`
	Stderr Stream `json:"stderr,omitzero"`
	// ExitCode is the expected exit code; nil is 0.
	ExitCode *int `json:"exit_code,omitempty"`
	// OutputFiles are files that the program must write, below what it may write.
	OutputFiles []string `json:"output_files,omitempty"`
	// Artifacts are files with a meaning.
	Artifacts []ArtifactSpec `json:"artifacts,omitempty"`
	// Capture bounds what is kept; nil fields are the limits of CX-05.
	Capture Capture `json:"capture,omitzero"`
}

// Stream is what a stream must hold. In a document it is the word "captured"
// (nothing is expected) or a mapping with one of expected and pattern.
type Stream struct {
	// Expected is the whole text; line ends at the very end are not compared.
	Expected *string `json:"expected,omitempty"`
	// Pattern is a regular expression (RE2) that matches somewhere.
	Pattern *string `json:"pattern,omitempty"`
}

// ArtifactSpec is one artifact that the program must write.
type ArtifactSpec struct {
	// Path is where it lies, as in [Outputs.OutputFiles].
	Path string `json:"path"`
	// MIMEType is what its bytes are; the default is application/octet-stream.
	MIMEType string `json:"mime_type,omitempty"`
}

// Capture bounds what is kept of each kind of output, in bytes (CX-05).
type Capture struct {
	StdoutBytes      *int64 `json:"stdout_bytes,omitempty"`
	StderrBytes      *int64 `json:"stderr_bytes,omitempty"`
	OutputFilesBytes *int64 `json:"output_files_bytes,omitempty"`
	ArtifactsBytes   *int64 `json:"artifacts_bytes,omitempty"`
}

// Determinism fixes what makes two executions differ (DT-01). The order of the
// environment, the locale (C.UTF-8) and the time zone (UTC) are always fixed.
type Determinism struct {
	// Seed reaches the program as SEED and PYTHONHASHSEED; nil leaves SEED unset.
	Seed *int64 `json:"seed,omitempty"`
	// Clock is the time (RFC 3339) that the program sees at its start; empty is
	// the real one. It needs faketime in the image, and is refused without it.
	Clock string `json:"clock,omitempty"`
}

// Metadata says who asked for the execution, and why.
type Metadata struct {
	RequestedBy string `json:"requested_by,omitempty"`
	// RequestedAt is a time of ISO 8601 as RFC 3339 has it.
	RequestedAt string `json:"requested_at,omitempty"`
	Purpose     string `json:"purpose,omitempty"`
	// EvidenceRef names evidence that the caller keeps. The outcome names the
	// record of the execution beside it.
	EvidenceRef string `json:"evidence_ref,omitempty"`
}
