package plan_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/plan"
	"github.com/evalbox/evalbox/sandbox/spec"
)

func TestIsolationOfAPlan(t *testing.T) {
	engine := spec.Host{Seccomp: true, OwnUIDs: true, DefaultRuntime: "runc"}
	for name, c := range map[string]struct {
		user, runtime string
		host          spec.Host
		own           bool
		want          policy.Isolation
	}{
		"leased":        {user: spec.LeasedUser, host: engine, own: true, want: policy.Isolation{Seccomp: true, OwnUID: true, Terminals: true}},
		"shared":        {user: spec.DedicatedUser, host: engine, want: policy.Isolation{Seccomp: true, Terminals: true}},
		"root":          {user: "0:5", host: engine, want: policy.Isolation{Root: true, Seccomp: true, Terminals: true}},
		"group of root": {user: "5:0", host: engine, want: policy.Isolation{Root: true, Seccomp: true, Terminals: true}},
		"gVisor":        {user: "5:5", runtime: "runsc", host: engine, want: policy.Isolation{OwnKernel: true}},
		"gVisor by default": {user: "5:5", host: spec.Host{Seccomp: true, DefaultRuntime: "runsc-kvm"},
			want: policy.Isolation{OwnKernel: true}},
		"layers": {user: "5:5", host: spec.Host{Seccomp: true, UserNamespace: true, LSM: true},
			want: policy.Isolation{Seccomp: true, UserNamespace: true, LSM: true, Terminals: true}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, plan.Isolation(spec.Class{User: c.user, Runtime: c.runtime}, c.host, c.own))
		})
	}
}

func TestIsolationThatIsTooWeakIsRefused(t *testing.T) {
	host := spec.Host{Seccomp: true, OwnUIDs: true}
	elsewhere := spec.Host{Seccomp: true}
	for name, c := range map[string]struct {
		user       string
		host       spec.Host
		asked, min policy.IsolationGrade
		want       string
	}{
		"nothing demanded":         {host: spec.Host{}},
		"enough":                   {host: host, asked: policy.SeparateIsolation, min: policy.BasicIsolation},
		"too little for the run":   {host: host, asked: policy.LayeredIsolation, want: `isolation "layered": this run gets "separate"`},
		"too little by the policy": {host: host, asked: policy.BasicIsolation, min: policy.KernelIsolation, want: `min_isolation "own_kernel": this run gets "separate"`},
		"a user of its choice":     {user: "5:5", host: host, min: policy.SeparateIsolation, want: "it lacks a user ID that no other run has"},
		"an engine elsewhere":      {host: elsewhere, min: policy.SeparateIsolation, want: "it lacks a user ID that no other run has"},
		"a typing mistake":         {host: host, asked: "seprate", want: "must be one of"},
		"a mistake of the policy":  {host: host, min: "seprate", want: "must be one of"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := plan.Plan(spec.Request{Image: "debian", Command: []string{"true"}, User: c.user, Isolation: c.asked}, spec.Layout{},
				policy.Policy{MinIsolation: c.min}, c.host)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			var field *policy.FieldError
			require.ErrorAs(t, err, &field)
			require.ErrorContains(t, err, c.want)
		})
	}
}
