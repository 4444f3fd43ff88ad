//go:build linux

package sandbox_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/egress"
	"github.com/evalbox/evalbox/sandbox/ends"
	"github.com/evalbox/evalbox/sandbox/probe"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// egressServers are servers of this test on loopback addresses of this machine.
type egressServers struct {
	plain, secure, denied string // host:port
	udp                   string
	ca                    string
	allow                 []string
	resolve               map[string][]netip.Addr
}

// egressServer starts a server on an address of its own.
func egressServer(t *testing.T, address string, secure bool) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/many" {
			_, _ = w.Write(make([]byte, 64<<20))
			return
		}
		fmt.Fprintf(w, "%s %s %s %s", r.Method, r.Host, r.URL.Path, body)
	}))
	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)
	require.NoError(t, server.Listener.Close())
	server.Listener = listener
	if secure {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server
}

func newEgressServers(t *testing.T) egressServers {
	t.Helper()
	plain, secure := egressServer(t, "127.0.0.21:0", false), egressServer(t, "127.0.0.22:0", true)
	denied := egressServer(t, "127.0.0.23:0", false)
	udp, err := net.ListenPacket("udp", "127.0.0.21:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, udp.Close()) })
	s := egressServers{plain: plain.Listener.Addr().String(), secure: secure.Listener.Addr().String(),
		denied: denied.Listener.Addr().String(), udp: udp.LocalAddr().String()}
	s.ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}))
	port := func(address string) string { _, port, _ := net.SplitHostPort(address); return port }
	s.allow = []string{"plain.example:" + port(s.plain), s.plain, "example.com:" + port(s.secure), s.secure,
		"rebind.example:" + port(s.plain), "denied.example:" + port(s.denied), s.denied}
	s.resolve = map[string][]netip.Addr{
		"plain.example": {netip.MustParseAddr("127.0.0.21")}, "example.com": {netip.MustParseAddr("127.0.0.22")},
		"rebind.example": {netip.MustParseAddr("127.0.0.21"), netip.MustParseAddr("127.0.0.29")},
		"denied.example": {netip.MustParseAddr("127.0.0.23")}, "elsewhere.example": {netip.MustParseAddr("127.0.0.21")},
	}
	return s
}

func (s egressServers) request(level policy.NetworkLevel) *policy.Egress {
	return &policy.Egress{Level: level, Allow: s.allow, Deny: []string{"denied.example"}, Resolve: s.resolve}
}

// env tells a program where the servers are.
func (s egressServers) env() map[string]string {
	port := func(address string) string { _, port, _ := net.SplitHostPort(address); return port }
	return map[string]string{"PLAIN": s.plain, "PLAIN_PORT": port(s.plain), "SECURE_PORT": port(s.secure),
		"DENIED_PORT": port(s.denied), "UDP": s.udp, "CA": s.ca}
}

func egressRunner(t *testing.T, opts ...sandbox.Option) *sandbox.Runner {
	t.Helper()
	pol := policy.Policy{AllowEgress: policy.Open, AllowPrivateEgress: true, Registries: []string{"pypi.org"}}
	return newRunner(t, append([]sandbox.Option{sandbox.WithPolicy(pol)}, opts...)...)
}

func networkLog(t *testing.T, r *sandbox.Runner, res *result.Result) (entries []egress.Entry) {
	t.Helper()
	record, err := r.Store().Get(res.ID)
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(record.Dir, res.Network.Log))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		var entry egress.Entry
		require.NoError(t, json.Unmarshal([]byte(line), &entry))
		entries = append(entries, entry)
	}
	require.NoDirExists(t, filepath.Join(record.Dir, "egress"), "the way to the proxy is gone")
	return entries
}

