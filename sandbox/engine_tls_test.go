//go:build linux

package sandbox_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/dockerhost"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
)

// authority signs certificates of a test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.key = newKey(t)
	template := certificate("authority", time.Hour)
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	require.NoError(t, err)
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

// certificate is valid for so long, or has been until so long ago.
func certificate(name string, valid time.Duration) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-2 * time.Hour), NotAfter: now.Add(valid),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

// folder holds the authority's certificate and one that it signed, named as the
// docker command expects them.
func (a *authority) folder(valid time.Duration) string {
	a.t.Helper()
	key := newKey(a.t)
	der, err := x509.CreateCertificate(rand.Reader, certificate("test", valid), a.cert, key.Public(), a.key)
	require.NoError(a.t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	dir := a.t.TempDir()
	for name, block := range map[string]*pem.Block{
		"ca.pem": {Type: "CERTIFICATE", Bytes: a.cert.Raw}, "cert.pem": {Type: "CERTIFICATE", Bytes: der},
		"key.pem": {Type: "PRIVATE KEY", Bytes: private},
	} {
		require.NoError(a.t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
	return dir
}

// freePort is a port of the loopback that nobody listens on now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

// newTLSEngine is a private engine that listens on a port with TLS as well.
func newTLSEngine(t *testing.T, ca *authority) (engine *privateEngine, port string) {
	t.Helper()
	certs, port := ca.folder(time.Hour), freePort(t)
	return newPrivateEngine(t, "-H", "tcp://127.0.0.1:"+port, "--tlsverify",
		"--tlscacert", certs+"/ca.pem", "--tlscert", certs+"/cert.pem", "--tlskey", certs+"/key.pem"), port
}

// dockerEnv sets the variables of the docker command, and no others.
func dockerEnv(t *testing.T, pairs ...string) {
	t.Helper()
	for _, name := range []string{"HOST", "CONTEXT", "TLS", "TLS_VERIFY", "CERT_PATH", "API_VERSION"} {
		t.Setenv("DOCKER_"+name, "")
	}
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		t.Setenv(name, value)
	}
}

// ask connects as the environment says and asks the engine what it is.
func ask(t *testing.T, at docker.Address) (engine.Info, error) {
	t.Helper()
	e, err := docker.Connect(at)
	if err != nil {
		return engine.Info{}, err
	}
	defer func() { require.NoError(t, e.Close()) }()
	return e.Info(t.Context())
}

// requireProblem wants a failure to connect that is one line, with a hint.
func requireProblem(t *testing.T, want dockerhost.Kind, err error, text string) {
	t.Helper()
	var problem *docker.ConnectError
	require.ErrorAs(t, err, &problem)
	require.Equal(t, want, problem.Kind, err)
	require.ErrorIs(t, err, sandbox.ErrEngineUnavailable)
	require.Contains(t, err.Error(), text)
	require.NotContains(t, err.Error(), "\n")
	require.NotContains(t, err.Error(), "%2F")
	require.NotEmpty(t, problem.Hint())
}

func TestEngineBehindTLS(t *testing.T) {
	ca := newAuthority(t)
	_, port := newTLSEngine(t, ca)
	host := "tcp://127.0.0.1:" + port
	good := ca.folder(time.Hour)

	t.Run("by the environment", func(t *testing.T) {
		dockerEnv(t, "DOCKER_HOST="+host, "DOCKER_TLS_VERIFY=1", "DOCKER_CERT_PATH="+good)
		info, err := ask(t, docker.Address{})
		require.NoError(t, err)
		require.Equal(t, host, info.Address)
		require.False(t, info.Local)
		require.Empty(t, info.Exposed)
	})
	t.Run("by certificates next to the configuration", func(t *testing.T) {
		dockerEnv(t, "DOCKER_TLS_VERIFY=1", "DOCKER_CONFIG="+good)
		_, err := ask(t, docker.Address{Host: host})
		require.NoError(t, err)
	})
	t.Run("by a context", func(t *testing.T) {
		dockerEnv(t)
		create := exec.CommandContext(t.Context(), "docker", "context", "create", "lab", "--docker",
			"host="+host+",ca="+good+"/ca.pem,cert="+good+"/cert.pem,key="+good+"/key.pem")
		out, err := create.CombinedOutput()
		require.NoError(t, err, "%s", out)
		for _, at := range []docker.Address{{Context: "lab"}, {}} {
			t.Setenv("DOCKER_CONTEXT", "lab")
			info, err := ask(t, at)
			require.NoError(t, err)
			require.Equal(t, host, info.Address)
		}
	})
	for name, c := range map[string]struct {
		host, certs string
		remove      []string
		kind        dockerhost.Kind
		text        string
	}{
		"no certificate of ours":  {host, ca.folder(time.Hour), []string{"cert.pem", "key.pem"}, dockerhost.KindTLS, "the engine says: tls: "},
		"ours of another":         {host, mixed(t, ca, newAuthority(t)), nil, dockerhost.KindTLS, "the engine says: tls: "},
		"ours expired":            {host, ca.folder(-time.Hour), nil, dockerhost.KindTLS, "the engine says: tls: "},
		"unknown authority":       {host, newAuthority(t).folder(time.Hour), nil, dockerhost.KindTLS, "unknown authority"},
		"another name":            {"tcp://localhost:" + port, good, nil, dockerhost.KindTLS, "localhost"},
		"no authority":            {host, ca.folder(time.Hour), []string{"ca.pem"}, dockerhost.KindTLS, "ca.pem: no such file"},
		"half of a key pair":      {host, broken(t, ca), nil, dockerhost.KindTLS, "private key"},
		"theirs expired":          {expiredServer(t, ca), good, nil, dockerhost.KindTLS, "expired"},
		"nobody speaks TLS there": {plainServer(t), good, nil, dockerhost.KindTLS, "HTTP response to HTTPS client"},
		"no such host":            {"tcp://nosuch.invalid:2376", good, nil, dockerhost.KindAddress, "nosuch.invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			dockerEnv(t, "DOCKER_HOST="+c.host, "DOCKER_TLS_VERIFY=1", "DOCKER_CERT_PATH="+c.certs)
			for _, file := range c.remove {
				require.NoError(t, os.Remove(filepath.Join(c.certs, file)))
			}
			_, err := ask(t, docker.Address{})
			requireProblem(t, c.kind, err, c.text)
		})
	}
	t.Run("without TLS", func(t *testing.T) {
		// Certificates alone do not mean TLS, for the docker command neither.
		dockerEnv(t, "DOCKER_HOST="+host, "DOCKER_CERT_PATH="+good)
		_, err := ask(t, docker.Address{})
		requireProblem(t, dockerhost.KindTLS, err, "expects TLS")
	})
	t.Run("without checking it", func(t *testing.T) {
		other := mixed(t, newAuthority(t), ca)
		dockerEnv(t, "DOCKER_HOST="+host, "DOCKER_TLS=1", "DOCKER_CERT_PATH="+other)
		info, err := ask(t, docker.Address{})
		require.NoError(t, err)
		require.Empty(t, info.Exposed, "on loopback only the doctor tells")
	})
	t.Run("a version that it does not speak", func(t *testing.T) {
		dockerEnv(t, "DOCKER_HOST="+host, "DOCKER_TLS_VERIFY=1", "DOCKER_CERT_PATH="+good, "DOCKER_API_VERSION=9.99")
		_, err := ask(t, docker.Address{})
		requireProblem(t, dockerhost.KindVersion, err, "client version 9.99 is too new")
	})
}

// mixed trusts one authority and shows a certificate of another.
func mixed(t *testing.T, trusted, shown *authority) string {
	t.Helper()
	dir := shown.folder(time.Hour)
	require.NoError(t, os.WriteFile(dir+"/ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: trusted.cert.Raw}), 0o600))
	return dir
}

// broken has a key that does not fit the certificate.
func broken(t *testing.T, ca *authority) string {
	t.Helper()
	dir, other := ca.folder(time.Hour), ca.folder(time.Hour)
	require.NoError(t, os.Rename(other+"/key.pem", dir+"/key.pem"))
	return dir
}

// expiredServer is somebody with an expired certificate.
func expiredServer(t *testing.T, ca *authority) string {
	t.Helper()
	dir := ca.folder(-time.Hour)
	pair, err := tls.LoadX509KeyPair(dir+"/cert.pem", dir+"/key.pem")
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return "tcp://" + server.Listener.Addr().String()
}

func plainServer(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	return "tcp://" + server.Listener.Addr().String()
}

// A run over TLS whose connections are cut goes on with new ones.
func TestEngineTLSConnectionCut(t *testing.T) {
	ca := newAuthority(t)
	e, port := newTLSEngine(t, ca)
	line := enginetest.NewDetour(t, "tcp://127.0.0.1:0", "tcp://127.0.0.1:"+port)
	dockerEnv(t, "DOCKER_HOST="+line.Address(), "DOCKER_TLS_VERIFY=1", "DOCKER_CERT_PATH="+ca.folder(time.Hour))
	engine, err := docker.FromEnv()
	require.NoError(t, err)

	before := 0
	res, err := e.runWaiterOn(engine, func(goOn func()) {
		before = line.Made()
		line.Cut()
		goOn()
	})
	require.NoError(t, err)
	require.Equal(t, result.StatusExited, res.Status, res.Explanation)
	require.Equal(t, 7, res.ExitCode)
	require.Contains(t, res.Stdout, "ready\n")
	require.Greater(t, line.Made(), before, "the run went on without a new connection")
}
