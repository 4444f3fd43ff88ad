package sandbox

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
)

func observeRequest() Request {
	req := scriptRequest()
	req.Trees = []Tree{{Source: "/home/ada/repo", Target: RepoDir}}
	req.Masks = []string{"/repo/keys/", "/repo/.env"}
	req.Observe = &Observe{Network: true, Masks: true, Decoys: []string{"/root/.ssh", "~/.ssh/", "/etc/shadow", "/repo/.env", "/work/input/token"}}
	return req
}

func TestPlanObserveGolden(t *testing.T) {
	spec, err := Plan(observeRequest(), policy.Policy{})
	require.NoError(t, err)
	requireGolden(t, "spec-observe.json", spec)

	// What keeps the program in is that of a run that nobody observes.
	req := observeRequest()
	req.Observe = nil
	plain, err := Plan(req, policy.Policy{})
	require.NoError(t, err)
	require.Equal(t, plain.Class.Cgroup, spec.Class.Cgroup)
	require.Equal(t, plain.Class.Seccomp, spec.Class.Seccomp)
	require.Equal(t, plain.Class.Network, spec.Class.Network)
	require.Equal(t, plain.Job.Command, spec.Job.Command)
	require.Equal(t, plain.Job.Trees, spec.Job.Trees)
	for _, b := range spec.Class.Binds[len(plain.Class.Binds):] {
		require.True(t, b.ReadOnly, b.Target)
	}
}

