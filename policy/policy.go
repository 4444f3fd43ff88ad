// Package policy says what a run may do: its limits with their units, the
// defaults and ceilings for them, and the rules for names and environment
// variables. It is pure: nothing here touches a file or an engine.
package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Policy says what the runs of a host may do: their default limits, the ceilings for their
// limits, and what a request may open. The zero value denies everything that can be denied
// and sets no ceilings.
type Policy struct {
	// Defaults fill the limits that a request leaves zero. [Default] fills those that
	// Defaults leave zero.
	Defaults Limits
	// Max holds the ceilings. A zero field means that there is no ceiling.
	Max Limits
	// HardDisk gives each run a file system of the size of its disk limit: runs are refused where
	// that is not possible.
	HardDisk bool
	// AllowNetwork permits requests that name a network other than "none".
	AllowNetwork bool
	// MinIsolation is the lowest grade of isolation that a run may get; empty is any.
	MinIsolation IsolationGrade
	// OrphanTimeout bounds how long a program goes on after its controller has gone; zero
	// means that only its time limit does. Nobody monitors its disk then.
	OrphanTimeout time.Duration
	// AllowUnenforced permits requests that ask for a limit that the engine cannot enforce.
	AllowUnenforced bool
	// AllowRoot permits requests that ask for uid 0 inside the container.
	AllowRoot bool
	// AllowEgress is the highest level of network access through the proxy of a run
	// that requests may ask for; empty is [Offline].
	AllowEgress NetworkLevel
	// AllowPrivateEgress permits requests to list addresses that are not public: those of
	// the machine itself, of its network, of metadata services.
	AllowPrivateEgress bool
	// Registries are the host patterns of the level [Registry].
	Registries []string
	// EgressDefaults and MaxEgress are the Defaults and Max of egress.
	EgressDefaults, MaxEgress EgressLimits
}

// FilesystemLevel is a level of access to the host's files (CX-03).
type FilesystemLevel string

// Levels of file access, from closed to open. Each one includes the reads of the one before.
const (
	// Minimal reads the working directory and writes nothing.
	Minimal FilesystemLevel = "minimal"
	// Standard reads the root and writes the working directory.
	Standard FilesystemLevel = "standard"
	// Extended reads directories outside of the root as well, and writes listed
	// directories of the root.
	Extended FilesystemLevel = "extended"
	// Elevated reads and writes listed paths, system paths included; it needs an approval.
	Elevated FilesystemLevel = "elevated"
)

// FilesystemLevels are all levels, from closed to open.
func FilesystemLevels() []FilesystemLevel {
	return []FilesystemLevel{Minimal, Standard, Extended, Elevated}
}

// A FieldError names one field that breaks one rule.
type FieldError struct {
	// Field is the name of the field as users write it, such as "memory".
	Field string
	// Value is the requested value.
	Value string
	// Rule is the rule that the value breaks.
	Rule string
	// Hint says what to try; it is empty if that depends on the field alone.
	Hint string
	// Entry is the position, from 1, of the entry that breaks the rule. It is 0 if the field
	// is not a list, or the list as a whole breaks the rule.
	Entry int
}

func (e *FieldError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s: %s", e.Field, e.Rule)
	}
	return fmt.Sprintf("%s %s: %s", e.Field, e.Value, e.Rule)
}

// Join joins errors as [errors.Join] does. A single error keeps its type.
func Join(errs ...error) error {
	errs = slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// RuleOf returns the rule of a [FieldError], and the text of any other error.
func RuleOf(err error) string {
	if field, ok := errors.AsType[*FieldError](err); ok {
		return field.Rule
	}
	return err.Error()
}

// Apply returns the effective limits of a request: its own, else the policy's, else those of
// [Default], and then those that follow from the others. Limits that nobody asked for are
// lowered to the ceilings. A limit above its ceiling, and an absurd one, is reported as a
// [FieldError] per field, joined.
func (p Policy) Apply(asked Limits) (Limits, error) {
	l := filled(limitTable, asked, p.Defaults, p.Max).derived()
	var absurd, above []error
	for _, row := range limitTable {
		row.bounds.lower(&l, &asked, &p.Max)
	}
	// Init counts in milliseconds.
	if late := l.SoftTimeout > 0 && l.Timeout > 0 && l.SoftTimeout > l.Timeout-time.Millisecond; late && asked.SoftTimeout > 0 {
		absurd = append(absurd, &FieldError{Field: "soft-timeout", Value: l.SoftTimeout.String(),
			Rule: fmt.Sprintf("must be less than the time limit of %v", l.Timeout), Hint: "give a shorter --soft-timeout, or a longer --timeout"})
	} else if late {
		l.SoftTimeout = 0
	}
	// Zero means that there is no limit, which is above every ceiling.
	l.Output = cmp.Or(l.Output, p.Max.Output)
	for _, row := range limitTable {
		absurd = append(absurd, row.bounds.check(row.Name, &l))
		// The files of a file system in memory count as memory.
		if size, ok := row.Field(&l).(*Size); ok && row.memory && *size > l.Memory && l.Memory >= minMemory {
			absurd = append(absurd, &FieldError{Field: row.Name, Value: size.String(), Rule: fmt.Sprintf("counts as memory, of which there are %v", l.Memory)})
		}
		above = append(above, row.bounds.below(row.Name, &l, &p.Max))
	}
	if err := errors.Join(append(absurd, above...)...); err != nil {
		return Limits{}, err
	}
	return l, nil
}
