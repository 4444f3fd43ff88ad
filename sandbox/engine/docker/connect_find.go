package docker

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/cli/cli/config"
	dcontext "github.com/docker/cli/cli/context"
	"github.com/docker/cli/cli/context/docker"
	"github.com/docker/cli/cli/context/store"
	"github.com/docker/cli/opts"
	"github.com/docker/docker/client"
)

// Variables of the docker command for which its library exports no names.
const (
	envContext = "DOCKER_CONTEXT"
	envTLS     = "DOCKER_TLS"
)

// defaultContext is the name that means "no context": the environment decides.
const defaultContext = "default"

// A choice is the selected engine and the origin of the selection.
type choice struct {
	context string
	// host is the address in the default context; empty means the default address.
	host string
	// from names a variable or a file; empty if the caller decided, or nothing did.
	from string
}

// choose decides as the docker command does (resolveContextName of its version 28).
// current is the context that the configuration file names.
func choose(at Address, env func(string) string, current, file string) (choice, error) {
	c := choice{context: defaultContext}
	switch {
	case at.Context != "" && at.Host != "":
		return choice{}, &ConnectError{Problem: ProblemAddress, Detail: "a host and a context are given, of which there can be one"}
	case at.Context != "":
		c.context = at.Context
	case at.Host != "":
		c.host = at.Host
	case env(client.EnvOverrideHost) != "":
	case env(envContext) != "":
		c.context, c.from = env(envContext), envContext
	case current != "":
		c.context, c.from = current, file
	}
	if c.context == defaultContext && c.host == "" && env(client.EnvOverrideHost) != "" {
		c.host, c.from = env(client.EnvOverrideHost), client.EnvOverrideHost
	}
	return c, nil
}

// findEngine is [FindEngine] with explicit sources.
func findEngine(at Address, env func(string) string, dir string) (Endpoint, error) {
	if err := checkVersionVariable(env(client.EnvOverrideAPIVersion)); err != nil {
		return Endpoint{}, err
	}
	file := filepath.Join(dir, config.ConfigFileName)
	current, headers, err := readDockerConfig(dir)
	if err != nil {
		// The docker command continues without it, and may reach another engine.
		return Endpoint{}, &ConnectError{Problem: ProblemConfig, Address: file, Detail: innermost(err).Error(), Err: err}
	}
	chosen, err := choose(at, env, current, file)
	if err != nil {
		return Endpoint{}, err
	}
	endpoint := Endpoint{Context: chosen.context, From: chosen.from, headers: headers}
	if chosen.context == defaultContext {
		endpoint.docker, err = defaultEndpoint(chosen, env, dir)
	} else {
		endpoint.docker, err = contextEndpoint(chosen, dir)
	}
	if err != nil {
		return Endpoint{}, err
	}
	endpoint.Host = withoutPassword(endpoint.docker.Host)
	endpoint.Insecure, endpoint.loopback = protect(endpoint.docker)
	if endpoint.Insecure != "" && !endpoint.loopback && !at.AllowInsecure {
		return Endpoint{}, &ConnectError{Problem: ProblemInsecure, Address: endpoint.Host,
			Detail: fmt.Sprintf("would be reached %s, and whoever is on the way would control its machine%s", endpoint.Insecure, chosen.by())}
	}
	return endpoint, nil
}

// by names the origin of the choice, for the end of a message.
func (c choice) by() string {
	if c.from == "" {
		return ""
	}
	return " (from " + c.from + ")"
}

