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

// An Address says which engine is meant. The zero value means the one that the
// docker command would use here: that of DOCKER_HOST, else of the context that
// DOCKER_CONTEXT or the user's Docker configuration names, else the default socket.
type Address struct {
	// Context is the name of a Docker context, Host an address: unix://…,
	// tcp://… or ssh://…. At most one of them is set.
	Context, Host string
	// AllowInsecure permits to reach an engine of another machine without TLS,
	// or without checking who answers. Whoever is on the way then controls that
	// machine and every result; each result says so.
	AllowInsecure bool
}

// An Endpoint is where an [Address] led.
type Endpoint struct {
	// Host is the engine's address, without any password.
	Host string
	// Context is the name of the Docker context; "default" for none.
	Context string
	// From names the variable or the file that chose it; empty when the caller
	// did, or nobody.
	From string
	// Insecure says what is missing between us and the engine; empty for
	// nothing.
	Insecure string

	docker   docker.Endpoint
	headers  map[string]string
	loopback bool
}

// FindEngine finds out which engine an address means. It reads the environment
// and the user's Docker configuration, and talks to nobody. Every error is a
// [*ConnectError].
func FindEngine(at Address) (Endpoint, error) {
	return findEngine(at, os.Getenv, dockerConfigDir(os.Getenv))
}

// Warning is what whoever uses the engine should know about the way to it; empty
// for nothing.
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

// Engine is the engine at the endpoint. Closing it ends every connection, also
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

// connect makes the client, and for ssh the dialer of its connections.
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
		// The library speaks of a context whether there is one or not.
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

// options make a client of the dialer. The transport comes after the address,
// which would otherwise give it a proxy.
func (d *sshDialer) options() []client.Opt {
	return []client.Opt{
		client.WithHost(d.helper.Host),
		client.WithHTTPClient(&http.Client{
			Transport: &http.Transport{
				DialContext: d.dial,
				// Each connection is a process, and a login.
				MaxIdleConns: sshIdle, MaxIdleConnsPerHost: sshIdle, IdleConnTimeout: 30 * time.Second,
			},
			CheckRedirect: client.CheckRedirect,
		}),
	}
}

// protect says what is missing on the way to an endpoint, and whether it leaves
// this machine.
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

// isLoopback reports whether the address after "tcp://" is of this machine
// whatever a name server says.
func isLoopback(address string) bool {
	u, err := url.Parse("tcp://" + address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// withoutPassword is an address as it may be shown, also one that makes no sense.
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

// addressError is about an address, which may hold a password and which the
// errors of parsers repeat.
func addressError(problem Problem, shown, host string, err error) *ConnectError {
	return &ConnectError{Problem: problem, Address: shown, Err: err,
		Detail: strings.ReplaceAll(err.Error(), host, withoutPassword(host))}
}
