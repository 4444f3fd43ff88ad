package contract

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/result"
)

// OutcomeSchemaV1 names the wire form of [Outcome].
const OutcomeSchemaV1 = "evalbox/outcome/v1"

// Statuses of an outcome beside those of a run; see [result.Status].
const (
	// StatusRefused is a contract that breaks a rule.
	StatusRefused = "refused"
	// StatusPlanned is a contract that would be executed; see [Harness.Plan].
	StatusPlanned = "planned"
	// StatusFailed is an execution that did not begin because we failed: the engine cannot
	// be reached, or the image is missing.
	StatusFailed = "failed"
	// StatusAbandoned is an execution whose controller ended before the program did.
	StatusAbandoned = "abandoned"
)

// Outcome is the account of a contract. A refused contract has Started false and no exit code
// (resolution 15).
type Outcome struct {
	// Schema is always [OutcomeSchemaV1].
	Schema      string `json:"schema"`
	ExecutionID string `json:"execution_id"`
	ToolID      string `json:"tool_id"`
	AdapterID   string `json:"adapter_id"`
	// ContractSHA256 is [Contract.SHA256] of the contract as it was read. Approvals are
	// bound to it.
	ContractSHA256 string `json:"contract_sha256"`

	// Started says that the program ran.
	Started bool `json:"started"`
	// Success says that the program ended with the expected exit code, and that all files
	// of the contract were written and are on the host. Further files do not matter.
	Success bool `json:"success"`
	// Verdict says the same in the vocabulary of all harnesses. It is inconclusive for an execution
	// that could not begin or was disturbed, and for a plan.
	Verdict trial.Verdict `json:"verdict"`
	Status  string        `json:"status"`
	// Fault is the [result.Fault] of the run; empty if nothing ran.
	Fault string `json:"fault"`
	// ExitCode is 128+n for signal n and 143 after the time limit (CX-06); 126 and 127
	// with Started false for a command that cannot be executed or is not in the image. It is
	// nil if there is none: a refused contract never has one.
	ExitCode *int `json:"exit_code"`
	Signal   int  `json:"signal"`
	TimedOut bool `json:"timed_out"`
	// Exit is the row of the table of exit codes, which is about the exit code alone; nil without
	// one. Whether the contract was met is Success.
	Exit *result.ExitMeaning `json:"exit"`
	// Error is one sentence on why Success is false; empty otherwise.
	Error string `json:"error"`
	// Violations are all broken rules, in the order of the checks.
	Violations []Violation `json:"violations"`
	// Stripped are the variables that the program did not get (IV-04).
	Stripped []Violation `json:"stripped"`
	// Differences compare the program with the expectations of the contract.
	Differences []Difference `json:"differences"`

	// Call is the call of an adapter; nil for a contract without one.
	Call *Call `json:"call"`
	// Executed is nil if no program was run.
	Executed *Executed `json:"executed"`
	// Approval is nil if the contract needed none.
	Approval *Approval `json:"approval"`

	// Stdout and Stderr are the captured text, StdoutBytes and StderrBytes the length of the
	// whole streams.
	Stdout      string `json:"stdout"`
	Stderr      string `json:"stderr"`
	StdoutBytes int64  `json:"stdout_bytes"`
	StderrBytes int64  `json:"stderr_bytes"`
	// Truncated says that one of the streams is longer than its captured text.
	Truncated bool `json:"truncated"`
	// OutputFiles are the written files, sorted by path.
	OutputFiles []OutputFile `json:"output_files"`
	Artifacts   []Artifact   `json:"artifacts"`
	// Folders are the directories of the host that the program could change.
	Folders []Folder `json:"folders"`
	// Network is the traffic through the proxy of the run; nil for an offline one.
	Network *result.Network `json:"network"`
	// DurationMS is the program's wall-clock time in milliseconds.
	DurationMS int64 `json:"duration_ms"`

	// Checklist has the points of CK-01 to CK-03.
	Checklist []CheckPoint `json:"checklist"`
	// Evidence is the record of the execution; empty if nothing ran.
	Evidence Evidence `json:"evidence"`
	// Unenforced are limits of the contract that this host did not enforce (resolution 50).
	Unenforced []string `json:"unenforced"`
	Warnings   []string `json:"warnings"`
	Metadata   Metadata `json:"metadata"`
}

// Executed is a contract as it was executed.
type Executed struct {
	// Command is the whole command line in the container.
	Command []string `json:"command"`
	// Environment has sorted NAME=value pairs, without the variables of the image (PATH
	// above all) and of the container (HOSTNAME).
	Environment []string `json:"environment"`
	// WorkingDirectory is the directory in the container.
	WorkingDirectory string `json:"working_directory"`
	StdinBytes       int64  `json:"stdin_bytes"`
	StdinSHA256      string `json:"stdin_sha256"`
	// InputFiles are the declared inputs.
	InputFiles []trial.File `json:"input_files"`
	// Image is the ID of the image; Locked says that it is the locked one.
	Image  string `json:"image"`
	Locked bool   `json:"locked"`

	// The limits as enforced. PIDs bounds the processes and threads of the program.
	Profile   string `json:"profile"`
	TimeoutMS int64  `json:"timeout_ms"`
	MemoryMB  int64  `json:"memory_mb"`
	CPUCores  int64  `json:"cpu_cores"`
	PIDs      int64  `json:"pids"`
	AllowFork bool   `json:"allow_fork"`

	FilesystemLevel string  `json:"filesystem_level"`
	Mounts          []Mount `json:"mounts"`
	NetworkLevel    string  `json:"network_level"`
	// NetworkAllow and NetworkDeny are the lists of the contract.
	NetworkAllow []string `json:"network_allow"`
	NetworkDeny  []string `json:"network_deny"`
}

