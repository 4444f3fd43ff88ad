package policy

// ProfilesSchema is the version of profile files that [ParseProfiles] reads.
const ProfilesSchema = "evalbox/profiles/v1"

// A Range is what one limit is by default, and between which values (inclusive) it
// may be asked for.
type Range struct{ Default, Min, Max int64 }

// Has says whether a value may be asked for.
func (r Range) Has(value int64) bool { return r.Min <= value && value <= r.Max }

// A Profile is a set of limits for contracts: a default and bounds for each. What is
// out of bounds is refused, never clamped (resolution 6).
type Profile struct {
	// Description says in a sentence what the profile is for.
	Description string
	// TimeoutMS is in milliseconds, MemoryMB in MiB, CPUCores in processors,
	// MaxChildren in processes and threads beside the program itself (CX-02).
	TimeoutMS, MemoryMB, CPUCores, MaxChildren Range
	// What is kept of the outputs, in bytes (CX-05).
	StdoutBytes, StderrBytes, OutputFilesBytes, ArtifactsBytes Range
}

// Profiles are profiles by their names.
type Profiles map[string]Profile
