package result

import "fmt"

// Fault says who should look at a run that did not end well. The zero value is
// invalid. The wire form is the name.
type Fault uint8

const (
	// FaultNone: there is nothing to look at.
	FaultNone Fault = iota + 1
	// FaultProgram: the program, or what it asked for, is the cause.
	FaultProgram
	// FaultEnvironment: the host, the engine or the image is the cause; the
	// same program may do well elsewhere or later.
	FaultEnvironment
	// FaultOperator: the caller ended the run or configured it wrongly.
	FaultOperator
)

// Faults returns all valid faults in the order of the constants. The caller
// may change the slice.
func Faults() []Fault {
	var all []Fault
	for f := FaultNone; f <= FaultOperator; f++ {
		all = append(all, f)
	}
	return all
}

// String returns the wire name, or "fault(n)" for an invalid value.
func (f Fault) String() string {
	switch f {
	case FaultNone:
		return "none"
	case FaultProgram:
		return "program"
	case FaultEnvironment:
		return "environment"
	case FaultOperator:
		return "operator"
	}
	return fmt.Sprintf("fault(%d)", uint8(f))
}

// MarshalText returns the wire name and refuses an invalid fault.
func (f Fault) MarshalText() ([]byte, error) {
	return marshalName("fault", f, Faults())
}

// UnmarshalText sets f from its wire name and refuses any other text.
func (f *Fault) UnmarshalText(text []byte) error {
	return unmarshalName("fault", f, Faults(), text)
}
