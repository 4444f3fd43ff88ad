package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

func observeRequest() request {
	req := scriptRequest()
	req.Trees = []spec.Tree{{Source: "/home/ada/repo", Target: spec.RepoDir}}
	req.Masks = []string{"/repo/keys/", "/repo/.env"}
	req.Observe = &spec.Observe{Network: true, Masks: true, Canaries: []string{"/root/.ssh", "~/.ssh/", "/etc/shadow", "/repo/.env", "/work/input/token"}}
	return req
}

func TestPlanObserveGolden(t *testing.T) {
	got, err := planOf(observeRequest(), policy.Policy{})
	require.NoError(t, err)
	treetest.GoldenJSON(t, "testdata/spec-observe.json", got)

	// What keeps the program in is that of a run that nobody observes.
	req := observeRequest()
	req.Observe = nil
	plain, err := planOf(req, policy.Policy{})
	require.NoError(t, err)
	require.Equal(t, plain.Class.Cgroup, got.Class.Cgroup)
	require.Equal(t, plain.Class.Seccomp, got.Class.Seccomp)
	require.Equal(t, plain.Class.Network, got.Class.Network)
	require.Equal(t, plain.Job.Command, got.Job.Command)
	require.Equal(t, plain.Job.Trees, got.Job.Trees)
	for _, b := range got.Class.Binds[len(plain.Class.Binds):] {
		require.True(t, b.ReadOnly, b.Target)
	}
}

