//go:build linux

package hostile

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/probe"
)

// egressFile is the variable that names the file for the verdicts of the child of TestEngineEgress.
const egressFile = "EVALBOX_HOSTILE_EGRESS"

// TestEngineEgress asks a name server of its own, over the wire and through the machine's resolver:
// it runs TestEngineEgressBelow in a process that sees another /etc/resolv.conf. Only root can do so.
func TestEngineEgress(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a name server at port 53 and another /etc/resolv.conf")
	}
	if runtimeName() != "" {
		t.Skip("the proxy does not depend on the runtime")
	}
	if clusterImage() != "" {
		t.Skip("a cluster refuses runs with an allow-list before anything starts")
	}
	dir := t.TempDir()
	verdicts, conf := filepath.Join(dir, "verdicts.json"), filepath.Join(dir, "resolv.conf")
	require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, "nameserver %v\nsearch example\noptions timeout:5 attempts:1\n", ownAddress(3)), 0o644))
	target, err := filepath.EvalSymlinks("/etc/resolv.conf")
	require.NoError(t, err)
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `mount --bind "$1" "$2" && exec "$3" -test.run='^TestEngineEgressBelow$' -test.v`, "sh", conf, target, exe)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	cmd.Env = append(os.Environ(), egressFile+"="+verdicts, fmt.Sprintf("%s_PID=%d", egressFile, os.Getpid()), "EVALBOX_HOSTILE_TABLE=")
	out, runErr := cmd.CombinedOutput()
	text, err := os.ReadFile(verdicts)
	require.NoError(t, err, "%v\n%s", runErr, out)
	var all []probe.Verdict
	require.NoError(t, json.Unmarshal(text, &all))
	require.NotEmpty(t, all)
	for _, v := range all {
		report(t, v)
	}
	require.NoError(t, runErr, "%s", out)
}

// ownAddress is an address of the loopback device for this process alone.
func ownAddress(n byte) netip.Addr {
	pid := os.Getpid()
	if text := os.Getenv(egressFile + "_PID"); text != "" {
		_, _ = fmt.Sscan(text, &pid)
	}
	return netip.AddrFrom4([4]byte{127, 100 + byte(pid>>16&15), byte(pid >> 8), byte(pid)&0xfc | n})
}

// TestEngineEgressBelow is the child of TestEngineEgress.
func TestEngineEgressBelow(t *testing.T) {
	file := os.Getenv(egressFile)
	if file == "" {
		return // TestEngineEgress runs it
	}
	a, b, names := ownAddress(1), ownAddress(2), ownAddress(3)
	startNameServer(t, names, a, b)
	ca, certificate := newCertificate(t, []string{"good.example", "alias.example", "rebindtls.example"}, a)
	serve(t, a, "A", certificate, nil)
	var forbidden atomic.Int64
	serve(t, b, "B", certificate, &forbidden)
	text, err := os.ReadFile("testdata/egress.py")
	require.NoError(t, err)
	batch, err := probe.NewBatch("egress", string(text))
	require.NoError(t, err)
	script := filepath.Join(tempDir(t), "program.py")
	require.NoError(t, os.WriteFile(script, []byte(batch.Python), 0o644))
	r := newRunner(t, sandbox.WithPolicy(policy.Policy{AllowEgress: policy.Open, AllowPrivateEgress: true}))
	res, err := r.Run(t.Context(), sandbox.Request{Image: "debian", Script: script, Limits: policy.Limits{Timeout: 3 * time.Minute, CPUs: 1},
		Env:    map[string]string{"PERMITTED": a.String(), "FORBIDDEN": b.String(), "NAMESERVER": names.String(), "CA": ca},
		Egress: &policy.Egress{Level: policy.API, Allow: allowed(a), Deny: []string{"denied.example"}}})
	require.NoError(t, err)
	require.Equal(t, result.StatusExited, res.Status, res.Stderr)
	res.Stdout = strings.NewReplacer(a.String(), "A", b.String(), "B").Replace(res.Stdout)
	verdicts := append(batch.Judge(probe.Machine{Runtime: "runc", Root: true}, res), atHosts(res, forbidden.Load()))
	out, err := json.Marshal(verdicts)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, out, 0o644))
}

// allowed are the hosts of the run. The servers are at addresses of the loopback device, which
// must be listed as such.
func allowed(a netip.Addr) []string {
	all := []string{a.String(), a.String() + ":2222", "raw.example:2222", "short"}
	for _, name := range []string{"good", "both", "inside", "meta", "mapped", "nat64", "six", "zero", "rebind", "rebindtls", "alias", "trap", "loop", "none", "empty", "broken",
		"silent", "garbage", "many", "tcp", "forged", "poisoned", "wrongcert", "denied"} {
		all = append(all, name+".example")
	}
	return all
}

// atHosts is the view of the servers: the forbidden one was never reached.
func atHosts(res *result.Result, forbidden int64) probe.Verdict {
	v := probe.Verdict{Group: "egress", Name: "the_forbidden_server_was_never_reached"}
	if forbidden != 0 {
		v.Differs = append(v.Differs, fmt.Sprintf("it was reached %d times", forbidden))
	}
	if res.Network == nil || res.Network.Refused == 0 || res.Network.Requests <= res.Network.Refused {
		v.Differs = append(v.Differs, fmt.Sprintf("the result counts %+v", res.Network))
	}
	return v
}

// serve serves HTTP, TLS and a greeting at an address. reached counts the connections.
func serve(t *testing.T, at netip.Addr, name string, certificate tls.Certificate, reached *atomic.Int64) {
	t.Helper()
	var requests atomic.Int64
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, "http://unlisted.example/", http.StatusFound)
		case "/upgrade":
			w.Header().Set("Upgrade", "websocket")
			w.Header().Set("Connection", "Upgrade")
			w.WriteHeader(http.StatusSwitchingProtocols)
		case "/count":
			fmt.Fprint(w, requests.Load())
		default:
			requests.Add(1)
			fmt.Fprintf(w, "%s %s %s", name, r.Host, r.URL.Path)
		}
	})
	count := func(listener net.Listener) net.Listener { return countingListener{listener, reached} }
	listen := func(port uint16) net.Listener {
		listener, err := net.Listen("tcp", netip.AddrPortFrom(at, port).String())
		require.NoError(t, err)
		return count(listener)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}}
	greeter := listen(2222)
	go func() { _ = server.Serve(listen(80)) }()
	go func() { _ = server.ServeTLS(listen(443), "", "") }()
	go func() {
		for {
			conn, err := greeter.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprintf(conn, "hello from %s\n", strings.ToLower(name))
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _, _ = server.Close(), greeter.Close() })
}

type countingListener struct {
	net.Listener
	reached *atomic.Int64
}

func (l countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil && l.reached != nil {
		l.reached.Add(1)
	}
	return conn, err
}

// newCertificate returns a certificate of some names and an address, which is its own authority.
func newCertificate(t *testing.T, names []string, at netip.Addr) (authority string, certificate tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: names, IPAddresses: []net.IP{at.AsSlice()}, NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
