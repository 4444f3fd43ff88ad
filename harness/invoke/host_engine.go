package invoke

import (
	"context"
	"errors"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/evalbox/evalbox/policy"
)

// Clock is where time comes from. This package has none of its own.
type Clock interface {
	Now() time.Time
	// After is closed, or gets a value, when the duration is over.
	After(d time.Duration) <-chan time.Time
}

// Host runs tools on this machine as processes of the caller: they can read and change
// whatever the caller can. Only time and what is kept of the output are bounded. It is
// for Unix.
type Host struct {
	// Clock measures the time limit; it must not be nil.
	Clock Clock
	// Grace is the time between SIGTERM and SIGKILL, 5 s if it is 0 (EX-009).
	Grace time.Duration
	// CaptureStdout and CaptureStderr bound what is kept of each stream; 0 is the default
	// of package policy.
	CaptureStdout, CaptureStderr policy.Size
	// Stdout and Stderr get the output live; nil is nowhere.
	Stdout, Stderr io.Writer
	// Kill, when closed after the context was canceled, skips the rest of the grace
	// period.
	Kill <-chan struct{}
}

// drain is how long output is waited for when no process of the tool can be seen any
// more: one that left the process group may hold the pipe.
const drain = 2 * time.Second

// hostEnv is the environment of a tool on the host: nothing of the caller's own.
func hostEnv(extra map[string]string) []string {
	env := map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "UTC",
		"PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1",
	}
	maps.Copy(env, extra)
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		pairs = append(pairs, name+"="+env[name])
	}
	return pairs
}

// hostUnenforced are the limits of the sandbox that do not hold on the host.
var hostUnenforced = []string{"filesystem", "network", "memory", "cpus", "processes", "disk", "output", "system calls", "user"}

func (h Host) check() error {
	if h.Clock == nil {
		return errors.New("invoke: the host needs a clock")
	}
	if h.Grace < 0 {
		return &policy.FieldError{Field: "grace", Value: h.Grace.String(), Rule: "must not be negative"}
	}
	return hostSupported()
}

func (h Host) place(c call) (Plan, error) {
	work := c.root
	if work == "" {
		var err error
		if work, err = filepath.Abs("."); err != nil {
			return Plan{}, err
		}
	}
	return Plan{
		Engine: EngineHost, Command: append(slices.Clone(c.words), c.arguments(c.Config, c.Invocation.OutputDir)...), WorkDir: work,
		Config: c.Config, OutputDir: c.Invocation.OutputDir, TimeoutSeconds: c.timeout.Seconds(), Unenforced: slices.Clone(hostUnenforced),
	}, nil
}

func (h Host) plan(_ context.Context, c call, p Plan) (Plan, error) {
	if _, err := findProgram(p.Command[0], p.WorkDir, hostEnv(c.env)); err != nil {
		return Plan{}, cannotExecute(RunResult{}, err.Error(), err)
	}
	return p, nil
}
