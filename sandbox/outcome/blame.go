package outcome

import (
	"fmt"

	"github.com/evalbox/evalbox/result"
)

// GPUEvidence is what is known, at the end of a run, about the GPUs it had.
type GPUEvidence struct {
	// Output is a line of the program's output that speaks of a lost GPU; empty
	// without one.
	Output result.GPUFault
	// Probed says that nvidia-smi was asked at the end, about GPUs that were
	// well at the start; lost is why one of them is not any more.
	Probed bool
	Lost   string
}

// BlameGPUs corrects a verdict that blames the program for the loss of its GPU.
// How the program ended stays as it was. Its own words count, since they are
// often all that is left of a loss; but they are only its words, and the warning
// says so. Words for which the program may be to blame do not count when a look at
// the end finds its GPUs well.
func BlameGPUs(v Outcome, f GPUEvidence) Outcome {
	endedItself := v.Status == result.StatusExited || v.Status == result.StatusSignaled
	// A program whose GPU is gone may also hang.
	hung := v.Status == result.StatusTimedOut && f.Lost != ""
	if f.Output.Doubtful && f.Probed && f.Lost == "" {
		f.Output = result.GPUFault{}
	}
	if v.Fault != result.FaultProgram || !endedItself && !hung || f.Output.Line == "" && f.Lost == "" {
		return v
	}
	v.Fault = result.FaultEnvironment
	later := "nvidia-smi was not asked afterwards"
	switch {
	case f.Lost != "":
		later = "nvidia-smi after the end: " + f.Lost
	case f.Probed:
		later = "nvidia-smi found the GPUs of the run well afterwards"
	}
	if f.Output.Line == "" {
		v.Warnings = append(v.Warnings, "a GPU was lost during the run: "+later)
		return v
	}
	v.Warnings = append(v.Warnings, fmt.Sprintf("a GPU may have been lost during the run: the program printed %s, which is its own text; %s",
		f.Output.Line, later))
	return v
}