func TestEngineEgressReachesWhatIsListed(t *testing.T) {
	t.Parallel()
	s, r := newEgressServers(t), egressRunner(t)
	req := python(t, `
import http.client, os, ssl, urllib.request, urllib.error
open("/tmp/ca.pem", "w").write(os.environ["CA"])
ctx = ssl.create_default_context(cafile="/tmp/ca.pem")
plain, secure = os.environ["PLAIN_PORT"], os.environ["SECURE_PORT"]
print("1", urllib.request.urlopen(f"http://plain.example:{plain}/a", timeout=20).read().decode())
print("2", urllib.request.urlopen(f"http://plain.example:{plain}/b", data=b"text", timeout=20).read().decode())
print("3", urllib.request.urlopen(f"https://example.com:{secure}/c", context=ctx, timeout=20).read().decode())
proxy = http.client.HTTPSConnection("127.0.0.1", 3128, context=ctx, timeout=20)
proxy.set_tunnel("example.com", int(secure))
proxy.request("GET", "/d")
print("4", proxy.getresponse().read().decode())
def refused(what, call):
    try:
        print(what, "REACHED", call().read())
    except urllib.error.HTTPError as e:
        print(what, e.code, e.read().decode().strip())
    except OSError as e:
        print(what, e)
get = lambda url: urllib.request.urlopen(url, timeout=20)
refused("host", lambda: get("http://elsewhere.example:" + plain))
refused("port", lambda: get("http://plain.example:1"))
refused("denied", lambda: get("http://denied.example:" + os.environ["DENIED_PORT"]))
refused("rebinding", lambda: get("http://rebind.example:" + plain))
refused("address", lambda: get("http://127.0.0.9:" + plain))
refused("metadata", lambda: get("http://169.254.169.254/latest/meta-data/"))
refused("tunnel", lambda: get("https://elsewhere.example/"))
proxy = http.client.HTTPSConnection("127.0.0.1", 3128, context=ssl._create_unverified_context(), timeout=20)
class Other(ssl.SSLContext):
    def wrap_socket(self, sock, server_hostname=None, **more):
        return super().wrap_socket(sock, server_hostname="evil.example", **more)
proxy = http.client.HTTPSConnection("127.0.0.1", 3128, context=Other(ssl.PROTOCOL_TLS_CLIENT), timeout=20)
proxy.set_tunnel("example.com", int(secure))
refused("server name", lambda: proxy.request("GET", "/"))
for name in ("HTTP_PROXY", "https_proxy", "NO_PROXY"):
    print(name, os.environ[name])
print(sorted(n for n in os.environ if n in ("PWD", "OLDPWD", "SHLVL", "here")))
try:
    os.wait()
except ChildProcessError:
    print("no children")
`)
	req.Env, req.Egress = s.env(), s.request(policy.API)
	res := run(t, r, req)
	require.Equal(t, result.StatusExited, res.Status, res.Stderr)
	require.Zero(t, res.ExitCode, res.Stderr)
	env := s.env()
	require.Equal(t, strings.NewReplacer("PLAIN", env["PLAIN_PORT"], "SECURE", env["SECURE_PORT"]).Replace(`1 GET plain.example:PLAIN /a 
2 POST plain.example:PLAIN /b text
3 GET example.com:SECURE /c 
4 GET example.com:SECURE /d 
host 403 refused by the sandbox: no permitted host matches
port 403 refused by the sandbox: port 1 is not one of plain.example:PLAIN
denied 403 refused by the sandbox: denied by denied.example
rebinding 403 refused by the sandbox: 127.0.0.29: the address is loopback, and not listed as an address
address 403 refused by the sandbox: no permitted host matches
metadata 403 refused by the sandbox: no permitted host matches
`), res.Stdout[:strings.Index(res.Stdout, "tunnel ")])
	require.Contains(t, res.Stdout, "tunnel <urlopen error Tunnel connection failed: 403 Forbidden>")
	require.Regexp(t, `(?m)^server name \[SSL: .*UNRECOGNIZED_NAME`, res.Stdout)
	require.Contains(t, res.Stdout, "HTTP_PROXY http://127.0.0.1:3128\nhttps_proxy http://127.0.0.1:3128\nNO_PROXY localhost,127.0.0.1,::1\n[]\nno children\n")
	require.Empty(t, res.Stderr)

	require.Equal(t, "none", res.Enforced.Network)
	require.Equal(t, "api", res.Network.Level)
	require.EqualValues(t, 12, res.Network.Requests)
	require.EqualValues(t, 8, res.Network.Refused)
	entries := networkLog(t, r, res)
	require.Len(t, entries, 12)
	require.Equal(t, "127.0.0.21", entries[0].Address)
	var up, down int64
	var rules []string // in the order in which the connections ended
	for _, entry := range entries {
		up, down = up+entry.BytesUp, down+entry.BytesDown
		rules = append(rules, entry.Rule)
	}
	require.Contains(t, strings.Join(rules, "\n"), `the TLS server name is "evil.example"`)
	require.Equal(t, []int64{up, down}, []int64{res.Network.BytesUp, res.Network.BytesDown})
}