// TestPlanObserveNothing: a request that asks for nothing is that of a run which nobody
// observes.
func TestPlanObserveNothing(t *testing.T) {
	want, err := Plan(scriptRequest(), policy.Policy{})
	require.NoError(t, err)
	for _, o := range []*Observe{{}, {Required: true}} {
		req := scriptRequest()
		req.Observe = o
		got, err := Plan(req, policy.Policy{})
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// TestPlanObserveParts: only what is asked for changes the container, and counting needs
// nothing but the file that shows that somebody looks.
func TestPlanObserveParts(t *testing.T) {
	hold := Bind{Role: "hold", Target: "/run/evalbox-hold", ReadOnly: true}
	for name, test := range map[string]struct {
		change func(req *Request)
		check  func(t *testing.T, spec Spec)
	}{
		"network": {func(req *Request) { req.Observe = &Observe{Network: true} }, func(t *testing.T, spec Spec) {
			plain, err := Plan(scriptRequest(), openPolicy)
			require.NoError(t, err)
			require.Empty(t, spec.Job.Observe.Watch)
			require.Contains(t, spec.Class.Binds, hold)
			spec.Class.Binds = spec.Class.Binds[:len(spec.Class.Binds)-1]
			require.Equal(t, plain.Class, spec.Class)
		}},
		"decoys": {func(req *Request) { req.Observe = &Observe{Decoys: []string{"/root/.aws/"}} }, func(t *testing.T, spec Spec) {
			require.Contains(t, spec.Class.Binds, hold)
			require.Equal(t, []Watch{{Target: "/root/.aws", Folder: true, Decoy: true}}, spec.Job.Observe.Watch)
		}},
		"the home of the program": {func(req *Request) {
			req.Env = map[string]string{"HOME": "/work"}
			req.Observe = &Observe{Decoys: []string{"~/.netrc"}}
		}, func(t *testing.T, spec Spec) {
			require.Equal(t, []Watch{{Target: "/work/.netrc", Decoy: true}}, spec.Job.Observe.Watch)
		}},
		"masks that are not watched stay as they are": {func(req *Request) {
			req.Masks, req.Observe = []string{"/work/input/a", "/work/input/b"}, &Observe{Decoys: []string{"/work/input/b"}}
		}, func(t *testing.T, spec Spec) {
			require.Equal(t, []Mask{{Target: "/work/input/a"}, {Target: "/work/input/b", Role: "watch-0"}}, spec.Class.Masks)
		}},
		"masks without any": {func(req *Request) { req.Observe = &Observe{Masks: true} }, func(t *testing.T, spec Spec) {
			require.NotContains(t, spec.Class.Binds, hold)
			require.NotNil(t, spec.Job.Observe)
		}},
		"beside a proxy": {func(req *Request) {
			req.Egress, req.Observe = &policy.Egress{Level: policy.API, Resolve: map[string][]netip.Addr{}}, &Observe{Network: true}
		}, func(t *testing.T, spec Spec) {
			require.Contains(t, spec.Class.Binds, hold)
			require.NotNil(t, spec.Job.Egress)
		}},
		"no processes": {func(req *Request) { req.NoFork, req.Observe = true, &Observe{Network: true} }, func(t *testing.T, spec Spec) {
			require.Contains(t, spec.Class.Binds, hold)
			require.True(t, spec.Job.NoFork)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			req := scriptRequest()
			test.change(&req)
			spec, err := Plan(req, openPolicy)
			require.NoError(t, err)
			test.check(t, spec)
		})
	}
}

// TestPlanObserveImpossible: what cannot be observed is not, the reason is in the plan,
// and it is an error when it is required.
func TestPlanObserveImpossible(t *testing.T) {
	for name, test := range map[string]struct {
		change                  func(req *Request)
		networkWhy, watchWhy    string
		hasWitness, hasNoDecoys bool
	}{
		"copied files":                   {func(req *Request) { req.Transfer = TransferCopy }, "does not share files", "does not share files", false, true},
		"gVisor":                         {func(req *Request) { req.Runtime = "runsc" }, "kernel of its own", "kernel of its own", false, true},
		"gVisor as the engine's default": {func(req *Request) { req.Host.DefaultRuntime = "runsc-kvm" }, "runsc-kvm", "runsc-kvm", false, true},
		"another machine":                {func(req *Request) { req.Host.Unseen = "far away" }, "far away", "far away", false, true},
		"a network":                      {func(req *Request) { req.Network = "bridge" }, `network "bridge"`, "", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			req := scriptRequest()
			req.Masks = []string{"/work/input/a"}
			req.Observe = &Observe{Network: true, Masks: true, Decoys: []string{"/etc/shadow"}}
			test.change(&req)
			spec, err := Plan(req, openPolicy)
			require.NoError(t, err)
			o := spec.Job.Observe
			require.False(t, o.Network)
			require.Contains(t, o.NetworkWhy, test.networkWhy)
			require.Contains(t, o.WatchWhy, test.watchWhy)
			require.Equal(t, test.watchWhy == "", o.WatchWhy == "")
			witness := slices.ContainsFunc(spec.Class.Binds, func(b Bind) bool { return b.Role == "hold" })
			require.Equal(t, test.hasWitness, witness)
			require.Equal(t, test.hasNoDecoys, len(o.Watch) == 0)
			require.Len(t, spec.Class.Masks, 1, "what is hidden stays hidden")
			req.Observe.Required = true
			_, err = Plan(req, openPolicy)
			var field *policy.FieldError
			require.ErrorAs(t, err, &field)
			require.Equal(t, "observe", field.Field)
			require.ErrorContains(t, err, "are required, and cannot be observed: ")
		})
	}
}

func TestPlanObserveRefuses(t *testing.T) {
	for decoy, want := range map[string]string{
		"etc/shadow":                "clean absolute path",
		"":                          "clean absolute path",
		"/":                         "clean absolute path",
		"/etc//shadow":              "clean absolute path",
		"/etc/../etc/shadow":        "clean absolute path",
		"~":                         "clean absolute path",
		"~ada/.ssh":                 "clean absolute path",
		"~/":                        "needs as it is",
		"/proc":                     "needs as it is",
		"/proc/1/environ":           "needs as it is",
		"/sys/kernel":               "needs as it is",
		"/dev/sda":                  "needs as it is",
		"/run/evalbox-hold/witness": "needs as it is",
		"/var/run/docker.sock":      "needs as it is",
		"/usr/bin/python3":          "needs as it is",
		"/etc":                      "needs as it is",
		"/etc/hosts":                "needs as it is",
		"/tmp":                      "needs as it is",
		"/work":                     "needs as it is",
		"/work/input":               "needs as it is",
		"/work/final/x":             "needs as it is",
		"/work/train.py":            "where the program is",
		"/repo":                     "hides the mount /repo",
		"/repo/keys/id_rsa":         "a folder that a mask hides",
		"/root/.ssh/id_rsa":         "lies in, another decoy",
		"/root/.ssh/":               "is, or lies in, another decoy",
	} {
		t.Run(decoy, func(t *testing.T) {
			req := observeRequest()
			req.Observe.Decoys = append(req.Observe.Decoys, decoy)
			_, err := Plan(req, policy.Policy{})
			var field *policy.FieldError
			require.ErrorAs(t, err, &field)
			require.Equal(t, "decoy", field.Field)
			require.ErrorContains(t, err, want)
		})
	}
	req := observeRequest()
	for i := range maxWatched {
		req.Observe.Decoys = append(req.Observe.Decoys, fmt.Sprintf("/opt/%d", i))
	}
	_, err := Plan(req, policy.Policy{})
	require.ErrorContains(t, err, "at most 256 can be watched")
}