// TestPlanObserveNothing: a request that asks for nothing is that of a run which nobody
// observes.
func TestPlanObserveNothing(t *testing.T) {
	want, err := planOf(scriptRequest(), policy.Policy{})
	require.NoError(t, err)
	for _, o := range []*spec.Observe{{}, {Required: true}} {
		req := scriptRequest()
		req.Observe = o
		got, err := planOf(req, policy.Policy{})
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// TestPlanObserveParts: only what is asked for changes the container, and counting needs
// nothing but the file that shows that somebody looks.
func TestPlanObserveParts(t *testing.T) {
	hold := spec.Bind{Role: "hold", Target: "/run/evalbox-hold", ReadOnly: true}
	for name, test := range map[string]struct {
		change func(req *request)
		check  func(t *testing.T, got spec.Spec)
	}{
		"network": {func(req *request) { req.Observe = &spec.Observe{Network: true} }, func(t *testing.T, got spec.Spec) {
			plain, err := planOf(scriptRequest(), openPolicy)
			require.NoError(t, err)
			require.Empty(t, got.Job.Observe.Watched)
			require.Contains(t, got.Class.Binds, hold)
			got.Class.Binds = got.Class.Binds[:len(got.Class.Binds)-1]
			require.Equal(t, plain.Class, got.Class)
		}},
		"decoys": {func(req *request) { req.Observe = &spec.Observe{Canaries: []string{"/root/.aws/"}} }, func(t *testing.T, got spec.Spec) {
			require.Contains(t, got.Class.Binds, hold)
			require.Equal(t, []spec.WatchedPath{{Target: "/root/.aws", Dir: true, Canary: true}}, got.Job.Observe.Watched)
		}},
		"the home of the program": {func(req *request) {
			req.Env = map[string]string{"HOME": "/work"}
			req.Observe = &spec.Observe{Canaries: []string{"~/.netrc"}}
		}, func(t *testing.T, got spec.Spec) {
			require.Equal(t, []spec.WatchedPath{{Target: "/work/.netrc", Canary: true}}, got.Job.Observe.Watched)
		}},
		"masks that are not watched stay as they are": {func(req *request) {
			req.Masks, req.Observe = []string{"/work/input/a", "/work/input/b"}, &spec.Observe{Canaries: []string{"/work/input/b"}}
		}, func(t *testing.T, got spec.Spec) {
			require.Equal(t, []spec.Mask{{Target: "/work/input/a"}, {Target: "/work/input/b", Role: "watch-0"}}, got.Class.Masks)
		}},
		"masks without any": {func(req *request) { req.Observe = &spec.Observe{Masks: true} }, func(t *testing.T, got spec.Spec) {
			require.NotContains(t, got.Class.Binds, hold)
			require.NotNil(t, got.Job.Observe)
		}},
		"beside a proxy": {func(req *request) {
			req.Egress, req.Observe = &policy.Egress{Level: policy.API, Resolve: map[string][]netip.Addr{}}, &spec.Observe{Network: true}
		}, func(t *testing.T, got spec.Spec) {
			require.Contains(t, got.Class.Binds, hold)
			require.NotNil(t, got.Job.Egress)
		}},
		"no processes": {func(req *request) { req.NoFork, req.Observe = true, &spec.Observe{Network: true} }, func(t *testing.T, got spec.Spec) {
			require.Contains(t, got.Class.Binds, hold)
			require.True(t, got.Job.NoFork)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			req := scriptRequest()
			test.change(&req)
			got, err := planOf(req, openPolicy)
			require.NoError(t, err)
			test.check(t, got)
		})
	}
}

// TestPlanObserveImpossible: what cannot be observed is not, the reason is in the plan,
// and it is an error when it is required.
func TestPlanObserveImpossible(t *testing.T) {
	for name, test := range map[string]struct {
		change                  func(req *request)
		networkWhy, watchWhy    string
		hasWitness, hasNoDecoys bool
	}{
		"copied files":                   {func(req *request) { req.Transfer = spec.TransferCopy }, "does not share files", "does not share files", false, true},
		"gVisor":                         {func(req *request) { req.Runtime = "runsc" }, "kernel of its own", "kernel of its own", false, true},
		"gVisor as the engine's default": {func(req *request) { req.Host.DefaultRuntime = "runsc-kvm" }, "runsc-kvm", "runsc-kvm", false, true},
		"another machine":                {func(req *request) { req.Host.Unseen = "far away" }, "far away", "far away", false, true},
		"a network":                      {func(req *request) { req.Network = "bridge" }, `network "bridge"`, "", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			req := scriptRequest()
			req.Masks = []string{"/work/input/a"}
			req.Observe = &spec.Observe{Network: true, Masks: true, Canaries: []string{"/etc/shadow"}}
			test.change(&req)
			got, err := planOf(req, openPolicy)
			require.NoError(t, err)
			o := got.Job.Observe
			require.False(t, o.Network)
			require.Contains(t, o.NetworkReason, test.networkWhy)
			require.Contains(t, o.WatchedReason, test.watchWhy)
			require.Equal(t, test.watchWhy == "", o.WatchedReason == "")
			witness := slices.ContainsFunc(got.Class.Binds, func(b spec.Bind) bool { return b.Role == "hold" })
			require.Equal(t, test.hasWitness, witness)
			require.Equal(t, test.hasNoDecoys, len(o.Watched) == 0)
			require.Len(t, got.Class.Masks, 1, "what is hidden stays hidden")
			req.Observe.Required = true
			_, err = planOf(req, openPolicy)
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
		"/repo/keys/id_rsa":         "a directory that a mask hides",
		"/root/.ssh/id_rsa":         "lies in, another decoy",
		"/root/.ssh/":               "is, or lies in, another decoy",
	} {
		t.Run(decoy, func(t *testing.T) {
			req := observeRequest()
			req.Observe.Canaries = append(req.Observe.Canaries, decoy)
			_, err := planOf(req, policy.Policy{})
			var field *policy.FieldError
			require.ErrorAs(t, err, &field)
			require.Equal(t, "decoy", field.Field)
			require.ErrorContains(t, err, want)
		})
	}
	req := observeRequest()
	for i := range spec.MaxWatched {
		req.Observe.Canaries = append(req.Observe.Canaries, fmt.Sprintf("/opt/%d", i))
	}
	_, err := planOf(req, policy.Policy{})
	require.ErrorContains(t, err, "at most 256 can be watched")
}
