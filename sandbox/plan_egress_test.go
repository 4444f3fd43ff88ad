package sandbox

import (
	"bufio"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/spec"
)

var openPolicy = policy.Policy{AllowEgress: policy.Open, AllowPrivateEgress: true, AllowNetwork: true}

func egressRequest() Request {
	req := scriptRequest()
	req.Egress = &policy.Egress{Level: policy.API, Allow: []string{"API.example.org"}, Deny: []string{"10.0.0.0/8"},
		Resolve: map[string][]netip.Addr{"api.example.org": {netip.MustParseAddr("192.0.2.7")}}}
	return req
}

func TestPlanEgressGolden(t *testing.T) {
	spec, err := Plan(egressRequest(), openPolicy)
	require.NoError(t, err)
	requireGolden(t, "spec-egress.json", spec)

	// Beside what leads to the proxy, nothing differs from a run without one.
	plain, err := Plan(scriptRequest(), openPolicy)
	require.NoError(t, err)
	require.Equal(t, "none", spec.Class.Network)
	require.Equal(t, plain.Class.Cgroup, spec.Class.Cgroup)
	require.Equal(t, plain.Class.CapDrop, spec.Class.CapDrop)
	require.Equal(t, plain.Class.Seccomp, spec.Class.Seccomp)
	require.Equal(t, plain.Job.Command, spec.Job.Command)
	last := len(plain.Class.Binds)
	require.Equal(t, plain.Class.Binds, spec.Class.Binds[:last])
	require.Equal(t, []Bind{{Role: "egress", Target: "/run/evalbox", ReadOnly: true}}, spec.Class.Binds[last:])
}

func TestPlanEgressOffline(t *testing.T) {
	want, err := Plan(scriptRequest(), policy.Policy{})
	require.NoError(t, err)
	for _, egress := range []*policy.Egress{{}, {Level: policy.Offline, Allow: []string{"a.example"}}} {
		req := scriptRequest()
		req.Egress = egress
		got, err := Plan(req, policy.Policy{})
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestPlanEgressRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		change func(req *Request)
		want   string
	}{
		"another network": {func(req *Request) { req.Network = "bridge" }, `together with the network "bridge"`},
		"copied files":    {func(req *Request) { req.Transfer = TransferCopy }, "cannot reach the proxy"},
		"own proxy":       {func(req *Request) { req.Env = map[string]string{"https_proxy": "http://evil"} }, `env "https_proxy": is set by the network level`},
		"no exceptions":   {func(req *Request) { req.Env = map[string]string{"NO_PROXY": "*"} }, `env "NO_PROXY"`},
		"pattern":         {func(req *Request) { req.Egress.Allow = []string{"*"} }, `allow-host "*"`},
	} {
		t.Run(name, func(t *testing.T) {
			req := egressRequest()
			test.change(&req)
			_, err := Plan(req, openPolicy)
			var field *policy.FieldError
			require.ErrorAs(t, err, &field)
			require.ErrorContains(t, err, test.want)
		})
	}
	_, err := Plan(egressRequest(), policy.Policy{})
	require.ErrorContains(t, err, "the policy permits offline at most")
}

// TestPlanEgressTakesNoProcesses: a program that may start none can have a level, and
// few processes do not mean few connections.
func TestPlanEgressTakesNoProcesses(t *testing.T) {
	req := egressRequest()
	req.NoFork, req.Limits.PIDs = true, 1
	spec, err := Plan(req, openPolicy)
	require.NoError(t, err)
	require.EqualValues(t, 1, spec.Class.Cgroup.PIDs)
	require.Equal(t, 64, spec.Job.Egress.Connections)
	req.Egress.Limits.Connections = 20
	spec, err = Plan(req, openPolicy)
	require.NoError(t, err)
	require.Equal(t, 20, spec.Job.Egress.Connections)
}

// The proxy is there while the program runs, and only then.
func TestEgressOfARun(t *testing.T) {
	var during string
	var socket string
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		socket = p.Path(spec.EgressDir + "/" + spec.EgressSocket)
		folder, err := os.Open(filepath.Dir(socket))
		if err != nil {
			return 1
		}
		defer folder.Close()
		t.Chdir(filepath.Dir(socket)) // a short name
		conn, err := net.Dial("unix", spec.EgressSocket)
		if err != nil {
			during = err.Error()
			return 1
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("GET http://evil.example/ HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
			return 1
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return 1
		}
		defer answer.Body.Close()
		during = answer.Status
		return 0
	})
	r := newFakeRunner(t, fake, WithPolicy(openPolicy), WithStateDir(filepath.Join(t.TempDir(), strings.Repeat("long", 30))))
	req := command("true")
	req.Egress = &policy.Egress{Level: policy.API, Allow: []string{"a.example"}}
	res, err := r.Run(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, "403 Forbidden", during)
	require.Zero(t, res.ExitCode)
	require.Equal(t, &result.Network{Level: "api", Allow: []string{"a.example"}, Deny: []string{}, Requests: 1, Refused: 1, Log: "network.jsonl"}, res.Network)
	require.NoDirExists(t, filepath.Dir(socket))
	record, err := r.Store().Get("r1")
	require.NoError(t, err)
	log, err := os.ReadFile(filepath.Join(record.Dir, networkFile))
	require.NoError(t, err)
	require.Contains(t, string(log), `"host":"evil.example"`)
	info, err := os.Stat(filepath.Join(record.Dir, networkFile))
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())
	require.NotNil(t, record.Spec.Job.Egress)
}

// A run that never starts leaves no proxy.
func TestEgressOfARunThatFails(t *testing.T) {
	fake := enginetest.NewFake(func(*enginetest.Program) int { return 0 })
	fake.Fail.Prepare = ErrEngineUnavailable
	r := newFakeRunner(t, fake, WithPolicy(openPolicy))
	req := command("true")
	req.Egress = &policy.Egress{Level: policy.API}
	_, err := r.Run(t.Context(), req)
	require.ErrorIs(t, err, ErrEngineUnavailable)
	require.Empty(t, leftBehind(t, r, fake))
}