// What is not the proxy is not there, whatever the level is.
func TestEngineEgressIsTheOnlyWay(t *testing.T) {
	t.Parallel()
	s, r := newEgressServers(t), egressRunner(t)
	abstract, err := net.Listen("unix", "@evalbox-egress-"+filepath.Base(t.TempDir())+s.plain)
	require.NoError(t, err)
	defer abstract.Close()
	api := testAPI(t)
	bridge, err := api.NetworkInspect(context.Background(), "bridge", network.InspectOptions{})
	gateway := "172.17.0.1"
	if err == nil && len(bridge.IPAM.Config) > 0 && bridge.IPAM.Config[0].Gateway != "" {
		gateway = bridge.IPAM.Config[0].Gateway
	}
	const program = `
import os, socket, struct
def attempt(what, call):
    try:
        print("REACHED", what, call())
    except (OSError, socket.gaierror) as e:
        print("ok", what, type(e).__name__, e)
host, port = os.environ["PLAIN"].rsplit(":", 1)
def tcp(address, family=socket.AF_INET):
    s = socket.socket(family, socket.SOCK_STREAM)
    s.settimeout(2)
    s.connect(address)
    return s.recv(1)
def udp(address, family=socket.AF_INET):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.settimeout(1)
    s.connect(address)
    s.send(b"x")
    return s.recv(1)
attempt("server", lambda: tcp((host, int(port))))
attempt("bridge", lambda: tcp((os.environ["GATEWAY"], 22)))
attempt("bridge proxy", lambda: tcp((os.environ["GATEWAY"], int(port))))
attempt("public", lambda: tcp(("1.1.1.1", 443)))
attempt("metadata", lambda: tcp(("169.254.169.254", 80)))
attempt("loopback 2", lambda: tcp(("127.0.0.2", 3128)))
attempt("loopback 22", lambda: tcp(("127.0.0.1", 22)))
attempt("dns", lambda: udp(("8.8.8.8", 53)))
attempt("dns local", lambda: udp(("127.0.0.53", 53)))
attempt("docker dns", lambda: udp(("127.0.0.11", 53)))
attempt("udp", lambda: udp((os.environ["UDP"].split(":")[0], int(os.environ["UDP"].split(":")[1]))))
attempt("name", lambda: socket.getaddrinfo("plain.example", 80))
attempt("ipv6", lambda: tcp(("2606:4700:4700::1111", 443), socket.AF_INET6))
attempt("ipv6 loopback", lambda: tcp(("::1", 3128), socket.AF_INET6))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP))
attempt("icmp raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
def ping():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
    s.settimeout(1)
    s.connect(("1.1.1.1", 0))
    s.send(struct.pack("!BBHHH", 8, 0, 0, 1, 1))
    return s.recv(100)
attempt("icmp", ping)
attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3))
attempt("vsock", lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).connect((2, 1)))
attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect("\0" + os.environ["ABSTRACT"]))
print(sorted(os.listdir("/sys/class/net")))
print("routes", open("/proc/net/route").read().count("\n") - 1)
def other(path):
    open(path, "w").write("x")
if os.path.isdir("/run/evalbox"):
    attempt("beside", lambda: other("/run/evalbox/new"))
    attempt("socket", lambda: os.unlink("/run/evalbox/proxy.sock"))
    s = socket.socket(socket.AF_UNIX); s.connect("/run/evalbox/proxy.sock")
    s.send(b"CONNECT 127.0.0.9:22 HTTP/1.1\r\nHost: x\r\n\r\n")
    print("direct", s.recv(100).split(b"\r\n")[0].decode())
`
	for _, level := range policy.NetworkLevels() {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			req := python(t, program)
			req.Env = s.env()
			req.Env["GATEWAY"], req.Env["ABSTRACT"] = gateway, strings.TrimPrefix(abstract.Addr().String(), "@")
			req.Egress = s.request(level)
			res := run(t, r, req)
			require.Zero(t, res.ExitCode, res.Stderr)
			require.NotContains(t, res.Stdout, "REACHED")
			require.Contains(t, res.Stdout, "['lo']\nroutes 0\n")
			require.Equal(t, "none", res.Enforced.Network)
			if level == policy.Offline {
				require.Nil(t, res.Network)
				require.NotContains(t, res.Stdout, "direct")
				return
			}
			require.Contains(t, res.Stdout, "direct HTTP/1.1 403 Forbidden")
			require.EqualValues(t, 1, res.Network.Requests)
		})
	}
}

