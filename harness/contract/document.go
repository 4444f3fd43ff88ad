package contract

import (
	"crypto/sha256"
	_ "embed" // for the schemas
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"gopkg.in/yaml.v3"

	"github.com/evalbox/evalbox/internal/strict"
	"github.com/evalbox/evalbox/policy"
)

// SchemaV1 names the wire form of [Contract]. A breaking change gets a new name.
const SchemaV1 = "evalbox/contract/v1"

// ContractSchemaJSON and OutcomeSchemaJSON are the JSON Schemas (draft 2020-12) of
// [Contract] and [Outcome]. A schema describes the form only: [Rules] check more. Do not
// change them at run time.
var (
	//go:embed contract.schema.json
	ContractSchemaJSON []byte
	//go:embed outcome.schema.json
	OutcomeSchemaJSON []byte
)

// Contract says what a program is run with, what it may do and what it must give (CX-01).
// A nil pointer leaves a value to the profile of limits. The JSON of a contract is a
// contract again.
type Contract struct {
	// Schema is [SchemaV1], or empty.
	Schema string `json:"schema,omitempty"`
	// ExecutionID identifies the execution; the default is a random UUID (CI-01).
	ExecutionID string `json:"execution_id,omitempty"`
	// ToolID is the tool of the registry that is run (IV-01).
	ToolID string `json:"tool_id,omitempty"`
	// AdapterID is the adapter that carries out the call. Without it and without a command, it is
	// the first active adapter of the tool (CI-05).
	AdapterID string `json:"adapter_id,omitempty"`

	Inputs      Inputs      `json:"inputs"`
	Sandbox     Sandbox     `json:"sandbox,omitzero"`
	Outputs     Outputs     `json:"outputs,omitzero"`
	Determinism Determinism `json:"determinism,omitzero"`
	Metadata    Metadata    `json:"metadata,omitzero"`
}

// Inputs are given to the program.
type Inputs struct {
	// Command is the first word, looked up in the image's PATH. There is no shell
	// (resolution 8). An adapter has a command of its own: then it is empty or the same.
	Command string `json:"command,omitempty"`
	// Operation is the operation of the adapter, and Parameters are its parameters (resolution
	// 20). Both are for contracts with an adapter.
	Operation  string         `json:"operation,omitempty"`
	Parameters map[string]any `json:"parameters,omitempty"`
	// Arguments are passed on unchanged.
	Arguments []string `json:"arguments,omitempty"`
	// Environment is added to the fixed variables. Variables that are not approved are
	// stripped and reported (IV-04).
	Environment map[string]string `json:"environment,omitempty"`
	// WorkingDirectory is a directory of the root; empty and "." are the root itself.
	WorkingDirectory string `json:"working_directory,omitempty"`
	// InputFiles must be readable; relative paths start at the working directory. They are
	// hashed and counted (IV-05).
	InputFiles []string `json:"input_files,omitempty"`
	// Stdin is the text that the program reads; nil is an empty stdin.
	Stdin *string `json:"stdin,omitempty"`
}

// Sandbox says what the program may do (CX-02 to CX-04).
type Sandbox struct {
	// Profile names the limits: "contract" (the default), "evaluation" or one of a profile
	// file.
	Profile string `json:"profile,omitempty"`
	// TimeoutMS is the wall-clock limit in milliseconds, MemoryMB the memory in MiB, and
	// CPUCores the number of processors.
	TimeoutMS *int64 `json:"timeout_ms,omitempty"`
	MemoryMB  *int64 `json:"memory_mb,omitempty"`
	CPUCores  *int64 `json:"cpu_cores,omitempty"`

	Filesystem Filesystem `json:"filesystem,omitzero"`
	Network    Network    `json:"network,omitzero"`
	Processes  Processes  `json:"processes,omitzero"`
}

