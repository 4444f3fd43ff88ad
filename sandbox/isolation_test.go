package sandbox

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// TestIsolationIsWhatInitConfirms: a grade is never better than what is in force.
func TestIsolationIsWhatInitConfirms(t *testing.T) {
	all := policy.Isolation{Seccomp: true, UserNamespace: true, LSM: true, OwnUID: true, Terminals: true}
	good := wire.Ready{Build: "b", UID: 5, GID: 5, Seccomp: 2, Mounts: []wire.Mount{{Target: spec.TerminalsDir, Super: "rw,mode=620,max=32"}}}
	for name, c := range map[string]struct {
		is   policy.Isolation
		seen func(*wire.Ready)
		want func(*policy.Isolation)
	}{
		"confirmed":           {all, func(*wire.Ready) {}, func(*policy.Isolation) {}},
		"no filter":           {all, func(r *wire.Ready) { r.Seccomp = 0 }, func(i *policy.Isolation) { i.Seccomp = false }},
		"root":                {all, func(r *wire.Ready) { r.UID = 0 }, func(i *policy.Isolation) { i.Root = true }},
		"root's group":        {all, func(r *wire.Ready) { r.GID = 0 }, func(i *policy.Isolation) { i.Root = true }},
		"no terminals":        {all, func(r *wire.Ready) { r.Mounts = nil }, func(i *policy.Isolation) { i.Terminals = false }},
		"unbounded terminals": {all, func(r *wire.Ready) { r.Mounts[0].Super = "rw,mode=620" }, func(i *policy.Isolation) { i.Terminals = false }},
		"other bound":         {all, func(r *wire.Ready) { r.Mounts[0].Super = "rw,max=320" }, func(i *policy.Isolation) { i.Terminals = false }},
		"not planned":         {policy.Isolation{}, func(*wire.Ready) {}, func(i *policy.Isolation) { *i = policy.Isolation{Terminals: true} }},
		"unknown":             {all, func(r *wire.Ready) { *r = wire.Ready{} }, func(*policy.Isolation) {}},
		"own kernel": {policy.Isolation{OwnKernel: true}, func(r *wire.Ready) { r.Seccomp, r.Mounts = 0, nil },
			func(*policy.Isolation) {}},
	} {
		t.Run(name, func(t *testing.T) {
			seen, want := good, c.is
			seen.Mounts = slices.Clone(good.Mounts)
			c.seen(&seen)
			c.want(&want)
			require.Equal(t, want, isolationSeen(c.is, seen))
		})
	}
}

// TestResultSaysHowARunWasIsolated, with the grade of this caller.
func TestResultSaysHowARunWasIsolated(t *testing.T) {
	own, grade, missing := result.OwnUID, "layered", []string{"a kernel of its own"}
	if os.Getuid() > 0 {
		own, grade, missing = result.SharedUID, "basic", []string{"a user ID that no other run has"}
	}
	fake := enginetest.NewFake(nil)
	fake.Facts.LSM = "apparmor"
	r := newFakeRunner(t, fake)
	res, err := r.Run(t.Context(), command("true"))
	require.NoError(t, err)
	require.Equal(t, result.Isolation{Grade: grade, Missing: missing, Runtime: res.Enforced.Runtime, Seccomp: res.Enforced.Seccomp,
		LSM: "apparmor", UID: own, TerminalsBounded: true}, res.Enforced.Isolation)

	req := command("true")
	req.ID, req.User = "r2", "4711:4711"
	if os.Getuid() > 0 {
		req.User = defaultUser(os.Getuid(), os.Getgid())
	}
	res, err = r.Run(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, result.SharedUID, res.Enforced.Isolation.UID)
	require.Equal(t, "basic", res.Enforced.Isolation.Grade)

	fake.Facts.Local = false
	req = command("true")
	req.ID, req.Transfer = "r3", spec.TransferBind
	r = newFakeRunner(t, fake)
	res, err = r.Run(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, result.SharedUID, res.Enforced.Isolation.UID, "its other clients could use the same")
}

func TestRunThatWouldBeLessIsolatedIsRefused(t *testing.T) {
	fake := enginetest.NewFake(nil)
	r := newFakeRunner(t, fake)
	req := command("true")
	req.Isolation = policy.KernelIsolation
	_, err := r.Run(t.Context(), req)
	var field *policy.FieldError
	require.ErrorAs(t, err, &field)
	require.ErrorContains(t, err, "a kernel of its own")
	require.Empty(t, fake.Created)
	require.Empty(t, leftBehind(t, r, fake))
	require.NoFileExists(t, r.users.dir, "nothing was leased")

	// The container is not what its engine says: the program does not start.
	fake.Ready = func(_ spec.Class, _ engine.Meta, seen *wire.Ready) {
		seen.Mounts = slices.DeleteFunc(seen.Mounts, func(m wire.Mount) bool { return m.Target == spec.TerminalsDir })
	}
	fake.Facts.UserNamespace = true
	r = newFakeRunner(t, fake, WithPolicy(policy.Policy{MinIsolation: policy.SeparateIsolation}))
	_, err = r.Run(t.Context(), command("true"))
	require.ErrorAs(t, err, &field)
	if os.Getuid() == 0 {
		require.ErrorContains(t, err, "a bound on pseudo-terminals")
		require.Len(t, fake.Created, 1)
	}
	require.Empty(t, leftBehind(t, r, fake))
}
