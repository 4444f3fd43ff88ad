package policy

import (
	"errors"
	"fmt"
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
	// Hint is what to try, where that depends on the rule and not on the field alone.
	Hint string
}

func (e *FieldError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s: %s", e.Field, e.Rule)
	}
	return fmt.Sprintf("%s %s: %s", e.Field, e.Value, e.Rule)
}

// Apply returns the effective limits of a request: its own, else the policy's,
// else those of [Default], and then what follows from them. Limits that nobody
// asked for are lowered to the ceilings; asking for more than a ceiling, or for
// something absurd, is reported as a [FieldError] per field, joined.
func (p Policy) Apply(asked Limits) (Limits, error) {
	l := filled(limitTable, asked, p.Defaults, p.Max).derived()
	var absurd, above []error
	for _, row := range limitTable {
		row.bounds.lower(&l, &asked, &p.Max)
	}
	// Zero is no limit at all, which is above every ceiling.
	l.Output = or(l.Output, p.Max.Output)
	for _, row := range limitTable {
		absurd = append(absurd, row.bounds.check(row.Name, &l))
		// What lies in a file system in memory counts as memory.
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
