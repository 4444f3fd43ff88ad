package sandbox

import (
	"bufio"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

var openPolicy = policy.Policy{AllowEgress: policy.Open, AllowPrivateEgress: true, AllowNetwork: true}

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
	kept, err := r.Store().Get("r1")
	require.NoError(t, err)
	log, err := os.ReadFile(filepath.Join(kept.Dir, record.NetworkFile))
	require.NoError(t, err)
	require.Contains(t, string(log), `"host":"evil.example"`)
	info, err := os.Stat(filepath.Join(kept.Dir, record.NetworkFile))
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())
	require.NotNil(t, kept.Spec.Job.Egress)
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
