package result

import (
	"fmt"
	"slices"
)

// Status says how a run ended. The zero value is invalid, so that a status
// that nobody set cannot pass for an answer. The wire form is the name.
type Status uint8

const (
	// StatusExited: the program ended by itself, with any exit code.
	StatusExited Status = iota + 1
	// StatusSignaled: a signal that evalbox did not send ended the program.
	StatusSignaled
	// StatusTimedOut: the time limit, or its soft signal, ended the run.
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
	// StatusStoppedByRule: a stop rule of the caller ended the run.
	StatusStoppedByRule
)

var statusNames = []string{
	StatusExited: "exited", StatusSignaled: "signaled", StatusTimedOut: "timed_out",
	StatusOutOfMemory: "out_of_memory", StatusDiskLimit: "disk_limit", StatusOutputLimit: "output_limit",
	StatusCanceled: "canceled", StatusStartFailed: "start_failed", StatusEngineLost: "engine_lost",
	StatusStoppedByRule: "stopped_by_rule",
}

// Statuses returns all valid statuses in the order of the constants. The
// caller may change the slice.
func Statuses() []Status { return enumValues[Status](statusNames) }

// String returns the wire name, or "status(n)" for an invalid value.
func (s Status) String() string { return enumName("status", s, statusNames) }

// MarshalText returns the wire name. It refuses an invalid status, so that a
// result without one is never written.
func (s Status) MarshalText() ([]byte, error) { return marshalName("status", s, statusNames) }

// UnmarshalText sets s from its wire name and refuses any other text.
func (s *Status) UnmarshalText(text []byte) error {
	return unmarshalName("status", s, statusNames, text)
}

// Fault says who should look at a run that did not end well. The zero value is
// invalid. The wire form is the name.
type Fault uint8

const (
	// FaultNone: there is nothing to look at.
	FaultNone Fault = iota + 1
	// FaultProgram: the program, or its request, is the cause.
	FaultProgram
	// FaultEnvironment: the host, the engine or the image is the cause; the
	// same program may do well elsewhere or later.
	FaultEnvironment
	// FaultOperator: the caller ended the run or configured it wrongly.
	FaultOperator
)

var faultNames = []string{
	FaultNone: "none", FaultProgram: "program", FaultEnvironment: "environment", FaultOperator: "operator",
}

// Faults returns all valid faults in the order of the constants. The caller
// may change the slice.
func Faults() []Fault { return enumValues[Fault](faultNames) }

// String returns the wire name, or "fault(n)" for an invalid value.
func (f Fault) String() string { return enumName("fault", f, faultNames) }

// MarshalText returns the wire name and refuses an invalid fault.
func (f Fault) MarshalText() ([]byte, error) { return marshalName("fault", f, faultNames) }

// UnmarshalText sets f from its wire name and refuses any other text.
func (f *Fault) UnmarshalText(text []byte) error { return unmarshalName("fault", f, faultNames, text) }

// The functions below implement an enum by the names of its values, of which the first one,
// for zero, is empty.

func enumValues[E ~uint8](names []string) []E {
	all := make([]E, len(names)-1)
	for i := range all {
		all[i] = E(i + 1)
	}
	return all
}

func enumName[E ~uint8](kind string, v E, names []string) string {
	if v == 0 || int(v) >= len(names) {
		return fmt.Sprintf("%s(%d)", kind, uint8(v))
	}
	return names[v]
}

func marshalName[E ~uint8](kind string, v E, names []string) ([]byte, error) {
	if v == 0 || int(v) >= len(names) {
		return nil, fmt.Errorf("result: invalid %s %d", kind, uint8(v))
	}
	return []byte(names[v]), nil
}

// unmarshalName leaves v as it is on an error.
func unmarshalName[E ~uint8](kind string, v *E, names []string, text []byte) error {
	i := slices.Index(names, string(text))
	if i < 1 {
		return fmt.Errorf("result: unknown %s %q", kind, text)
	}
	*v = E(i)
	return nil
}

// Deadline is the part of the time limit in the end of a run. Like [ErrorReason] it is a string,
// because "none" is a valid answer.
type Deadline string

const (
	// DeadlineNone: the program was neither asked to finish nor stopped at its time limit,
	// or something else ended the run.
	DeadlineNone Deadline = ""
	// DeadlineSoft: the program got the soft signal and ended before its time limit.
	DeadlineSoft Deadline = "soft"
	// DeadlineHard: the program was stopped at its time limit.
	DeadlineHard Deadline = "hard"
)
