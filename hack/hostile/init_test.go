//go:build linux

package hostile

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest/hostile"
	"github.com/evalbox/evalbox/sandbox/probe"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// TestEngineInit runs the programs that attack PID 1 as whole runs: the result says their true end.
// The conformance suite runs them on the engine alone.
func TestEngineInit(t *testing.T) {
	if testing.Short() {
		t.Skip("the conformance suite has these programs: make test-all")
	}
	t.Parallel()
	p := place(t)
	if spec.OwnKernel(p.Machine.Runtime) {
		t.Skip("gVisor lets a program end its init: see the probe \"signals to init\"")
	}
	for _, program := range hostile.Programs() {
		t.Run(program.Name, func(t *testing.T) {
			t.Parallel()
			if program.NoQuota && !p.Machine.Root {
				t.Skip("the quota of the user cannot be changed")
			}
			v := probe.Verdict{Group: "init", Name: program.Name}
			r := probe.Run{Group: "init", Name: program.Name, Python: program.Python, Stdin: strings.Repeat("\x00", program.Input),
				Limits: policy.Limits{Timeout: program.Timeout, Grace: program.Grace, PIDs: p.Machine.PIDs(32), CPUs: 1, CaptureStdout: 32 * policy.MiB}}
			if program.Deadline {
				r.Limits.Timeout *= 4 // the machine may be busy
			}
			if program.NoQuota {
				r.Ulimits = append(r.Ulimits, spec.Ulimit{Name: "sigpending"})
			}
			res, wrong, err := p.Look(t.Context(), r)
			if err != nil {
				v.Differs = append(v.Differs, err.Error())
			} else {
				v.Differs = append(wrong, endOfAttack(program, res)...)
			}
			report(t, v)
		})
	}
}

// endOfAttack compares the end of an attack with the expected one.
func endOfAttack(p hostile.Program, res *result.Result) (differs []string) {
	want := fmt.Sprintf("exited %d", p.Code)
	switch {
	case p.Deadline:
		want = "timed_out -1"
	case p.Signal > 0:
		want = fmt.Sprintf("signaled %d", 128+p.Signal)
	}
	got := fmt.Sprintf("%s %d", res.Status, res.ExitCode)
	// Whether the kernel names the sender of a forged signal decides about these.
	forged := p.Forged && got == fmt.Sprintf("exited %d", cmp.Or(p.Code, hostile.Success))
	if got != want && !forged {
		differs = append(differs, fmt.Sprintf("the end is %s, not %s: %s", got, want, res.Stderr))
	}
	if !regexp.MustCompile(p.Said).MatchString(res.Stdout) {
		differs = append(differs, fmt.Sprintf("stdout is %.200q, not %s", res.Stdout, p.Said))
	}
	return differs
}