// Open reaches public addresses only; what is not public must be listed all the same.
func TestEngineEgressOpenIsPublic(t *testing.T) {
	t.Parallel()
	s, r := newEgressServers(t), egressRunner(t)
	req := python(t, `
import os, urllib.request, urllib.error
for url in ("http://elsewhere.example:" + os.environ["PLAIN_PORT"], "http://localhost/", "http://0x7f.1/", "http://[::1]/", "http://10.0.0.1/",
            "http://127.0.0.30:" + os.environ["PLAIN_PORT"], "http://[::ffff:127.0.0.30]/", "http://169.254.169.254/", "http://denied.example/"):
    request = urllib.request.Request(url)
    request.set_proxy("127.0.0.1:3128", "http")
    try:
        print("reached", urllib.request.urlopen(request, timeout=20).read())
    except urllib.error.HTTPError as e:
        print(e.code, e.read().decode().strip())
`)
	req.Env, req.Egress = s.env(), s.request(policy.Open)
	req.Egress.Resolve["localhost"] = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	res := run(t, r, req)
	require.Zero(t, res.ExitCode, res.Stderr)
	require.Equal(t, 1, strings.Count(res.Stdout, "reached"), res.Stdout)
	require.Equal(t, 8, strings.Count(res.Stdout, "403 refused by the sandbox"), res.Stdout)
}

// The way to the proxy changes nothing about how a program ends, or about the report of it.
func TestEngineEgressEndsAsWithout(t *testing.T) {
	t.Parallel()
	place := probe.Place{Runner: egressRunner(t), Dir: t.TempDir(), Request: sandbox.Request{Egress: &policy.Egress{Level: policy.API}}}
	programs := []ends.Program{ends.Exit(7), ends.Exit(125), ends.Exit(127), ends.Killed(15)}
	for _, name := range []string{"not in the path", "not executable", "words, and a text at stdin", "the deadline", "the deadline, then exit 7"} {
		programs = append(programs, ends.Named(name))
	}
	for _, p := range programs {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			r := probe.Of("ends", p)
			res, wrong, err := place.Look(t.Context(), r)
			require.NoError(t, err)
			require.Empty(t, append(wrong, r.Judge(place.Machine, res).Differs...))
			require.Zero(t, res.Network.Requests)
		})
	}
}

// TestEngineEgressNeedsNothingOfTheImage: init passes on what the program sends, whatever
// the image or the request has for a PATH.
func TestEngineEgressNeedsNothingOfTheImage(t *testing.T) {
	t.Parallel()
	s, r := newEgressServers(t), egressRunner(t)
	req := sandbox.Request{Command: []string{"/usr/bin/python3", "-c",
		"import os, urllib.request; print(urllib.request.urlopen('http://plain.example:' + os.environ['PLAIN_PORT']).status)"},
		Env: s.env(), Limits: policy.Limits{Memory: 256 * policy.MiB, CPUs: 1, PIDs: 1}, NoFork: true, Egress: s.request(policy.API)}
	req.Env["PATH"] = "/nowhere"
	res := run(t, r, req)
	require.Equal(t, "200\n", res.Stdout, res.Stderr)
}

// The path of a socket is bounded by the system; that of a state directory is not.
func TestEngineEgressInALongStateFolder(t *testing.T) {
	t.Parallel()
	s := newEgressServers(t)
	state := filepath.Join(t.TempDir(), strings.Repeat("long", 40), "state")
	require.NoError(t, os.MkdirAll(filepath.Dir(state), 0o700))
	r := egressRunner(t, sandbox.WithStateDir(state))
	req := python(t, "import os, urllib.request\nprint(urllib.request.urlopen('http://plain.example:' + os.environ['PLAIN_PORT']).status)")
	req.Env, req.Egress = s.env(), s.request(policy.API)
	res := run(t, r, req)
	require.Equal(t, "200\n", res.Stdout, res.Stderr)
}

