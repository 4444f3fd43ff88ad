package contract

import "github.com/evalbox/evalbox/result"

// OutcomeSchemaV1 names the wire form of [Outcome].
const OutcomeSchemaV1 = "evalbox/outcome/v1"

// Outcome is what became of a contract. A contract that was refused has Started
// false and no exit code (resolution 15).
type Outcome struct {
	// Schema is always [OutcomeSchemaV1].
	Schema      string `json:"schema"`
	ExecutionID string `json:"execution_id"`
	ToolID      string `json:"tool_id"`
	AdapterID   string `json:"adapter_id"`
	// ContractSHA256 is the hash of the contract as it was read, defaults filled
	// in; approvals are bound to it.
	ContractSHA256 string `json:"contract_sha256"`

	// Started says that the program ran.
	Started bool `json:"started"`
	// Success says that the program ended with the expected code and gave all
	// that the contract wants, and that it is on the host. Files that it does not name are no failure.
	Success bool `json:"success"`
	// Status is "refused", "planned" for a dry run, or that of the run, see
	// [result.Status].
	Status string `json:"status"`
	// ExitCode is 128+n for signal n and 143 after the time limit (CX-06); 126 and 127
	// with Started false for a command that cannot be executed or is not in the image.
	// It is nil when there is none: a refused contract never has one.
	ExitCode *int `json:"exit_code"`
	Signal   int  `json:"signal"`
	TimedOut bool `json:"timed_out"`
	// Exit is the row of the exit table, with what to do; nil without an exit code.
	Exit *result.ExitMeaning `json:"exit"`
	// Error is one sentence on why Success is false; empty otherwise.
	Error string `json:"error"`
	// Violations are all rules that the contract breaks, in the order of the checks.
	Violations []Violation `json:"violations"`
	// Stripped are the environment variables that the program was not given (IV-04).
	Stripped []Violation `json:"stripped"`
	// Differences are what the program gave otherwise than the contract expects.
	Differences []Difference `json:"differences"`

	// Executed is what was really run; nil when nothing was.
	Executed *Executed `json:"executed"`
	// Approval is what was approved, by whom; nil when nothing needed it.
	Approval *Approval `json:"approval"`

	// Stdout and Stderr are what was captured, as text.
	Stdout      string `json:"stdout"`
	Stderr      string `json:"stderr"`
	StdoutBytes int64  `json:"stdout_bytes"`
	StderrBytes int64  `json:"stderr_bytes"`
	// Truncated says that one of the streams is longer than what was captured.
	Truncated bool `json:"truncated"`
	// OutputFiles are the files that the program wrote, sorted by path.
	OutputFiles []OutputFile `json:"output_files"`
	Artifacts   []Artifact   `json:"artifacts"`
	// Folders are those of the host that the program could change, and what became of
	// its changes.
	Folders []Folder `json:"folders"`
	// Network is what passed through the proxy of the run; nil for an offline one.
	Network *result.Network `json:"network"`
	// DurationMS is the program's wall-clock time in milliseconds.
	DurationMS int64 `json:"duration_ms"`

	// Checklist is what was done for each point of CK-01 to CK-03.
	Checklist []CheckPoint `json:"checklist"`
	// Evidence is where the record of the execution lies; empty when nothing ran.
	Evidence Evidence `json:"evidence"`
	// Unenforced are limits of the contract that this host does not enforce
	// (resolution 50).
	Unenforced []string `json:"unenforced"`
	Warnings   []string `json:"warnings"`
	Metadata   Metadata `json:"metadata"`
}

// Violation is one rule that one field of a contract breaks.
type Violation struct {
	// Code is IV-01 to IV-05 for input checks, CX-02 to CX-05 for limits, levels and
	// outputs, DT-01 for determinism, CK-01 for adapters and approvals, and CX-01 for the
	// document itself and its metadata.
	Code string `json:"code"`
	// Line is the line of the field in the document; 0 if that is not known.
	Line int `json:"line"`
	// Field is the path of the field, such as inputs.arguments[2].
	Field string `json:"field"`
	// Value is what stands there, shortened.
	Value string `json:"value"`
	// Rule is the rule that it breaks.
	Rule string `json:"rule"`
}

// Difference is one thing that came out otherwise than expected.
type Difference struct {
	// What is one of stdout, stderr, exit_code, output_file and artifact.
	What string `json:"what"`
	// Path is the file, as the contract has it, else relative to the root or inside
	// the container; empty otherwise.
	Path string `json:"path"`
	// Problem is one of differs, missing, extra, too_large, not_a_file and not_applied: a
	// file that was written and did not reach the host.
	Problem string `json:"problem"`
	// Expected and Got are shortened texts.
	Expected string `json:"expected"`
	Got      string `json:"got"`
}

// OutputFile is one file that the program wrote.
type OutputFile struct {
	Path      string `json:"path"`
	SizeBytes int64  `json:"size_bytes"`
	SHA256    string `json:"sha256"`
	// Declared says that the contract names it.
	Declared bool `json:"declared"`
	// Retention is "session" or "evidence" (CX-05).
	Retention string `json:"retention"`
}

// Folder is a folder of the host that a program had a copy of.
type Folder struct {
	// Source is the host path, Target the one inside the container.
	Source string `json:"source"`
	Target string `json:"target"`
	// Written is the number of changes that were carried over to the host.
	Written int `json:"written"`
	// NotWritten are changes that were not, each with the reason; their files are in
	// the record. The list is cut at a hundred.
	NotWritten []string `json:"not_written"`
}

// Artifact is one artifact (CI-01).
type Artifact struct {
	MIMEType string `json:"mime_type"`
	// Data is the text of a small text artifact, else empty: Metadata says where
	// its bytes are.
	Data     string            `json:"data"`
	Metadata map[string]string `json:"metadata"`
}

// CheckPoint is one point of the checklists.
type CheckPoint struct {
	// List is CK-01, CK-02 or CK-03.
	List string `json:"list"`
	// Point names it, such as limits_set.
	Point string `json:"point"`
	// State is one of done, failed and not_reached.
	State string `json:"state"`
	// Detail is what was done, with figures.
	Detail string `json:"detail"`
}

// Evidence is where the record of an execution lies, and how long it is kept.
type Evidence struct {
	RunID string `json:"run_id"`
	// Path is the record's folder.
	Path string `json:"path"`
	// Retention is "session" or "evidence".
	Retention string `json:"retention"`
}
