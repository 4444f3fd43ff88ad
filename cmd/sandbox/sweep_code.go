package main

import (
	"context"
	"errors"

	"github.com/evalbox/evalbox/harness/invoke/sweep"
)

// sweepCode is the exit code of a sweep.
func sweepCode(err error) int {
	failures := new(sweep.FailuresError)
	if err != nil && errors.As(err, &failures) && !interruptedBy(err) && len(joined(err)) == 1 {
		return exitProblem
	}
	return exitCode(nil, err)
}

// interruptedBy says that a signal to us is among the reasons.
func interruptedBy(err error) bool {
	var stopped interruption
	return errors.As(err, &stopped) || errors.Is(err, context.Canceled)
}
