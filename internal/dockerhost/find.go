// Package dockerhost finds the Docker daemon that the docker command would use, connects
// to it, and says why it cannot be reached.
package dockerhost

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/docker/cli/cli/config"
	dcontext "github.com/docker/cli/cli/context"
	"github.com/docker/cli/cli/context/docker"
	"github.com/docker/cli/cli/context/store"
	"github.com/docker/cli/opts"
	"github.com/docker/docker/client"

	"github.com/evalbox/evalbox/internal/said"
)

// An Address selects a daemon. The zero value means the one that the docker command would
// use here: DOCKER_HOST, else the context named by DOCKER_CONTEXT or the user's Docker
// configuration, else the default socket.
type Address struct {
	// Context is the name of a Docker context, Host is an address: unix://…, tcp://… or
	// ssh://…. At most one of them is set.
	Context, Host string
	// AllowInsecure permits reaching a daemon on another machine without TLS, or without
	// verifying the server. Anybody on the network path then controls that machine and
	// every result. Each result carries a warning.
	AllowInsecure bool
}

// An Endpoint is the daemon that an [Address] resolved to.
type Endpoint struct {
	// Host is the daemon's address, without any password.
	Host string
	// Context is the name of the Docker context; "default" if there is none.
	Context string
	// From names the variable or the file that selected it; empty if the caller selected
	// it, or nothing did.
	From string
	// Warning says which protection is missing on the connection, for users of the
	// daemon; empty if none. Loopback says that the connection stays on this machine.
	Warning  string
	Loopback bool

	docker  docker.Endpoint
	headers map[string]string
}

// Variables of the docker command for which its library exports no names.
const (
	envContext = "DOCKER_CONTEXT"
	envTLS     = "DOCKER_TLS"
)

// defaultContext is the name that means "no context": the environment decides.
const defaultContext = "default"

// Find resolves an address to a daemon. It reads the environment and the user's Docker
// configuration, and makes no connection. Every error is an [*Error].
func Find(at Address) (Endpoint, error) {
	return find(at, os.Getenv, configDir(os.Getenv))
}

// find is [Find] with explicit sources. It decides as the docker command does
// (resolveContextName of its version 28).
func find(at Address, env func(string) string, dir string) (Endpoint, error) {
	if version := env(client.EnvOverrideAPIVersion); version != "" && !versionText().MatchString(version) {
		// A daemon would answer every call with "not found".
		return Endpoint{}, &Error{Kind: KindVersion, Address: fmt.Sprintf("%s %q", client.EnvOverrideAPIVersion, version),
			Detail: "must be a version, such as 1.41", Advice: adviceVersion}
	}
	file := filepath.Join(dir, config.ConfigFileName)
	current, headers, err := readConfig(dir)
	if err != nil {
		// The docker command continues without it, and may reach another daemon.
		return Endpoint{}, &Error{Kind: KindConfig, Address: file, Detail: innermost(err).Error(), Advice: adviceConfig, Err: err}
	}
	e := Endpoint{Context: defaultContext, headers: headers}
	host := at.Host
	switch {
	case at.Context != "" && at.Host != "":
		return Endpoint{}, &Error{Kind: KindAddress, Advice: adviceAddress, Detail: "a host and a context are given, of which there can be one"}
	case at.Context != "":
		e.Context = at.Context
	case at.Host != "" || env(client.EnvOverrideHost) != "":
	case env(envContext) != "":
		e.Context, e.From = env(envContext), envContext
	case current != "":
		e.Context, e.From = current, file
	}
	if e.Context != defaultContext {
		e.docker, err = fromContext(e, dir)
	} else {
		if host == "" && env(client.EnvOverrideHost) != "" {
			host, e.From = env(client.EnvOverrideHost), client.EnvOverrideHost
		}
		e.docker, err = fromEnv(host, e.From, env, dir)
	}
	if err != nil {
		return Endpoint{}, err
	}
	e.Host = withoutPassword(e.docker.Host)
	return protected(e, at.AllowInsecure)
}