// dockerConfigDir returns the directory of the user's Docker configuration; empty for an
// account without one.
func dockerConfigDir(env func(string) string) string {
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

// readDockerConfig reads the relevant settings. A missing file counts as empty.
func readDockerConfig(dir string) (currentContext string, headers map[string]string, err error) {
	if dir == "" {
		return "", nil, nil
	}
	file, err := config.Load(dir)
	if err != nil {
		return "", nil, err
	}
	return file.CurrentContext, file.HTTPHeaders, nil
}

// contextStore returns the store in which the docker command keeps its contexts.
func contextStore(dir string) *store.ContextStore {
	return store.New(filepath.Join(dir, "contexts"), store.NewConfig(
		func() any { return &map[string]any{} },
		store.EndpointTypeGetter(docker.DockerEndpoint, func() any { return &docker.EndpointMeta{} }),
	))
}

// contextEndpoint returns the engine of a stored context.
func contextEndpoint(c choice, dir string) (docker.Endpoint, error) {
	refuse := func(detail string, err error) (docker.Endpoint, error) {
		return docker.Endpoint{}, &ConnectError{Problem: ProblemContext, Address: fmt.Sprintf("context %q", c.context),
			Detail: detail + c.by(), Err: err}
	}
	contexts := contextStore(dir)
	meta, err := contexts.GetMetadata(c.context)
	switch {
	case errdefs.IsNotFound(err):
		return refuse("does not exist; there are "+strings.Join(contextNames(contexts), ", "), err)
	case err != nil:
		return refuse(fileReason(err), err)
	}
	endpoint, err := docker.EndpointFromContext(meta)
	if err != nil {
		return refuse("has no Docker engine", err)
	}
	if endpoint.Host == "" {
		endpoint.Host = client.DefaultDockerHost
	}
	if err := checkScheme(endpoint.Host); err != nil {
		return refuse(fmt.Sprintf("address %q: %v", withoutPassword(endpoint.Host), err), err)
	}
	found, err := docker.WithTLSData(contexts, c.context, endpoint)
	if err != nil {
		return refuse(fileReason(err), err)
	}
	return found, nil
}

// contextNames lists the known contexts for a message, without those that cannot be read.
func contextNames(contexts *store.ContextStore) []string {
	names, _ := store.Names(contexts)
	return append([]string{defaultContext}, names...)
}

// defaultEndpoint returns the engine that the environment selects.
func defaultEndpoint(c choice, env func(string) string, dir string) (docker.Endpoint, error) {
	verify := env(client.EnvTLSVerify) != ""
	useTLS := verify || env(envTLS) != ""
	where := c.from
	if where == "" {
		where = "address"
	}
	address := strings.TrimSpace(c.host)
	host, err := opts.ParseHost(useTLS, address)
	if wrong := checkScheme(address); wrong != nil {
		err = wrong
	}
	if err != nil {
		return docker.Endpoint{}, addressError(ProblemAddress, fmt.Sprintf("%s %q", where, withoutPassword(address)), address, err)
	}
	endpoint := docker.Endpoint{EndpointMeta: docker.EndpointMeta{Host: host}}
	if !useTLS || isLocal(host) || strings.HasPrefix(host, "ssh://") {
		return endpoint, nil
	}
	endpoint.SkipTLSVerify = !verify
	if path := env(client.EnvOverrideCertPath); path != "" {
		dir = path
	}
	// The docker command continues without a missing client certificate, but not without
	// a missing CA certificate.
	endpoint.TLSData, err = dcontext.TLSDataFromFiles(filepath.Join(dir, "ca.pem"),
		ifExists(filepath.Join(dir, "cert.pem")), ifExists(filepath.Join(dir, "key.pem")))
	if err != nil {
		return docker.Endpoint{}, &ConnectError{Problem: ProblemCertificate, Address: host, Detail: err.Error(), Err: err}
	}
	return endpoint, nil
}

func ifExists(path string) string {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return ""
	}
	return path
}

// schemes are the URL schemes that a client supports.
var schemes = []string{"unix", "npipe", "tcp", "http", "https", "ssh"}

// checkScheme refuses addresses that would lead somewhere unexpected: a bare path would
// be parsed as a path at port 2375 of this machine.
func checkScheme(address string) error {
	scheme, _, ok := strings.Cut(address, "://")
	switch {
	case strings.HasPrefix(address, "/"):
		return errors.New("has no scheme; a socket begins with unix://")
	case ok && !slices.Contains(schemes, scheme):
		return fmt.Errorf("the scheme %q is not one of unix, tcp, ssh, npipe", scheme)
	}
	return nil
}

var versionText = regexp.MustCompile(`^v?[0-9]+\.[0-9]+$`)

// checkVersionVariable refuses malformed versions: an engine would answer every call with
// "not found".
func checkVersionVariable(version string) error {
	if version == "" || versionText.MatchString(version) {
		return nil
	}
	return &ConnectError{Problem: ProblemVersion, Address: fmt.Sprintf("%s %q", client.EnvOverrideAPIVersion, version),
		Detail: "must be a version, such as 1.41"}
}
