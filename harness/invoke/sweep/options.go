package sweep

import (
	"strconv"

	"github.com/evalbox/evalbox/policy"
)

// Options steer [Run].
type Options struct {
	// Dir is the folder of the sweep. It must not exist, unless Resume is set.
	Dir string
	// Resume goes on with the sweep that is in Dir, if there is one. It must be the same
	// one. What has succeeded and is as it was is kept; all else is done again, in a
	// fresh folder.
	Resume bool
	// Verify judges again what would be kept; nil is by the hashes of before alone.
	Verify Verify
	// Parallel is how many runs go on at once; 0 is 1.
	Parallel int
	// KeepGoing goes on after a run that failed. The manifest then has null for its hash.
	KeepGoing bool
	// Setup is what else the runs depend on, such as the command line. Resume demands the
	// same. What is not to be read in the folder has a name that begins with
	// [SetupHashed], and a hash as its value.
	Setup map[string]string
	// Resumed, if set, is called with the number of runs that were kept, before the others begin.
	Resumed func(kept int)
	// Begun and Ended, if set, are called as a run begins, possibly several calls at the
	// same time, and after it has ended and is on the disk, one call at a time.
	Begun func(index int)
	Ended func(End)
}

func (o Options) check(plan Plan) ([]byte, error) {
	switch {
	case o.Dir == "":
		return nil, &policy.FieldError{Field: "output", Rule: "must not be empty"}
	case o.Parallel < 0:
		return nil, &policy.FieldError{Field: "parallel", Value: strconv.Itoa(o.Parallel), Rule: "must not be negative"}
	case plan.Len() == 0:
		return nil, &policy.FieldError{Field: "sweep", Rule: "has no runs"}
	}
	return plan.definition(o.Setup)
}