// As many processes as the limit says are the program's: the way to the proxy takes none.
func TestEngineEgressTakesNoProcesses(t *testing.T) {
	t.Parallel()
	s, r := newEgressServers(t), egressRunner(t)
	req := python(t, `
import os, threading, urllib.request
ok = []
def get():
    ok.append(urllib.request.urlopen("http://plain.example:" + os.environ["PLAIN_PORT"], timeout=60).status)
threads = [threading.Thread(target=get) for _ in range(20)]
[t.start() for t in threads]; [t.join() for t in threads]
print(len(ok))
`)
	req.Env, req.Egress = s.env(), s.request(policy.API)
	req.Egress.Limits.Connections = 4
	req.Limits.PIDs = 21
	res := run(t, r, req)
	require.Equal(t, "20\n", res.Stdout, res.Stderr)
	require.EqualValues(t, 21, res.Enforced.PIDs)
	require.Zero(t, res.Enforced.ProxyPIDs)
}

// beEgressOwner runs a program that asks until it gets no answer.
func beEgressOwner(r *sandbox.Runner, address, final string) error {
	_, err := r.Run(context.Background(), sandbox.Request{
		ID: orphan("egress"), Final: final, Command: []string{"python3", "-c", `
import os, time, urllib.request
request = urllib.request.Request("http://" + os.environ["TARGET"] + "/")
request.set_proxy("127.0.0.1:3128", "http")
print("started", flush=True)
while True:
    try:
        urllib.request.urlopen(request, timeout=20).read()
    except Exception:
        break
    open("final/reached", "w").close()
    time.sleep(0.05)
open("final/refused", "w").close()
`},
		Env: map[string]string{"TARGET": address}, Egress: &policy.Egress{Level: policy.API, Allow: []string{address}},
		Limits: policy.Limits{Timeout: 2 * time.Minute, Memory: 128 * policy.MiB, CPUs: 1},
	}, sandbox.IO{Stdout: os.Stdout})
	return err
}

// The proxy dies with its controller, and a sweep takes what is left of both.
func TestEngineEgressEndsWithItsController(t *testing.T) {
	server := egressServer(t, "127.0.0.24:0", false)
	t.Setenv(ownerNet, server.Listener.Addr().String())
	state, final := filepath.Join(t.TempDir(), "state"), filepath.Join(t.TempDir(), "final")
	cmd := startOwner(t, state, final, "")
	record := filepath.Join(state, "runs", orphan("egress"))
	require.FileExists(t, filepath.Join(record, "egress", "proxy.sock"))
	appears := func(name, what string) {
		require.Eventually(t, func() bool {
			_, err := os.Stat(filepath.Join(record, "final", name))
			return err == nil
		}, 30*time.Second, 10*time.Millisecond, what)
	}
	appears("reached", "the program reaches its host")
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	appears("refused", "and then nothing any more")

	r := newRunner(t, sandbox.WithStateDir(state))
	res, err := r.Adopt(t.Context(), orphan("egress"))
	require.NoError(t, err)
	require.Equal(t, result.FaultOperator, res.Fault, res.Explanation)
	require.Contains(t, res.Explanation, "Its proxy had died with the controller")
	require.Equal(t, 0, res.ExitCode)
	require.GreaterOrEqual(t, res.Network.Requests, int64(1))
	api := testAPI(t)
	requireNothingLeft(t, api, spec.LabelState+"="+state)
	require.NoDirExists(t, filepath.Join(record, "egress"))
	require.FileExists(t, filepath.Join(record, "network.jsonl"))
}

func TestEngineEgressRefusedByThePolicy(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	req := python(t, "print(1)")
	req.Egress = &policy.Egress{Level: policy.API, Allow: []string{"example.org"}}
	_, err := r.Run(t.Context(), req)
	require.ErrorContains(t, err, "the policy permits offline at most")
}
