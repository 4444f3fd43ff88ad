package plan

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

var openPolicy = policy.Policy{AllowEgress: policy.Open, AllowPrivateEgress: true, AllowNetwork: true}

func egressRequest() request {
	req := scriptRequest()
	req.Egress = &policy.Egress{Level: policy.API, Allow: []string{"API.example.org"}, Deny: []string{"10.0.0.0/8"},
		Resolve: map[string][]netip.Addr{"api.example.org": {netip.MustParseAddr("192.0.2.7")}}}
	return req
}

func TestPlanEgressGolden(t *testing.T) {
	got, err := planOf(egressRequest(), openPolicy)
	require.NoError(t, err)
	treetest.GoldenJSON(t, "testdata/spec-egress.json", got)

	// Beside what leads to the proxy, nothing differs from a run without one.
	plain, err := planOf(scriptRequest(), openPolicy)
	require.NoError(t, err)
	require.Equal(t, "none", got.Class.Network)
	require.Equal(t, plain.Class.Cgroup, got.Class.Cgroup)
	require.Equal(t, plain.Class.CapDrop, got.Class.CapDrop)
	require.Equal(t, plain.Class.Seccomp, got.Class.Seccomp)
	require.Equal(t, plain.Job.Command, got.Job.Command)
	last := len(plain.Class.Binds)
	require.Equal(t, plain.Class.Binds, got.Class.Binds[:last])
	require.Equal(t, []spec.Bind{{Role: "egress", Target: "/run/evalbox", ReadOnly: true}}, got.Class.Binds[last:])
}

func TestPlanEgressOffline(t *testing.T) {
	want, err := planOf(scriptRequest(), policy.Policy{})
	require.NoError(t, err)
	for _, egress := range []*policy.Egress{{}, {Level: policy.Offline, Allow: []string{"a.example"}}} {
		req := scriptRequest()
		req.Egress = egress
		got, err := planOf(req, policy.Policy{})
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestPlanEgressRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		change func(req *request)
		want   string
	}{
		"another network": {func(req *request) { req.Network = "bridge" }, `together with the network "bridge"`},
		"copied files":    {func(req *request) { req.Transfer = spec.TransferCopy }, "cannot reach the proxy"},
		"own proxy":       {func(req *request) { req.Env = map[string]string{"https_proxy": "http://evil"} }, `env "https_proxy": is set by the network level`},
		"a secret proxy":  {func(req *request) { req.Secrets = []spec.Secret{{Name: "HTTP_PROXY"}} }, `secret "HTTP_PROXY": is set by the network level`},
		"no exceptions":   {func(req *request) { req.Env = map[string]string{"NO_PROXY": "*"} }, `env "NO_PROXY"`},
		"pattern":         {func(req *request) { req.Egress.Allow = []string{"*"} }, `allow-host "*"`},
	} {
		t.Run(name, func(t *testing.T) {
			req := egressRequest()
			test.change(&req)
			_, err := planOf(req, openPolicy)
			var field *policy.FieldError
			require.ErrorAs(t, err, &field)
			require.ErrorContains(t, err, test.want)
		})
	}
	_, err := planOf(egressRequest(), policy.Policy{})
	require.ErrorContains(t, err, "the policy permits offline at most")
}

// TestPlanEgressTakesNoProcesses: a program that may start none can have a level, and
// few processes do not mean few connections.
func TestPlanEgressTakesNoProcesses(t *testing.T) {
	req := egressRequest()
	req.NoFork, req.Limits.PIDs = true, 1
	got, err := planOf(req, openPolicy)
	require.NoError(t, err)
	require.EqualValues(t, 1, got.Class.Cgroup.PIDs)
	require.Equal(t, 64, got.Job.Egress.Connections)
	req.Egress.Limits.Connections = 20
	got, err = planOf(req, openPolicy)
	require.NoError(t, err)
	require.Equal(t, 20, got.Job.Egress.Connections)
}
