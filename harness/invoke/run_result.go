package invoke

// RunResultSchemaV1 names the wire form of [RunResult].
const RunResultSchemaV1 = "evalbox/invocation/v1"

// RunResult is what one call of a tool did (M3-11). It is a value: whoever holds one
// holds it alone, as long as its slices are not changed.
type RunResult struct {
	// Schema is always [RunResultSchemaV1].
	Schema string `json:"schema"`
	// Engine is where the tool ran: sandbox, or host, where somebody chose so.
	Engine string `json:"engine"`
	// RunID names the record of the sandbox; empty on the host.
	RunID string `json:"run_id"`
	// Command is what was run, with the paths that the tool was given, and WorkDir where
	// it started.
	Command []string `json:"command"`
	WorkDir string   `json:"work_dir"`
	// Image is the ID of the image; empty on the host.
	Image string `json:"image"`

	// ManifestPath and TracePackPath are the artifacts in the output directory; empty
	// unless they are regular files that this run made.
	ManifestPath  string `json:"manifest_path"`
	TracePackPath string `json:"trace_pack_path"`

	// Stdout and Stderr are what the tool printed, UTF-8 with invalid bytes replaced. A
	// long stream is kept as its head, a line with the number of dropped bytes, and its
	// tail; then its Truncated is true. The Bytes are what was really written.
	Stdout          string `json:"stdout"`
	Stderr          string `json:"stderr"`
	StdoutBytes     int64  `json:"stdout_bytes"`
	StderrBytes     int64  `json:"stderr_bytes"`
	StdoutTruncated bool   `json:"stdout_truncated"`
	StderrTruncated bool   `json:"stderr_truncated"`
	// OutputComplete is false when bytes may have been lost before they reached us.
	OutputComplete bool `json:"output_complete"`

	// ExitCode is the tool's, 128+n when signal n ended it; nil when it was not started,
	// when the time limit ended it, and when its end was not seen.
	ExitCode *int `json:"exit_code"`
	// Signal is the number of the signal that ended the tool, 0 if none.
	Signal   int  `json:"signal"`
	TimedOut bool `json:"timed_out"`
	// DurationSeconds is the tool's wall-clock time.
	DurationSeconds float64 `json:"duration_seconds"`

	// NotWritten is what the tool left and the output directory did not get, with why.
	NotWritten []string `json:"not_written"`
	// Unenforced are the limits that did not hold: none in the sandbox, most on the host.
	Unenforced []string `json:"unenforced"`
	// Warnings are what a careful reader should know. RUN stands for the run's ID in them.
	Warnings []string `json:"warnings"`

	// origin tells what of the output directory is of the run.
	origin *origin
}

// VolatileFields are the JSON names of the fields of a [RunResult] that differ between
// two runs with the same input and a tool that behaves the same.
func VolatileFields() []string { return []string{"run_id", "duration_seconds"} }
