package result

import "fmt"

// Status says how a run ended. The zero value is invalid, so that a status
// that nobody set cannot pass for an answer. The wire form is the name.
type Status uint8

const (
	// StatusExited: the program ended by itself, with any exit code.
	StatusExited Status = iota + 1
	// StatusSignaled: a signal that was not ours ended the program.
	StatusSignaled
	// StatusTimedOut: the time limit ended the run.
	StatusTimedOut
	// StatusOutOfMemory: the kernel killed the program at its memory limit.
	StatusOutOfMemory
	// StatusDiskLimit: the disk limit ended the run.
	StatusDiskLimit
	// StatusOutputLimit: the hard limit for stdout and stderr ended the run.
	StatusOutputLimit
	// StatusCanceled: the caller ended the run.
	StatusCanceled
	// StatusStartFailed: the program never started.
	StatusStartFailed
	// StatusEngineLost: the engine went away and the end was not seen.
	StatusEngineLost
)

// Statuses returns all valid statuses in the order of the constants. The
// caller may change the slice.
func Statuses() []Status {
	var all []Status
	for s := StatusExited; s <= StatusEngineLost; s++ {
		all = append(all, s)
	}
	return all
}

// String returns the wire name, or "status(n)" for an invalid value.
func (s Status) String() string {
	switch s {
	case StatusExited:
		return "exited"
	case StatusSignaled:
		return "signaled"
	case StatusTimedOut:
		return "timed_out"
	case StatusOutOfMemory:
		return "out_of_memory"
	case StatusDiskLimit:
		return "disk_limit"
	case StatusOutputLimit:
		return "output_limit"
	case StatusCanceled:
		return "canceled"
	case StatusStartFailed:
		return "start_failed"
	case StatusEngineLost:
		return "engine_lost"
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// MarshalText returns the wire name. It refuses an invalid status, so that a
// result without one is never written.
func (s Status) MarshalText() ([]byte, error) {
	return marshalName("status", s, Statuses())
}

// UnmarshalText sets s from its wire name and refuses any other text.
func (s *Status) UnmarshalText(text []byte) error {
	return unmarshalName("status", s, Statuses(), text)
}