var versionText = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^v?[0-9]+\.[0-9]+$`) })

// protected refuses or warns of an endpoint whose connection lacks a protection.
func protected(e Endpoint, allow bool) (Endpoint, error) {
	how := ""
	switch {
	case IsLocal(e.docker.Host) || isSSH(e.docker.Host):
		return e, nil
	case e.docker.SkipTLSVerify:
		how = "without checking who answers"
	case e.docker.TLSData == nil:
		how = "without TLS"
	}
	e.Loopback = isLoopback(e.docker.Host)
	switch {
	case how == "":
	case e.Loopback:
		e.Warning = fmt.Sprintf("the engine at %s is reached %s: every user of this machine who reaches that port is root here", e.Host, how)
	case allow:
		e.Warning = fmt.Sprintf("the engine at %s is reached %s: anybody on the way controls its machine, and every result", e.Host, how)
	default:
		return Endpoint{}, &Error{Kind: KindInsecure, Address: e.Host, Advice: AdviceInsecure,
			Detail: fmt.Sprintf("would be reached %s, and anyone on the way could control its machine%s", how, by(e.From))}
	}
	return e, nil
}

// by names the origin of a choice, for the end of a message.
func by(from string) string {
	if from == "" {
		return ""
	}
	return " (from " + from + ")"
}

// IsLocal reports whether the address of a daemon is a socket on this machine.
func IsLocal(host string) bool { return strings.HasPrefix(host, "unix://") }

func isSSH(host string) bool { return strings.HasPrefix(host, "ssh://") }

// isLoopback reports whether an address is on this machine regardless of name servers.
func isLoopback(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// configDir returns the directory of the user's Docker configuration; empty for an
// account without one.
func configDir(env func(string) string) string {
	if dir := env(config.EnvOverrideConfigDir); dir != "" {
		return dir
	}
	home, err := os.UserHomeDir()
	if err != nil || home == "" {
		if u, err := user.Current(); err == nil {
			home = u.HomeDir
		}
	}
	if home == "" {
		return "" // never ".docker" in the current directory
	}
	return filepath.Join(home, ".docker")
}

// readConfig reads the relevant settings. A missing file counts as empty.
func readConfig(dir string) (currentContext string, headers map[string]string, err error) {
	if dir == "" {
		return "", nil, nil
	}
	file, err := config.Load(dir)
	if err != nil {
		return "", nil, err
	}
	return file.CurrentContext, file.HTTPHeaders, nil
}

// Contexts returns the names of the Docker contexts of the user, without those that cannot be
// read.
func Contexts() []string {
	all := []string{defaultContext}
	if dir := configDir(os.Getenv); dir != "" {
		names, _ := store.Names(contextsIn(dir))
		all = append(all, names...)
	}
	return all
}

// contextsIn are the contexts that a directory of Docker's configuration holds.
func contextsIn(dir string) *store.ContextStore {
	return store.New(filepath.Join(dir, "contexts"), store.NewConfig(
		func() any { return &map[string]any{} },
		store.EndpointTypeGetter(docker.DockerEndpoint, func() any { return &docker.EndpointMeta{} }),
	))
}

// fromContext returns the daemon of a context that the docker command stored.
func fromContext(e Endpoint, dir string) (docker.Endpoint, error) {
	refuse := func(detail string, err error) (docker.Endpoint, error) {
		return docker.Endpoint{}, &Error{Kind: KindConfig, Address: fmt.Sprintf("context %q", e.Context),
			Detail: detail + by(e.From), Advice: adviceContext, Err: err}
	}
	contexts := contextsIn(dir)
	meta, err := contexts.GetMetadata(e.Context)
	if errdefs.IsNotFound(err) {
		names, _ := store.Names(contexts) // without those that cannot be read
		return refuse("does not exist; there are "+strings.Join(append([]string{defaultContext}, names...), ", "), err)
	}
	if err != nil {
		return refuse(err.Error(), err)
	}
	endpoint, err := docker.EndpointFromContext(meta)
	if err != nil {
		return refuse("has no Docker engine", err)
	}
	endpoint.Host = cmp.Or(endpoint.Host, client.DefaultDockerHost)
	if err := checkScheme(endpoint.Host); err != nil {
		return refuse(fmt.Sprintf("address %q: %v", withoutPassword(endpoint.Host), err), err)
	}
	found, err := docker.WithTLSData(contexts, e.Context, endpoint)
	if err != nil {
		return refuse(err.Error(), err)
	}
	return found, nil
}

// fromEnv returns the daemon at an address, empty for the default one, with the TLS
// settings of the environment. from names the origin of the address.
func fromEnv(address, from string, env func(string) string, dir string) (docker.Endpoint, error) {
	verify := env(client.EnvTLSVerify) != ""
	useTLS := verify || env(envTLS) != ""
	address = strings.TrimSpace(address)
	host, err := opts.ParseHost(useTLS, address)
	if wrong := checkScheme(address); wrong != nil {
		err = wrong
	}
	if err != nil {
		return docker.Endpoint{}, addressError(fmt.Sprintf("%s %q", cmp.Or(from, "address"), withoutPassword(address)), address, err)
	}
	endpoint := docker.Endpoint{EndpointMeta: docker.EndpointMeta{Host: host}}
	if !useTLS || IsLocal(host) || isSSH(host) {
		return endpoint, nil
	}
	endpoint.SkipTLSVerify = !verify
	dir = cmp.Or(env(client.EnvOverrideCertPath), dir)
	// The docker command continues without a missing client certificate, but not without
	// a missing CA certificate.
	endpoint.TLSData, err = dcontext.TLSDataFromFiles(filepath.Join(dir, "ca.pem"),
		ifExists(filepath.Join(dir, "cert.pem")), ifExists(filepath.Join(dir, "key.pem")))
	if err != nil {
		return docker.Endpoint{}, &Error{Kind: KindTLS, Address: host, Detail: err.Error(), Advice: adviceCertificates, Err: err}
	}
	return endpoint, nil
}

func ifExists(path string) string {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return ""
	}
	return path
}

// checkScheme refuses addresses that would lead somewhere unexpected: a bare path would
// be parsed as a path at port 2375 of this machine.
func checkScheme(address string) error {
	scheme, _, ok := strings.Cut(address, "://")
	switch {
	case strings.HasPrefix(address, "/"):
		return errors.New("has no scheme; a socket begins with unix://")
	case ok && !slices.Contains([]string{"unix", "tcp", "http", "https", "ssh"}, scheme):
		return fmt.Errorf("the scheme %q is not one of unix, tcp, ssh", scheme)
	}
	return nil
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
func addressError(shown, host string, err error) *Error {
	return &Error{Kind: KindAddress, Address: shown, Advice: adviceAddress, Err: err,
		Detail: strings.ReplaceAll(err.Error(), host, withoutPassword(host))}
}

// innermost returns the root cause of an error.
func innermost(err error) error {
	for cause := errors.Unwrap(err); cause != nil; cause = errors.Unwrap(err) {
		err = cause
	}
	return err
}

// A Client is a client of Docker's API.
type Client struct {
	*client.Client
	host string
	ssh  *sshDialer // nil without ssh
}

// Client connects to the endpoint. It does not talk to the daemon yet. Every error is an
// [*Error].
func (e Endpoint) Client() (*Client, error) {
	c := &Client{host: e.Host}
	var options []client.Opt
	var err error
	if isSSH(e.docker.Host) {
		if c.ssh, err = newSSHDialer(e.docker.Host, e.Host); err != nil {
			return nil, addressError(e.Host, e.docker.Host, err)
		}
		options = c.ssh.options()
	} else if options, err = e.docker.ClientOpts(); err != nil {
		// The library mentions a context even if there is none.
		detail := strings.TrimPrefix(err.Error(), "failed to retrieve context tls info: ")
		return nil, &Error{Kind: KindTLS, Address: e.Host, Detail: detail, Advice: adviceCertificates, Err: err}
	}
	options = append(options, client.WithVersionFromEnv(), client.WithAPIVersionNegotiation())
	if len(e.headers) > 0 {
		options = append(options, client.WithHTTPHeaders(e.headers))
	}
	if c.Client, err = client.NewClientWithOpts(options...); err != nil {
		return nil, addressError(e.Host, e.docker.Host, err)
	}
	bounded := c.HTTPClient()
	bounded.Transport = answers{next: said.Bound(bounded.Transport), host: e.Host}
	return c, client.WithHTTPClient(bounded)(c.Client)
}

// DaemonHost returns the address of the endpoint, without any password.
func (c *Client) DaemonHost() string { return c.host }

// Close closes idle connections, and with ssh every connection.
func (c *Client) Close() error {
	err := c.Client.Close()
	if c.ssh != nil {
		err = errors.Join(err, c.ssh.Close())
	}
	return err
}
