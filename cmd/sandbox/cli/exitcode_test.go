package cli

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

func TestExitCode(t *testing.T) {
	refused := &policy.FieldError{Field: "memory", Value: "1B", Rule: "must be at least 6MiB"}
	tests := map[string]struct {
		res  *result.Result
		err  error
		want int
	}{
		"nothing to say":          {nil, nil, 0},
		"success":                 {ended(result.StatusExited, 0), nil, 0},
		"the program's code":      {ended(result.StatusExited, 7), nil, 7},
		"the program's 125":       {ended(result.StatusExited, 125), nil, 125},
		"the program's 255":       {ended(result.StatusExited, 255), nil, 255},
		"no code of a process":    {ended(result.StatusExited, 256), nil, 125},
		"no code at all":          {ended(result.StatusExited, -1), nil, 125},
		"segmentation fault":      {ended(result.StatusSignaled, 139), nil, 139},
		"killed":                  {ended(result.StatusSignaled, 137), nil, 137},
		"time limit":              {ended(result.StatusTimedOut, -1), nil, 124},
		"out of memory":           {ended(result.StatusOutOfMemory, 137), nil, 137},
		"out of memory, exited 1": {ended(result.StatusOutOfMemory, 1), nil, 137},
		"disk limit":              {ended(result.StatusDiskLimit, 143), nil, 143},
		"disk limit, exited 0":    {ended(result.StatusDiskLimit, 0), nil, 1},
		"output limit":            {ended(result.StatusOutputLimit, 137), nil, 137},
		"output limit, exited 0":  {ended(result.StatusOutputLimit, 0), nil, 1},
		"canceled":                {ended(result.StatusCanceled, 143), nil, 130},
		"not executable":          {ended(result.StatusStartFailed, 126), nil, 126},
		"not found":               {ended(result.StatusStartFailed, 127), nil, 127},
		"not found, with error":   {ended(result.StatusStartFailed, 127), errors.New("no such file"), 127},
		"start failed":            {ended(result.StatusStartFailed, -1), errors.New("no runtime"), 125},
		"engine lost":             {ended(result.StatusEngineLost, -1), sandbox.ErrEngineUnavailable, 125},
		"result not written":      {ended(result.StatusExited, 0), record.ErrNoSpace, 125},
		"usage":                   {nil, Usagef("sandbox run", "unknown flag"), 2},
		"usage, wrapped":          {nil, fmt.Errorf("reading flags: %w", Usagef("sandbox", "what?")), 2},
		"refused":                 {nil, refused, 125},
		"engine down":             {nil, sandbox.ErrEngineUnavailable, 125},
		"interrupted":             {nil, SignalError{syscall.SIGINT}, 130},
		"interrupted, plainly":    {nil, fmt.Errorf("asking: %w", context.Canceled), 130},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.want, ExitCode(OfRun(test.res), test.err)) })
	}
}

// Every status has a code, and no failure has the code of success.
func TestExitCodeOfEveryStatus(t *testing.T) {
	for _, status := range result.Statuses() {
		code := ExitCode(OfRun(ended(status, 0)), nil)
		require.Equal(t, status == result.StatusExited || status == result.StatusSignaled, code == 0, status.String())
	}
}

func ended(status result.Status, code int) *result.Result {
	return &result.Result{Status: status, ExitCode: code}
}
