package docker

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/docker/cli/cli/context/docker"
	"github.com/docker/docker/client"

	"github.com/evalbox/evalbox/sandbox/engine"
)

// An Address selects an engine. The zero value means the one that the docker command
// would use here: DOCKER_HOST, else the context named by DOCKER_CONTEXT or the user's
// Docker configuration, else the default socket.
type Address struct {
	// Context is the name of a Docker context, Host is an address: unix://…, tcp://… or
	// ssh://…. At most one of them is set.
	Context, Host string
	// AllowInsecure permits reaching an engine on another machine without TLS, or without
	// verifying the server. Anybody on the network path then controls that machine and
	// every result. Each result carries a warning.
	AllowInsecure bool
}

// An Endpoint is the engine that an [Address] resolved to.
type Endpoint struct {
	// Host is the engine's address, without any password.
	Host string
	// Context is the name of the Docker context; "default" if there is none.
	Context string
	// From names the variable or the file that selected it; empty if the caller selected
	// it, or nothing did.
	From string
	// Insecure says which protection is missing on the connection; empty if none.
	Insecure string

	docker   docker.Endpoint
	headers  map[string]string
	loopback bool
}

// FindEngine resolves an address to an engine. It reads the environment and the user's
// Docker configuration, and makes no connection. Every error is a [*ConnectError].
func FindEngine(at Address) (Endpoint, error) {
	return findEngine(at, os.Getenv, dockerConfigDir(os.Getenv))
}

// Warning returns a warning about the connection for users of the engine; empty if there
// is none.
func (e Endpoint) Warning() string {
	switch {
	case e.Insecure == "":
		return ""
	case e.loopback:
		return fmt.Sprintf("the engine at %s is reached %s: every user of this machine who reaches that port is root here", e.Host, e.Insecure)
	}
	return fmt.Sprintf("the engine at %s is reached %s: whoever is on the way controls its machine, and what is told here", e.Host, e.Insecure)
}

// Client connects to the endpoint. It does not talk to the engine yet.
func (e Endpoint) Client() (*client.Client, error) {
	api, _, err := e.connect()
	return api, err
}

// Engine returns the engine at the endpoint. Closing it ends every connection, including
// those in use.
func (e Endpoint) Engine(options ...Option) (engine.Engine, error) {
	api, dialer, err := e.connect()
	if err != nil {
		return nil, err
	}
	adapter := newAdapter(api, options)
	adapter.at, adapter.dialer = e, dialer
	return adapter, nil
}

// NewClient connects to the engine that the docker command would use here; see
// [Address]. It does not talk to the engine yet.
func NewClient() (*client.Client, error) {
	endpoint, err := FindEngine(Address{})
	if err != nil {
		return nil, err
	}
	return endpoint.Client()
}

// connect creates the client, and for ssh the dialer of its connections.
func (e Endpoint) connect() (*client.Client, *sshDialer, error) {
	var options []client.Opt
	var dialer *sshDialer
	var err error
	if strings.HasPrefix(e.docker.Host, "ssh://") {
		dialer, err = newSSHDialer(e.docker.Host, e.Host)
		if err != nil {
			return nil, nil, addressError(ProblemAddress, e.Host, e.docker.Host, err)
		}
		options = dialer.options()
	} else if options, err = e.docker.ClientOpts(); err != nil {
		// The library mentions a context even if there is none.
		detail := strings.TrimPrefix(err.Error(), "failed to retrieve context tls info: ")
		return nil, nil, &ConnectError{Problem: ProblemCertificate, Address: e.Host, Detail: detail, Err: err}
	}
	options = append(options, client.WithVersionFromEnv(), client.WithAPIVersionNegotiation())
	if len(e.headers) > 0 {
		options = append(options, client.WithHTTPHeaders(e.headers))
	}
	api, err := client.NewClientWithOpts(options...)
	if err != nil {
		return nil, nil, addressError(ProblemAddress, e.Host, e.docker.Host, err)
	}
	return api, dialer, nil
}

// options returns the client options that use the dialer. The transport comes after the
// address, which would otherwise add a proxy to it.
func (d *sshDialer) options() []client.Opt {
	return []client.Opt{
		client.WithHost(d.helper.Host),
		client.WithHTTPClient(&http.Client{
			Transport: &http.Transport{
				DialContext: d.dial,
				// Each connection costs a process and a login.
				MaxIdleConns: sshIdle, MaxIdleConnsPerHost: sshIdle, IdleConnTimeout: 30 * time.Second,
			},
			CheckRedirect: client.CheckRedirect,
		}),
	}
}

// protect says which protection is missing on the connection to an endpoint, and whether
// the connection stays on this machine.
func protect(e docker.Endpoint) (insecure string, loopback bool) {
	scheme, rest, _ := strings.Cut(e.Host, "://")
	switch {
	case scheme == "ssh" || isLocal(e.Host):
		return "", false
	case e.SkipTLSVerify:
		insecure = "without checking who answers"
	case e.TLSData == nil:
		insecure = "without TLS"
	}
	return insecure, isLoopback(rest)
}

// isLoopback reports whether the address after "tcp://" is on this machine regardless of
// name servers.
func isLoopback(address string) bool {
	u, err := url.Parse("tcp://" + address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// withoutPassword returns an address without its password, even if it is malformed.
func withoutPassword(host string) string {
	scheme, rest, ok := strings.Cut(host, "://")
	if !ok {
		scheme, rest = "", host
	}
	at := strings.LastIndex(rest, "@")
	if at < 0 {
		return host
	}
	name, _, has := strings.Cut(rest[:at], ":")
	if !has {
		return host
	}
	return strings.TrimPrefix(scheme+"://", "://") + name + ":xxxxx" + rest[at:]
}

// addressError returns an error about an address. The address may contain a password, and
// parsers repeat it in their errors.
func addressError(problem Problem, shown, host string, err error) *ConnectError {
	return &ConnectError{Problem: problem, Address: shown, Err: err,
		Detail: strings.ReplaceAll(err.Error(), host, withoutPassword(host))}
}