// Filesystem says what the program may read and write. Paths are those of the host;
// relative ones start at the root.
type Filesystem struct {
	// Level is minimal (the default), standard, extended or elevated (CX-03).
	Level string `json:"level,omitempty"`
	// Read and Write are opened in addition to what the level opens. Deny is hidden, also
	// inside of them.
	Read  []string `json:"read,omitempty"`
	Write []string `json:"write,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}

// Network names the hosts that the program may reach, through the proxy of its run.
type Network struct {
	// Level is offline (the default), registry, api or open (CX-04).
	Level string `json:"level,omitempty"`
	// Enabled false means offline at any level; true without a level means api.
	Enabled *bool `json:"enabled,omitempty"`
	// Allow and Deny are hosts: "name", "*.suffix", an address or a network in CIDR
	// notation, each with an optional ":port". Deny wins.
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}

// Processes bounds the processes of the program.
type Processes struct {
	// MaxChildren is the number of processes and threads beside the program itself.
	MaxChildren *int64 `json:"max_children,omitempty"`
	// AllowFork false forbids further processes, but not threads.
	AllowFork *bool `json:"allow_fork,omitempty"`
}

// Outputs says what the program must give.
type Outputs struct {
	Stdout Stream `json:"stdout,omitzero"`
	Stderr Stream `json:"stderr,omitzero"`
	// ExitCode is the expected exit code; nil is 0.
	ExitCode *int `json:"exit_code,omitempty"`
	// OutputFiles must be written, below a directory that the program may write.
	OutputFiles []string       `json:"output_files,omitempty"`
	Artifacts   []ArtifactSpec `json:"artifacts,omitempty"`
	// Capture bounds what is kept; the defaults are those of CX-05.
	Capture Capture `json:"capture,omitzero"`
}

// Stream is the expected content of a stream. In a document it is the word "captured", which
// expects nothing, or a mapping with one of expected and pattern.
type Stream struct {
	// Expected is the whole text, except for line ends at the very end.
	Expected *string `json:"expected,omitempty"`
	// Pattern is a regular expression (RE2) that matches somewhere.
	Pattern *string `json:"pattern,omitempty"`
}

// SetWord reads "captured".
func (s *Stream) SetWord(word string) error {
	switch word {
	case "captured":
		*s = Stream{}
		return nil
	case "expected":
		return errors.New("must say what is expected: {expected: TEXT} or {pattern: REGEXP}")
	}
	return errors.New(`must be captured, {expected: TEXT} or {pattern: REGEXP}`)
}

// ArtifactSpec is a file with a type that the program must write. In a document it may be a
// path alone.
type ArtifactSpec struct {
	// Path is as in [Outputs.OutputFiles].
	Path string `json:"path"`
	// MIMEType is the type of its bytes; the default is application/octet-stream.
	MIMEType string `json:"mime_type,omitempty"`
}

// SetWord reads a path.
func (a *ArtifactSpec) SetWord(word string) error {
	*a = ArtifactSpec{Path: word}
	return nil
}

// Capture bounds what is kept of each kind of output, in bytes (CX-05).
type Capture struct {
	StdoutBytes      *int64 `json:"stdout_bytes,omitempty"`
	StderrBytes      *int64 `json:"stderr_bytes,omitempty"`
	OutputFilesBytes *int64 `json:"output_files_bytes,omitempty"`
	ArtifactsBytes   *int64 `json:"artifacts_bytes,omitempty"`
}

// Determinism fixes what differs between two executions (DT-01). The order of the
// environment, the locale (C.UTF-8) and the time zone (UTC) are always fixed.
type Determinism struct {
	// Seed is passed on as SEED and PYTHONHASHSEED; nil leaves SEED unset.
	Seed *int64 `json:"seed,omitempty"`
	// Clock is the time (RFC 3339) that the program sees at its start; empty is the real
	// one. It needs libfaketime in the image, and is refused without it.
	Clock string `json:"clock,omitempty"`
}

// Metadata says who asked for the execution, and why.
type Metadata struct {
	RequestedBy string `json:"requested_by,omitempty"`
	// RequestedAt is a time of ISO 8601.
	RequestedAt string `json:"requested_at,omitempty"`
	Purpose     string `json:"purpose,omitempty"`
	// EvidenceRef names evidence of the caller, such as a ticket.
	EvidenceRef string `json:"evidence_ref,omitempty"`
}

// MaxDocument bounds a document, in bytes. A stdin of the permitted size fits, unless most
// of it must be escaped.
const MaxDocument = 4 << 20

// ReadDocument reads a document from a file: at most one byte more than [MaxDocument], so
// that the parser refuses a longer one.
func ReadDocument(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, MaxDocument+1))
}

// Load reads a contract from a file. An error that is not a [*RefusedError] means that the file
// cannot be read.
func Load(path string) (Contract, error) {
	text, err := ReadDocument(path)
	if err != nil {
		return Contract{}, err
	}
	return Parse(text, path)
}

// Parse reads a contract in YAML or JSON. Source is its name in messages. An error of type
// [*RefusedError] lists every problem with the form of the document; the contract then has
// the values that could be read.
func Parse(text []byte, source string) (Contract, error) {
	c, _, violations := parse(text)
	if len(violations) > 0 {
		return c, &RefusedError{source, violations}
	}
	return c, nil
}

// parse also returns the lines of the fields.
func parse(text []byte) (c Contract, lines map[string]int, violations []Violation) {
	lines = map[string]int{}
	violations = decode(text, &c, strict.Options{
		Schema: SchemaV1, SchemaOptional: true, Lines: lines, Nullable: []string{"inputs.stdin", "determinism.seed"},
	})
	return c, lines, violations
}

// decode reads a document of this package.
func decode(text []byte, into any, o strict.Options) (violations []Violation) {
	if len(text) > MaxDocument {
		return []Violation{{Code: "CX-01", Rule: fmt.Sprintf("has more than %v", policy.Size(MaxDocument))}}
	}
	o.Tag = "json"
	for _, p := range strict.Decode(text, into, o) {
		violations = append(violations, Violation{Code: "CX-01", Line: p.Line, Field: p.Path, Value: p.Value, Rule: p.Rule})
	}
	return violations
}

// YAML returns the contract as a document.
func (c Contract) YAML() ([]byte, error) { return encodeYAML(c) }

// encodeYAML writes a value as YAML, with its fields in the order of the type.
func encodeYAML(value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	// JSON is YAML, and nodes keep the order of their keys.
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil {
		return nil, err
	}
	blockStyle(&node)
	return yaml.Marshal(&node)
}

// blockStyle removes the style of JSON.
func blockStyle(node *yaml.Node) {
	node.Style = 0
	for _, part := range node.Content {
		blockStyle(part)
	}
}

// DefaultProfile is the profile of a contract that names none.
const DefaultProfile = "contract"

// WithDefaults returns a copy of the contract with every open value filled in: the limits of
// its profile, levels, the expected exit code. Limits of an unknown profile stay open.
func (c Contract) WithDefaults(profiles policy.Profiles) Contract {
	fill(&c.Schema, SchemaV1)
	fill(&c.Inputs.WorkingDirectory, ".")
	fill(&c.Sandbox.Profile, DefaultProfile)
	if p, ok := profiles[c.Sandbox.Profile]; ok {
		for _, limit := range c.limits(p) {
			if *limit.value == nil {
				*limit.value = new(limit.bounds.Default)
			}
		}
	}
	if c.Sandbox.Processes.AllowFork == nil {
		c.Sandbox.Processes.AllowFork = new(true)
	}
	fill(&c.Sandbox.Filesystem.Level, string(policy.Minimal))
	level := c.Sandbox.Network.effectiveLevel()
	c.Sandbox.Network.Level, c.Sandbox.Network.Enabled = string(level), new(level != policy.Offline)
	if c.Outputs.ExitCode == nil {
		c.Outputs.ExitCode = new(0)
	}
	c.Outputs.Artifacts = slices.Clone(c.Outputs.Artifacts)
	for i := range c.Outputs.Artifacts {
		fill(&c.Outputs.Artifacts[i].MIMEType, "application/octet-stream")
	}
	return c
}

func fill(field *string, value string) {
	if *field == "" {
		*field = value
	}
}

// limit is one number of a contract that a profile bounds.
type limit struct {
	code, field string
	value       **int64
	bounds      policy.Range
}

// limits are all bounded numbers of the contract, in the order of their checks.
func (c *Contract) limits(p policy.Profile) []limit {
	s, capture := &c.Sandbox, &c.Outputs.Capture
	return []limit{
		{"CX-02", "sandbox.timeout_ms", &s.TimeoutMS, p.TimeoutMS},
		{"CX-02", "sandbox.memory_mb", &s.MemoryMB, p.MemoryMB},
		{"CX-02", "sandbox.cpu_cores", &s.CPUCores, p.CPUCores},
		{"CX-02", "sandbox.processes.max_children", &s.Processes.MaxChildren, p.MaxChildren},
		{"CX-05", "outputs.capture.stdout_bytes", &capture.StdoutBytes, p.StdoutBytes},
		{"CX-05", "outputs.capture.stderr_bytes", &capture.StderrBytes, p.StderrBytes},
		{"CX-05", "outputs.capture.output_files_bytes", &capture.OutputFilesBytes, p.OutputFilesBytes},
		{"CX-05", "outputs.capture.artifacts_bytes", &capture.ArtifactsBytes, p.ArtifactsBytes},
	}
}

// effectiveLevel combines level and enabled. Nothing is opened that was not asked for.
func (n Network) effectiveLevel() policy.NetworkLevel {
	switch {
	case n.Enabled != nil && !*n.Enabled:
		return policy.Offline
	case n.Level != "":
		return policy.NetworkLevel(n.Level)
	case n.Enabled != nil:
		return policy.API
	}
	return policy.Offline
}

// SHA256 identifies what a contract does: it is the hash of its JSON with defaults filled in
// and without the execution ID. The form of the document does not change it, and it does not
// cover the content of the files that the contract names.
func (c Contract) SHA256(profiles policy.Profiles) string {
	c = c.WithDefaults(profiles)
	c.ExecutionID = ""
	text, err := json.Marshal(c) // fields in the order of the types, keys of maps sorted
	if err != nil {
		panic("contract: " + err.Error()) // plain data only: the rules check the parameters
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}
