package sweep

// Status is how a run stands.
type Status string

// The statuses of a run.
const (
	StatusSucceeded Status = "succeeded"
	StatusFailed    Status = "failed"
	// StatusMissing is a run that has not ended: not begun, interrupted, or one that we
	// failed to run.
	StatusMissing Status = "missing"
)

// An End is what is known of a run.
type End struct {
	// Index is its place in the plan, from 0.
	Index int
	Name  string
	Point
	Status Status
	// ManifestHash is the SHA-256 of its manifest.json, if it succeeded.
	ManifestHash string
	ExitCode     *int
	TimedOut     bool
	// Failure says why it failed.
	Failure string
	// Kept says that it ended in an earlier call.
	Kept bool
	// Err is why it is missing, if it began.
	Err error
}

// Report is what came of a sweep.
type Report struct {
	// Dir is its folder. Manifest is the file of its manifest; empty if none was written.
	Dir, Manifest string
	// Runs are in the order of the plan.
	Runs []End
}

// Count is the number of runs of a status.
func (r Report) Count(status Status) int {
	n := 0
	for _, end := range r.Runs {
		if end.Status == status {
			n++
		}
	}
	return n
}
