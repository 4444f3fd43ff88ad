package policy

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// separate is what a root caller has with a plain engine.
var separate = Isolation{Seccomp: true, OwnUID: true, Terminals: true}

func with(i Isolation, change func(*Isolation)) Isolation {
	change(&i)
	return i
}

func TestIsolationGrades(t *testing.T) {
	for name, c := range map[string]struct {
		facts   Isolation
		grade   IsolationGrade
		missing []string
	}{
		"nothing":          {Isolation{}, WeakIsolation, []string{"a system call filter"}},
		"root, no filter":  {Isolation{Root: true}, WeakIsolation, []string{"a program that is not root", "a system call filter"}},
		"root":             {with(separate, func(i *Isolation) { i.Root = true }), WeakIsolation, []string{"a program that is not root"}},
		"root, own kernel": {Isolation{Root: true, OwnKernel: true}, WeakIsolation, []string{"a program that is not root"}},
		"root of a namespace": {with(separate, func(i *Isolation) { i.Root, i.UserNamespace = true, true }), LayeredIsolation,
			[]string{"a kernel of its own"}},
		"no filter":        {with(separate, func(i *Isolation) { i.Seccomp = false }), WeakIsolation, []string{"a system call filter"}},
		"shared user":      {with(separate, func(i *Isolation) { i.OwnUID = false }), BasicIsolation, []string{"a user ID that no other run has"}},
		"shared user, LSM": {with(separate, func(i *Isolation) { i.OwnUID, i.LSM = false, true }), BasicIsolation, []string{"a user ID that no other run has"}},
		"terminals":        {with(separate, func(i *Isolation) { i.Terminals = false }), BasicIsolation, []string{"a bound on pseudo-terminals"}},
		"filter only": {Isolation{Seccomp: true}, BasicIsolation,
			[]string{"a user ID that no other run has", "a bound on pseudo-terminals"}},
		"separate":       {separate, SeparateIsolation, []string{"a user namespace or a security module (AppArmor, SELinux)"}},
		"LSM":            {with(separate, func(i *Isolation) { i.LSM = true }), LayeredIsolation, []string{"a kernel of its own"}},
		"user namespace": {with(separate, func(i *Isolation) { i.UserNamespace = true }), LayeredIsolation, []string{"a kernel of its own"}},
		"own kernel":     {Isolation{OwnKernel: true}, KernelIsolation, nil},
		"all":            {Isolation{false, true, true, true, true, true, true}, KernelIsolation, nil},
	} {
		t.Run(name, func(t *testing.T) {
			grade, missing := c.facts.Grade()
			require.Equal(t, c.grade, grade)
			require.Equal(t, c.missing, missing)
			at := slices.Index(IsolationGrades(), grade)
			for n, least := range IsolationGrades() {
				err := c.facts.AtLeast(least)
				require.Equal(t, n <= at, err == nil, "%s: %v", least, err)
			}
			require.NoError(t, c.facts.AtLeast(""))
		})
	}
}

func TestIsolationThatIsTooWeakSaysWhatIsMissing(t *testing.T) {
	err := Isolation{Seccomp: true, Terminals: true}.AtLeast(LayeredIsolation)
	require.EqualError(t, err, `isolation "layered": this run gets "basic": it lacks a user ID that no other run has, and `+
		"a user namespace or a security module (AppArmor, SELinux)")
	var field *FieldError
	require.ErrorAs(t, err, &field)
	require.Contains(t, field.Hint, "run as root")
	require.Contains(t, field.Hint, "userns-remap")

	err = separate.AtLeast("strong")
	require.EqualError(t, err, `isolation "strong": must be one of weak, basic, separate, layered, own_kernel`)
}
