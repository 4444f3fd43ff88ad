package sandbox

import (
	"bufio"
	"fmt"
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
	spec.Class.Image.ID = "sha256:0123"
	config, host, err := createRequest(spec, HostPaths{RoleInput: "/h/input", RoleFinal: "/h/final", RoleProgram: "/h/train.py", RoleEgress: "/h/egress"}, nil)
	require.NoError(t, err)
	host.SecurityOpt[0] = "seccomp=(" + seccompName + ")"
	requireGolden(t, "create-egress.json", createBody{config, host})

	// Beside what leads to the proxy, nothing differs from a run without one.
	plain, err := Plan(scriptRequest(), openPolicy)
	require.NoError(t, err)
	require.Equal(t, "none", spec.Class.Network)
	require.Equal(t, plain.Class.Cgroup.PIDs+66, spec.Class.Cgroup.PIDs)
	require.Equal(t, plain.Class.CapDrop, spec.Class.CapDrop)
	require.Equal(t, plain.Class.Seccomp, spec.Class.Seccomp)
	require.Equal(t, plain.Job.Command, spec.Job.Command)
	require.Empty(t, plain.Class.Launcher)
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
		"no fork":         {func(req *Request) { req.NoFork = true }, "may have none (no fork)"},
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

func TestLaunchFailure(t *testing.T) {
	for stderr, want := range map[string]struct {
		why  string
		code int
	}{
		"": {}, "text\n": {},
		"[FATAL evalbox launch] no way\n":         {"no way", 125},
		"[FATAL evalbox launch] no way":           {},
		"before\n[FATAL evalbox launch] no way\n": {},
		"/run/evalbox/launch: 30: exec: foo: not found\n[FATAL evalbox launch] exec failed: 127\n":         {"", 127},
		"/run/evalbox/launch: 30: exec: foo: Permission denied\n[FATAL evalbox launch] exec failed: 126\n": {"", 126},
		"/run/evalbox/launch: 30: exec: foo: not found\n[FATAL evalbox launch] exec failed: 3\n":           {},
		"foo\n[FATAL evalbox launch] exec failed: 127\n":                                                   {},
		"[FATAL evalbox launch] exec failed: 127\n":                                                        {},
	} {
		why, code := launchFailure(EgressDir+"/"+launchFile, 0, stderr)
		require.Equal(t, want.why, why, stderr)
		require.Equal(t, want.code, code, stderr)
		why, code = launchFailure(EgressDir+"/"+launchFile, 1, stderr)
		require.Empty(t, why)
		require.Zero(t, code, "a program that prints has run")
	}
}

// The proxy is there while the program runs, and only then.
func TestEgressOfARun(t *testing.T) {
	var during string
	var socket string
	var engine *fakeEngine
	engine = newFakeEngine(func(*fakeContainer) int {
		engine.mu.Lock()
		socket = filepath.Join(engine.mounts[RoleEgress], socketFile)
		engine.mu.Unlock()
		folder, err := os.Open(filepath.Dir(socket))
		if err != nil {
			return 1
		}
		defer folder.Close()
		t.Chdir(filepath.Dir(socket)) // a short name
		conn, err := net.Dial("unix", socketFile)
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
	r, err := New(WithEngine(engine), WithStateDir(filepath.Join(t.TempDir(), strings.Repeat("long", 30))), WithPolicy(openPolicy))
	require.NoError(t, err)
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
	engine := newFakeEngine(func(*fakeContainer) int { return 0 })
	engine.createErr = ErrEngineUnavailable
	r, err := New(WithEngine(engine), WithStateDir(filepath.Join(t.TempDir(), "state")), WithPolicy(openPolicy))
	require.NoError(t, err)
	req := command("true")
	req.Egress = &policy.Egress{Level: policy.API}
	_, err = r.Run(t.Context(), req)
	require.ErrorIs(t, err, ErrEngineUnavailable)
	require.Empty(t, leftBehind(t, r, engine))
}

// TestPlanEgressFewProcesses: what is for connections the program can use, so that few
// processes mean few connections, unless somebody asked for them.
func TestPlanEgressFewProcesses(t *testing.T) {
	for _, c := range []struct {
		pids, connections, want int
	}{
		{0, 0, 64}, {2, 0, 4}, {4, 0, 4}, {10, 0, 10}, {100, 0, 64}, {2, 20, 20},
	} {
		req := egressRequest()
		req.Limits.PIDs, req.Egress.Limits.Connections = int64(c.pids), c.connections
		spec, err := Plan(req, openPolicy)
		require.NoError(t, err)
		require.Equal(t, c.want, spec.Job.Egress.Connections, c)
		require.EqualValues(t, c.want+2, spec.Job.Egress.PIDs())
		require.Contains(t, spec.Class.Launcher, fmt.Sprint(c.want))
		require.EqualValues(t, c.want+2, enforced(spec, EngineInfo{}).ProxyPIDs)
		if c.pids > 0 {
			require.EqualValues(t, c.pids+c.want+2, spec.Class.Cgroup.PIDs)
		}
	}
}
