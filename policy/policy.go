package policy

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"
)

// Policy is what runs on this host may do: limits for runs that ask for none,
// ceilings for runs that ask for more, and what may be opened at all. The zero
// value denies everything that can be denied and sets no ceilings.
type Policy struct {
	// Defaults fill the limits that a request leaves zero; what they leave
	// zero as well comes from [Default].
	Defaults Limits
	// Max are ceilings. A zero field is no ceiling.
	Max Limits
	// AllowNetwork permits requests that name a network other than "none".
	AllowNetwork bool
	// AllowRoot permits requests that ask for uid 0 inside the container.
	AllowRoot bool
	// AllowEgress is the highest level of network access through the proxy of a run
	// that requests may ask for; empty is [Offline].
	AllowEgress NetworkLevel
	// AllowPrivateEgress permits requests to list addresses that are not of the public
	// internet: those of the machine itself, of its network, of metadata services.
	AllowPrivateEgress bool
	// Registries are the host patterns of the level [Registry].
	Registries []string
	// EgressDefaults and MaxEgress are for egress what Defaults and Max are.
	EgressDefaults, MaxEgress EgressLimits
}

// A FieldError names one field that breaks one rule.
type FieldError struct {
	// Field is the name of the field as users write it, such as "memory".
	Field string
	// Value is what was asked for.
	Value string
	// Rule is the rule that the value breaks.
	Rule string
}

func (e *FieldError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s: %s", e.Field, e.Rule)
	}
	return fmt.Sprintf("%s %s: %s", e.Field, e.Value, e.Rule)
}

// The engine refuses less than 6 MiB; Python alone needs more.
const minMemory = 6 * MiB

// minPIDs is the program alone; with an init in its container it takes one more.
const minPIDs = 1

// minMount is the least size of a file system in memory.
const minMount = 64 * KiB

// maxTimeout keeps deadlines far from the end of time.Duration.
const maxTimeout = 366 * 24 * time.Hour

// Apply returns the effective limits of a request: its own, else the policy's,
// else those of [Default], and then what follows from them. Limits that nobody
// asked for are lowered to the ceilings; asking for more than a ceiling, or for
// something absurd, is reported as a [FieldError] per field, joined.
func (p Policy) Apply(asked Limits) (Limits, error) {
	l := asked.over(p.Defaults).over(Default()).cappedUnless(asked, p.Max)
	l = l.derived().cappedUnless(asked, p.Max)
	// Zero is no limit at all, which is above every ceiling.
	l.Output = cmp.Or(l.Output, p.Max.Output)
	errs := []error{
		durationBetween("timeout", l.Timeout, time.Millisecond, maxTimeout),
		durationBetween("grace", l.Grace, time.Millisecond, time.Hour),
		sizeAtLeast("memory", l.Memory, minMemory),
		cpusSane(l.CPUs),
		countBetween("pids-limit", l.PIDs, minPIDs, 4<<20),
		countBetween("nofile", l.NoFile, 0, 1<<30),
		partOfMemory("shm-size", l.Shm, l.Memory),
		partOfMemory("tmp-size", l.Tmp, l.Memory),
		partOfMemory("scratch-size", l.Scratch, l.Memory),
		sizeAtLeast("disk", l.Disk, 4*KiB),
		sizeAtLeast("output-limit", l.Output, 0),
		sizeAtLeast("stream-file", l.StreamFile, 0),
		sizeAtLeast("capture-stdout", l.CaptureStdout, 0),
		sizeAtLeast("capture-stderr", l.CaptureStderr, 0),
		countBetween("output-files", int64(l.OutputFiles), 0, 10_000_000),
		countBetween("output-depth", int64(l.OutputDepth), 0, 1000),
		sizeAtLeast("output-file", l.OutputFile, 0),
		sizeAtLeast("output-total", l.OutputTotal, 0),
	}
	errs = append(errs, p.ceilings(l)...)
	if err := errors.Join(errs...); err != nil {
		return Limits{}, err
	}
	return l, nil
}

// ceilings compares l with the policy's maxima.
func (p Policy) ceilings(l Limits) []error {
	return []error{
		below("timeout", l.Timeout, p.Max.Timeout),
		below("grace", l.Grace, p.Max.Grace),
		below("memory", l.Memory, p.Max.Memory),
		below("pids-limit", l.PIDs, p.Max.PIDs),
		below("nofile", l.NoFile, p.Max.NoFile),
		below("shm-size", l.Shm, p.Max.Shm),
		below("tmp-size", l.Tmp, p.Max.Tmp),
		below("scratch-size", l.Scratch, p.Max.Scratch),
		below("disk", l.Disk, p.Max.Disk),
		below("output-limit", l.Output, p.Max.Output),
		below("stream-file", l.StreamFile, p.Max.StreamFile),
		below("capture-stdout", l.CaptureStdout, p.Max.CaptureStdout),
		below("capture-stderr", l.CaptureStderr, p.Max.CaptureStderr),
		below("output-files", l.OutputFiles, p.Max.OutputFiles),
		below("output-depth", l.OutputDepth, p.Max.OutputDepth),
		below("output-file", l.OutputFile, p.Max.OutputFile),
		below("output-total", l.OutputTotal, p.Max.OutputTotal),
		below("cpus", l.CPUs, p.Max.CPUs),
	}
}

func below[T int | int64 | float64 | Size | time.Duration](field string, value, ceiling T) error {
	if ceiling == 0 || value <= ceiling {
		return nil
	}
	return &FieldError{field, fmt.Sprint(value), fmt.Sprintf("above the policy's maximum of %v", ceiling)}
}

func durationBetween(field string, d, low, high time.Duration) error {
	if d < low || d > high {
		return &FieldError{field, d.String(), fmt.Sprintf("must be between %v and %v", low, high)}
	}
	return nil
}

func sizeAtLeast(field string, s, low Size) error {
	if s < low {
		return &FieldError{field, s.String(), fmt.Sprintf("must be at least %v", low)}
	}
	return nil
}

// partOfMemory checks a file system in memory: what lies in it counts as memory.
func partOfMemory(field string, s, memory Size) error {
	if s > memory && memory >= minMemory {
		return &FieldError{field, s.String(), fmt.Sprintf("counts as memory, of which there are %v", memory)}
	}
	return sizeAtLeast(field, s, minMount)
}

func countBetween(field string, n, low, high int64) error {
	if n < low || n > high {
		return &FieldError{field, fmt.Sprint(n), fmt.Sprintf("must be between %d and %d", low, high)}
	}
	return nil
}

func cpusSane(cpus float64) error {
	// The engine's quota has a resolution of 0.01 processors.
	if math.IsNaN(cpus) || cpus < 0.01 || cpus > 4096 {
		return &FieldError{"cpus", fmt.Sprint(cpus), "must be between 0.01 and 4096"}
	}
	return nil
}