// Mount is a directory or file of the host in the container.
type Mount struct {
	// Source is the host path; empty for a hidden one.
	Source string `json:"source"`
	Target string `json:"target"`
	// Mode is ro, rw or hidden.
	Mode string `json:"mode"`
}

// Difference is one unmet expectation.
type Difference struct {
	// What is stdout, stderr, exit_code, output_file or artifact.
	What string `json:"what"`
	// Path is the file, as the contract has it, else relative to the root or in the
	// container; empty otherwise.
	Path string `json:"path"`
	// Problem is differs, missing, extra, too_large, not_a_file or not_applied: a file that
	// was written and did not reach the host.
	Problem string `json:"problem"`
	// Expected and Got are shortened texts.
	Expected string `json:"expected"`
	Got      string `json:"got"`
}

// Problems of a [Difference].
const (
	differs    = "differs"
	missing    = "missing"
	extra      = "extra"
	tooLarge   = "too_large"
	notAFile   = "not_a_file"
	notApplied = "not_applied"
)

// problemTexts are the problems for people, of the expected and the actual text.
var problemTexts = map[string]string{
	differs:    "differs: expected %[1]s, got %[2]s",
	missing:    "is missing: %[2]s",
	extra:      "is not named in the contract",
	tooLarge:   "is too large: %[2]s; %[1]s",
	notAFile:   "is not a regular file: %[2]s",
	notApplied: "was written, but not carried over: %[2]s",
}

// String is the difference in one line. Texts of a program or a contract are quoted.
func (d Difference) String() string {
	name := strings.ReplaceAll(d.What, "_", " ")
	if d.Path != "" {
		name += " " + quoted(d.Path)
	}
	return name + " " + strings.NewReplacer("%[1]s", d.Expected, "%[2]s", d.Got).Replace(problemTexts[d.Problem])
}

// OutputFile is one written file.
type OutputFile struct {
	trial.File
	// Declared says that the contract names it.
	Declared bool `json:"declared"`
	// Retention is [RetainSession] or [RetainEvidence] (CX-05).
	Retention string `json:"retention"`
}

// Folder is a directory of the host that the program had a copy of.
type Folder struct {
	// Source is the host path, Target the one in the container.
	Source string `json:"source"`
	Target string `json:"target"`
	// Written is the number of changes that reached the host.
	Written int `json:"written"`
	// NotWritten are the other changes, each with the reason; their files are in the record.
	// The list is cut at a hundred.
	NotWritten []string `json:"not_written"`
}

// Artifact is one artifact (CI-01).
type Artifact struct {
	MIMEType string `json:"mime_type"`
	// Data is the text of a small text artifact, else empty: Metadata says where the bytes
	// are.
	Data     string            `json:"data"`
	Metadata map[string]string `json:"metadata"`
}

// CheckPoint is one point of the checklists.
type CheckPoint struct {
	// List is CK-01, CK-02 or CK-03.
	List string `json:"list"`
	// Point names it, such as limits_set.
	Point string `json:"point"`
	// State is [CheckDone], [CheckFailed] or [CheckNotReached].
	State string `json:"state"`
	// Detail is for people.
	Detail string `json:"detail"`
}

// Evidence names the record of an execution.
type Evidence struct {
	RunID string `json:"run_id"`
	// Path is the record's directory.
	Path string `json:"path"`
	// Retention is [RetainSession] or [RetainEvidence].
	Retention string `json:"retention"`
}

// Encode returns the wire form of an outcome, with a newline at its end.
func (o Outcome) Encode() ([]byte, error) {
	text, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the outcome of %s: %w", o.ExecutionID, err)
	}
	return append(text, '\n'), nil
}

// failures are the differences that fail an execution. A file that the contract does not name
// is only listed, because tools leave caches.
func (o Outcome) failures() []Difference {
	return slices.DeleteFunc(slices.Clone(o.Differences), func(d Difference) bool { return d.Problem == extra })
}

// Err returns nil for a success and a plan, a [*RefusedError] for a refused contract, and a
// [*FailedError] for everything else.
func (o Outcome) Err() error {
	switch {
	case o.Success || o.Status == StatusPlanned:
		return nil
	case o.Status == StatusRefused:
		return &RefusedError{"contract " + o.ExecutionID, o.Violations}
	}
	return &FailedError{o}
}

// A FailedError is an execution that did not give what its contract wants.
type FailedError struct{ Outcome Outcome }

func (e *FailedError) Error() string { return e.Outcome.Error }

// fillLists replaces the nil lists of a struct, and of the structs in it, by empty ones, so
// that they are lists in JSON.
func fillLists(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			fillLists(v.Elem())
		}
	case reflect.Slice:
		if v.IsNil() && v.CanSet() {
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		}
		for i := range v.Len() {
			fillLists(v.Index(i))
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			fillLists(field)
		}
	}
}
