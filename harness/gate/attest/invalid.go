package attest

import (
	"fmt"
	"strings"
)

// An InvalidError is a gate directory that cannot be signed as it is, or whose
// attestation does not hold.
type InvalidError struct {
	// Problems say why, one sentence each.
	Problems []string
}

func (e *InvalidError) Error() string { return strings.Join(e.Problems, "; ") }

// maxProblems bounds how much is told of a directory in which nothing fits.
const maxProblems = 20

func (e *InvalidError) add(format string, args ...any) {
	switch len(e.Problems) {
	case maxProblems:
		e.Problems = append(e.Problems, "there are more problems")
	case maxProblems + 1:
	default:
		e.Problems = append(e.Problems, fmt.Sprintf(format, args...))
	}
}

func (e *InvalidError) orNil() error {
	if len(e.Problems) == 0 {
		return nil
	}
	return e
}

func invalidf(format string, args ...any) error {
	e := &InvalidError{}
	e.add(format, args...)
	return e
}
