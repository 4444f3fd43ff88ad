package spec

import (
	"fmt"
	"io/fs"
)

// A PathError names a host path of a request that breaks a rule.
type PathError struct {
	// Field is the name of the field: script, input, final, state.
	Field, Path, Rule string
	// Err is the cause, if there is one.
	Err error
}

func (e *PathError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s %q: %s: %v", e.Field, e.Path, e.Rule, e.Err)
	}
	return fmt.Sprintf("%s %q: %s", e.Field, e.Path, e.Rule)
}

func (e *PathError) Unwrap() error { return e.Err }

// Is makes a path that does not exist an fs.ErrNotExist.
func (e *PathError) Is(target error) bool {
	return target == fs.ErrNotExist && e.Rule == RuleMissing
}

// RuleMissing is the rule of a path that does not exist.
const RuleMissing = "does not exist"
