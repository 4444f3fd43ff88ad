package invoke

import (
	"errors"
	"time"

	"github.com/evalbox/evalbox/policy"
)

// ResultSchemaV1 names the wire form of [Result].
const ResultSchemaV1 = "evalbox/invocation/v1"

// Result is one call of a tool, and the verification of its artifacts (M3-11).
type Result struct {
	// Schema is always [ResultSchemaV1].
	Schema string `json:"schema"`
	// Engine is always sandbox.
	Engine string `json:"engine"`
	// RunID names the record of the sandbox; empty if nothing ran.
	RunID string `json:"run_id"`
	// Command is the command that ran, with the paths that the tool got, and WorkDir the
	// directory in which it started.
	Command []string `json:"command"`
	WorkDir string   `json:"work_dir"`
	// Image is the ID of the image.
	Image string `json:"image"`

	// ManifestPath and TracePackPath are the artifacts in the output directory; empty
	// unless they are regular files that this run made.
	ManifestPath  string `json:"manifest_path"`
	TracePackPath string `json:"trace_pack_path"`

	// Stdout and Stderr are the output of the tool in UTF-8, with invalid bytes replaced. A
	// long stream is kept as its head, a line with the number of dropped bytes, and its
	// tail; then its Truncated is true. The Bytes count the whole output. Of a tool that
	// could not be started Stderr says why.
	Stdout          string `json:"stdout"`
	Stderr          string `json:"stderr"`
	StdoutBytes     int64  `json:"stdout_bytes"`
	StderrBytes     int64  `json:"stderr_bytes"`
	StdoutTruncated bool   `json:"stdout_truncated"`
	StderrTruncated bool   `json:"stderr_truncated"`
	// OutputComplete is false if bytes may have been lost before they reached us.
	OutputComplete bool `json:"output_complete"`

	// ExitCode is the tool's, 128+n if signal n ended it; nil if it was not started, if
	// the time limit ended it, and if its end was not seen.
	ExitCode *int `json:"exit_code"`
	// Signal is the number of the signal that ended the tool, 0 for none.
	Signal   int  `json:"signal"`
	TimedOut bool `json:"timed_out"`
	// DurationSeconds is the tool's wall-clock time.
	DurationSeconds float64 `json:"duration_seconds"`
	// TimeoutSeconds is the time limit that ended the tool; 0 if none did.
	TimeoutSeconds float64 `json:"timeout_seconds"`
	// CPUSeconds is the processor time of the run, and GPUs are its devices.
	CPUSeconds float64  `json:"cpu_seconds"`
	GPUs       []string `json:"gpus"`

	// NotWritten lists what the tool left and the output directory did not get, with the
	// reasons; about 100 entries at most.
	NotWritten []string `json:"not_written"`
	// Unenforced is always empty: every limit of a container holds.
	Unenforced []string `json:"unenforced"`
	// Warnings are for a careful reader. RUN stands for the run's ID in them.
	Warnings []string `json:"warnings"`

	// OK means that the call ended well and that its artifacts are right.
	OK bool `json:"ok"`
	// Reason and Error say why a call did not end well; both are empty if it did, also
	// with wrong artifacts.
	Reason Reason `json:"reason"`
	Error  string `json:"error"`
	// MissingArtifact is the path of the artifact that the tool did not leave; empty for other reasons.
	MissingArtifact string `json:"missing_artifact"`
	// Verification is nil unless the tool exited with 0 and its artifacts were looked at.
	Verification *Report `json:"verification"`

	// cause is an error behind Reason, for callers in Go.
	cause error
}

// VolatileFields are the JSON names of the fields of a [Result] that differ between two
// runs with the same input and a tool that behaves the same.
func VolatileFields() []string { return []string{"run_id", "duration_seconds", "cpu_seconds", "gpus"} }

// Reason says why a call did not end well.
type Reason string

// Reasons of a [Result].
const (
	// ReasonRefused: the input was refused, and nothing ran.
	ReasonRefused Reason = "refused"
	// ReasonNonzeroExit: the tool ended with a code other than 0, or by a signal.
	ReasonNonzeroExit Reason = "nonzero_exit"
	// ReasonCannotExecute: the program of the tool is there, and must not be executed.
	ReasonCannotExecute Reason = "cannot_execute"
	// ReasonNotFound: the program of the tool is not there.
	ReasonNotFound Reason = "not_found"
	// ReasonMissingArtifact: the tool ended with 0 but left no regular file of that name.
	ReasonMissingArtifact Reason = "missing_artifact"
	// ReasonTimeout: the time limit ended the tool, see [TimeoutError].
	ReasonTimeout Reason = "timeout"
	// ReasonLimit: another limit of the sandbox ended the tool, or cut its output files.
	ReasonLimit Reason = "limit"
	// ReasonCanceled: the caller ended the tool.
	ReasonCanceled Reason = "canceled"
	// ReasonDisturbed: the environment or an operator ended the tool, such as a disk that others
	// filled. The tool is not to blame.
	ReasonDisturbed Reason = "disturbed"
	// ReasonNotWritten: the files of the tool could not be written to the output directory.
	ReasonNotWritten Reason = "not_written"
	// ReasonEngine: the sandbox failed.
	ReasonEngine Reason = "engine"
	// ReasonUnverified: the call ended well, but its artifacts could not be looked at.
	ReasonUnverified Reason = "unverified"
)

// unstarted reports whether the tool could not be started, for a reason of its own.
func (r Reason) unstarted() bool { return r == ReasonCannotExecute || r == ReasonNotFound }

// ours reports whether a reason says nothing about the tool: we failed, or something else than
// the tool ended the call.
func (r Reason) ours() bool {
	switch r {
	case ReasonCanceled, ReasonDisturbed, ReasonNotWritten, ReasonEngine, ReasonUnverified:
		return true
	default:
		return false
	}
}

// Err is the result as an error; nil if it is OK. A refusal is the error of the refused
// value, such as a [*policy.FieldError]. Wrong artifacts are the [*ArtifactError]s of the
// verification, joined. Everything else is an [*InvocationError], for the time limit in
// a [*TimeoutError] (M3-03, M3-11, MI-03).
func (r Result) Err() error {
	switch {
	case r.OK:
		return nil
	case r.Reason == ReasonRefused && r.cause != nil:
		return r.cause
	case r.Reason == "" && r.Verification != nil:
		var errs []error
		for _, problem := range r.Verification.Problems {
			errs = append(errs, problem)
		}
		return errors.Join(errs...)
	}
	failed := InvocationError{r, r.MissingArtifact, r.cause}
	if r.Reason == ReasonTimeout {
		return &TimeoutError{failed, policy.Seconds(r.TimeoutSeconds)}
	}
	return &failed
}

// InvocationError is a call that did not end well, with everything that is known of it:
// its fields Reason, ExitCode, Stdout and Stderr are those of the result (M3-10, MI-03).
type InvocationError struct {
	Result
	// Artifact is the path of the missing artifact; empty for other reasons.
	Artifact string
	// Cause is the error behind the reason, if there is one.
	Cause error
}

func (e *InvocationError) Error() string { return e.Result.Error }

func (e *InvocationError) Unwrap() error { return e.Cause }

// TimeoutError is an [InvocationError] whose tool was ended by the time limit. It has no
// exit code, whatever the tool did with the signals. errors.As finds both types.
type TimeoutError struct {
	InvocationError
	// Timeout is the limit.
	Timeout time.Duration
}

// Unwrap makes every TimeoutError an InvocationError.
func (e *TimeoutError) Unwrap() error { return &e.InvocationError }
