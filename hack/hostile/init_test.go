//go:build linux

package hostile

import (
	"testing"

	"github.com/evalbox/evalbox/sandbox/ends"
	"github.com/evalbox/evalbox/sandbox/probe"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// TestEngineInit runs the programs that attack PID 1 as whole runs: the result says their true end.
// The conformance suite runs them on the engine alone.
func TestEngineInit(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the conformance suite has these programs: make test-all")
	}
	p := place(t)
	if spec.OwnKernel(p.Machine.Runtime) {
		t.Skip("gVisor lets a program end its init: see the probe \"signals to init\"")
	}
	for _, program := range ends.Attacks() {
		t.Run(program.Name, func(t *testing.T) {
			t.Parallel()
			if program.NoQuota && !p.Machine.Root {
				t.Skip("the quota of the user cannot be changed")
			}
			if program.Deadline {
				program.Timeout *= 4 // the machine may be busy
			}
			r := probe.Of("init", program)
			r.Limits.PIDs = p.Machine.PIDs(32)
			if program.Forged { // whether the kernel names the sender of the signal decides
				program.Signal, program.Code = 0, ends.Success
				survived := probe.Of("init", program).Want
				r.Or = &survived
			}
			report(t, p.Try(t.Context(), r))
		})
	}
}
