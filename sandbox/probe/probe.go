// Package probe has the questions that a sandbox must answer in one exact way: hostile
// programs, and honest ones that must keep working. `sandbox doctor --deep` asks some of them
// on a user's machine; the suite in hack/hostile asks all of them on every engine.
//
// There are two kinds. A [Question] is a function of a Python file in programs/; one container
// answers all questions of a file, a [Batch]. A [Run] is a program with a container of its
// own, and [Want] is the whole result that it must have: what is not named there must have
// the value of an uneventful run. Both name the machines with another answer as data.
//
// The programs must never run outside a sandbox.
package probe

import (
	"slices"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Machine describes where probes run.
type Machine struct {
	// Runtime is the OCI runtime of the run.
	Runtime string
	// Cgroup is the version of control groups, 1 or 2.
	Cgroup int
	// Root says that the controller is root.
	Root bool
	// Copy says that files are copied to the engine.
	Copy bool
	// Rootless says that programs are root of a user namespace, without any capability, because
	// the caller's files are root's there.
	Rootless bool
	// Pod says that the container is in a pod of a cluster, where a run cannot have a limit of processes of its own.
	Pod bool
}

// Traits returns the words by which a probe distinguishes machines: "runsc" for a runtime
// with a kernel of its own, "cgroup2", "user" for a controller without root, "copy", "rootless",
// "pod".
func (m Machine) Traits() map[string]bool {
	return map[string]bool{"runsc": spec.OwnKernel(m.Runtime), "cgroup2": m.Cgroup == 2, "user": !m.Root, "copy": m.Copy, "rootless": m.Rootless, "pod": m.Pod}
}

// PIDs is a limit of processes, where runs may have one of their own, and else 0.
func (m Machine) PIDs(limit int64) int64 {
	if m.Pod {
		return 0
	}
	return limit
}

// Run is one program with a container of its own.
type Run struct {
	Group, Name string
	// Python is the program. Command is a command of the image instead.
	Python  string
	Command []string
	// Stdin, if not empty, is the program's stdin.
	Stdin string
	// Input are further files of ./input.
	Input map[string]string
	// Limits are those of the request. The zero value of Timeout is 60 seconds, of Memory
	// 256 MiB, and of CPUs 1.
	Limits  policy.Limits
	Ulimits []spec.Ulimit
	NoFork  bool
	// SoftSignal is the signal of a soft time limit; empty is the default.
	SoftSignal string
	// Want is the expected result. Under has that of some machines; the first trait that a
	// machine has decides.
	Want  Want
	Under []TraitWant
	// Or, if not nil, is a result that is as good as Want.
	Or *Want
	// Long marks a run for the long form of the suite only, Deep one that doctor repeats on
	// a user's machine.
	Long, Deep bool
}

// TraitWant is the expected result on the machines with one trait, and why it differs.
type TraitWant struct {
	Trait, Why string
	Want       Want
}

func (r Run) want(m Machine) Want {
	traits := m.Traits()
	for _, u := range r.Under {
		if traits[u.Trait] {
			return u.Want
		}
	}
	return r.Want
}

// Want is an expected result. A text between slashes is a regular expression for the whole
// text.
type Want struct {
	// Status is exited if it is zero. Fault follows from Status and Code if it is zero.
	Status result.Status
	Fault  result.Fault
	// Code is the exit code of a program that exited, Signal the signal that ended it.
	Code, Signal int
	// OOM says that the kernel killed a process for memory. It follows from the status
	// out_of_memory.
	OOM bool
	// Refused matches the error of a run that must not start; the rest is then not compared.
	Refused string
	// Incomplete says that the end of the output is not seen.
	Incomplete bool
	// Deadline is hard for a program that timed out, if it is empty.
	Deadline result.Deadline
	// Score is the score as text; empty for none.
	Score string
	// Error is the reason of an error; it follows from the end if it is zero.
	Error result.ErrorReason
	// Traceback and Summary are those of the error.
	Traceback, Summary string
	// Explanation is the sentence about the end, if it is set.
	Explanation string
	// Stdout and Stderr are the whole texts.
	Stdout, Stderr string
	// StdoutBytes and StderrBytes are the bytes of a stream that was cut or has bytes that
	// are not text. [Cut] and [Any] are any number.
	StdoutBytes, StderrBytes int64
	// Outputs are "PATH MODE SIZE", Skipped are "PATH KIND: REASON", both sorted.
	Outputs, Skipped []string
	// Warnings are all warnings, in order.
	Warnings []string
	// Seconds bounds the duration; 0 means a minute. CPU bounds the processor time; 0 means
	// no bound.
	Seconds, CPU float64
}

// Cut means a stream that was cut, with any number of bytes; Any means any stream.
const (
	Cut = -1
	Any = -2
)

// Runs returns all runs, in a fixed order.
func Runs() []Run {
	return slices.Concat(resourceRuns(), outputRuns(), streamRuns(), endRuns(), tracebackRuns())
}
