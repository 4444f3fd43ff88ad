package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// IsolationGrade says how well a run is separated from the machine and from other runs. The
// empty grade, as a minimum, is any.
type IsolationGrade string

// Grades of isolation, from weak to strong. Each one includes the conditions of the ones
// before; the table isolationTable has them.
const (
	// WeakIsolation lacks a condition of the next grade.
	WeakIsolation IsolationGrade = "weak"
	// BasicIsolation means that the program is not root of the machine, and that a system
	// call filter or a kernel of its own is between it and the machine's kernel.
	BasicIsolation IsolationGrade = "basic"
	// SeparateIsolation means that no quota of the kernel is shared with another run.
	SeparateIsolation IsolationGrade = "separate"
	// LayeredIsolation means that one mistake of the kernel or of the engine is not enough:
	// there is a user namespace, a security module, or a kernel of its own.
	LayeredIsolation IsolationGrade = "layered"
	// KernelIsolation means that the program does not reach the machine's kernel.
	KernelIsolation IsolationGrade = "own_kernel"
)

// IsolationGrades are all grades, from weak to strong.
func IsolationGrades() []IsolationGrade {
	return []IsolationGrade{WeakIsolation, BasicIsolation, SeparateIsolation, LayeredIsolation, KernelIsolation}
}

// Isolation is what a grade depends on.
type Isolation struct {
	// Root says that the program has the user ID or the group ID 0.
	Root bool
	// Seccomp says that a system call filter is in force. OwnKernel says that the runtime
	// has a kernel of its own.
	Seccomp, OwnKernel bool
	// UserNamespace says that the users of the container are others on the machine.
	UserNamespace bool
	// LSM says that a security module confines the container.
	LSM bool
	// OwnUID says that no other run has the user of the program.
	OwnUID bool
	// Terminals says that the number of pseudo-terminals is bounded.
	Terminals bool
}

// isolationTable has the conditions of each grade above the weak one. A condition has what is
// missing without it, and how to get it.
var isolationTable = []struct {
	grade   IsolationGrade
	ok      func(i Isolation) bool
	missing string
	hint    string
}{
	{BasicIsolation, func(i Isolation) bool { return !i.Root || i.UserNamespace },
		"a program that is not root", "leave --user out"},
	{BasicIsolation, func(i Isolation) bool { return i.Seccomp || i.OwnKernel },
		"a system call filter", "use an engine with seccomp"},
	{SeparateIsolation, func(i Isolation) bool { return i.OwnUID || i.OwnKernel },
		"a user ID that no other run has", "run as root, with an engine of this machine, without --user and uid_range: none"},
	{SeparateIsolation, func(i Isolation) bool { return i.Terminals || i.OwnKernel },
		"a bound on pseudo-terminals", "use an engine that can mount devpts"},
	{LayeredIsolation, func(i Isolation) bool { return i.UserNamespace || i.LSM || i.OwnKernel },
		"a user namespace or a security module (AppArmor, SELinux)", "switch on userns-remap of the engine, use a rootless engine, or a kernel with AppArmor or SELinux"},
	{KernelIsolation, func(i Isolation) bool { return i.OwnKernel },
		"a kernel of its own", "use the runtime runsc: --runtime runsc"},
}

// Grade returns the grade, and what is missing for the next one.
func (i Isolation) Grade() (grade IsolationGrade, missing []string) {
	grade = WeakIsolation
	for _, next := range IsolationGrades()[1:] {
		for _, row := range isolationTable {
			if row.grade == next && !row.ok(i) {
				missing = append(missing, row.missing)
			}
		}
		if missing != nil {
			break
		}
		grade = next
	}
	return grade, missing
}

// AtLeast refuses a grade below least: the [FieldError] says which conditions are missing and
// how to get them.
func (i Isolation) AtLeast(least IsolationGrade) error {
	grades := IsolationGrades()
	at := slices.Index(grades, least)
	if least != "" && at < 0 {
		return &FieldError{Field: "isolation", Value: fmt.Sprintf("%q", least), Rule: "must be one of " + strings.ReplaceAll(strings.Trim(fmt.Sprint(grades), "[]"), " ", ", ")}
	}
	is, _ := i.Grade()
	if slices.Index(grades, is) >= at {
		return nil
	}
	var missing, hints []string
	for _, row := range isolationTable {
		if slices.Index(grades, row.grade) <= at && !row.ok(i) {
			missing, hints = append(missing, row.missing), append(hints, row.hint)
		}
	}
	return &FieldError{Field: "isolation", Value: fmt.Sprintf("%q", least),
		Rule: fmt.Sprintf("this run gets %q: it lacks %s", is, strings.Join(missing, ", and ")), Hint: strings.Join(hints, "; ")}
}

// CheckIsolation refuses a grade below the one that a run asks for, and one below the policy's; see
// [Isolation.AtLeast].
func (p Policy) CheckIsolation(has Isolation, asked IsolationGrade) error {
	if err := has.AtLeast(asked); err != nil {
		return err
	}
	err := has.AtLeast(p.MinIsolation)
	var field *FieldError
	if errors.As(err, &field) {
		field.Field = "min_isolation"
	}
	return err
}
