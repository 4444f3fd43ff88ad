package docker

import (
	"net/url"
	"strings"

	"github.com/evalbox/evalbox/sandbox/engine"
)

// A Problem classifies why an engine cannot be reached.
type Problem string

// Problems of a [ConnectError].
const (
	// ProblemContext is a Docker context that is unknown or cannot be used.
	ProblemContext Problem = "context"
	// ProblemConfig is a Docker configuration that cannot be read.
	ProblemConfig Problem = "config"
	// ProblemAddress is a malformed address.
	ProblemAddress Problem = "address"
	// ProblemInsecure is a connection that anybody on the network path could take over.
	ProblemInsecure Problem = "insecure"
	// ProblemVersion is a requested API version that the engine does not support.
	ProblemVersion Problem = "version"
	// ProblemNotDocker is a server at the address that is not an engine.
	ProblemNotDocker Problem = "not_docker"
	// ProblemHostUnknown is a host name that does not resolve.
	ProblemHostUnknown Problem = "host_unknown"
	// ProblemCertificate is a file with a CA or client certificate, or with a key, that
	// cannot be used.
	ProblemCertificate Problem = "certificate"
	// ProblemServerCertificate is an engine whose certificate is not trusted: it is from
	// an unknown authority, expired, or for another name.
	ProblemServerCertificate Problem = "server_certificate"
	// ProblemClientCertificate is an engine that rejects the client certificate, or
	// requires one.
	ProblemClientCertificate Problem = "client_certificate"
	// ProblemNotTLS is an engine that does not use TLS; ProblemOnlyTLS is one that
	// requires it.
	ProblemNotTLS  Problem = "not_tls"
	ProblemOnlyTLS Problem = "only_tls"
	// ProblemNoSSH means that there is no ssh command on this machine.
	ProblemNoSSH Problem = "no_ssh"
	// ProblemHostKey is a host key that ssh does not know, or that changed.
	ProblemHostKey Problem = "host_key"
	// ProblemLogin is a host that refused the ssh user.
	ProblemLogin Problem = "login"
	// ProblemSSH is any other failure of ssh.
	ProblemSSH Problem = "ssh"
	// ProblemNoDocker means that the remote host has no docker command,
	// ProblemRemoteEngine that the engine there is not running, and
	// ProblemRemotePermission that the user may not use it.
	ProblemNoDocker         Problem = "no_docker"
	ProblemRemoteEngine     Problem = "remote_engine"
	ProblemRemotePermission Problem = "remote_permission"
)

// A ConnectError says why an engine cannot be reached. It is an
// [engine.ErrUnavailable]; with [ProblemRemotePermission] also an
// [engine.ErrPermission].
type ConnectError struct {
	Problem Problem
	// Address is the engine's, or that of a context, a variable or a file that should
	// have led to one. It contains no password.
	Address string
	// Detail is one line. It may contain text from another machine.
	Detail string
	// Err is the cause, if there is one.
	Err error
}

func (e *ConnectError) Error() string {
	text := engine.ErrUnavailable.Error()
	for _, part := range []string{e.Address, strings.Join(strings.Fields(e.Detail), " ")} {
		if part != "" {
			text += ": " + part
		}
	}
	return text
}

func (e *ConnectError) Unwrap() []error {
	class := engine.ErrUnavailable
	if e.Problem == ProblemRemotePermission {
		class = engine.ErrPermission
	}
	if e.Err == nil {
		return []error{class}
	}
	return []error{class, e.Err}
}

// Hint suggests a fix.
func (e *ConnectError) Hint() string {
	return strings.ReplaceAll(connectHints[e.Problem], "ssh HOST", sshCommand(e.Address))
}

// sshCommand returns the command that logs in at an address.
func sshCommand(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "ssh" || u.Hostname() == "" {
		return "ssh HOST"
	}
	command := "ssh "
	if u.Port() != "" {
		command += "-p " + u.Port() + " "
	}
	if u.User.Username() != "" {
		command += u.User.Username() + "@"
	}
	return command + u.Hostname()
}

var connectHints = map[Problem]string{
	ProblemContext: "see the contexts with: docker context ls; choose one with --context, DOCKER_CONTEXT or docker context use",
	ProblemConfig:  "mend the file, or name another folder for it with DOCKER_CONFIG",
	ProblemAddress: "give an address such as unix:///var/run/docker.sock, ssh://user@host or tcp://host:2376 " +
		"with --host or DOCKER_HOST; or leave both out",
	ProblemInsecure: "use ssh://user@host, or TLS: DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH, or a context that has both; " +
		"whoever knows the way to be safe permits it with SANDBOX_ALLOW_INSECURE_ENGINE=true",
	ProblemVersion:     "unset DOCKER_API_VERSION: the version is then agreed on with the engine",
	ProblemNotDocker:   "check host and port in the address: --host, DOCKER_HOST, or the context",
	ProblemHostUnknown: "check the host's name in the address: --host, DOCKER_HOST, or the context",
	ProblemCertificate: "put ca.pem, cert.pem and key.pem into the folder of DOCKER_CERT_PATH (~/.docker without it), " +
		"or into the context: docker context update",
	ProblemServerCertificate: "use the ca.pem that signed the engine's certificate, and a name that is in the certificate; " +
		"renew one that expired",
	ProblemClientCertificate: "put a cert.pem and a key.pem that the engine's authority signed, and that are not expired, " +
		"into the folder of DOCKER_CERT_PATH, or into the context",
	ProblemNotTLS:  "that port does not speak TLS: check the port (2376 is usual for TLS), or unset DOCKER_TLS_VERIFY and DOCKER_TLS",
	ProblemOnlyTLS: "that port speaks TLS only: set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH",
	ProblemNoSSH:   "install the ssh command: sudo apt-get install openssh-client",
	ProblemHostKey: "log in there by hand once, and compare the key's fingerprint: ssh HOST; " +
		"a key that changed without a reason is an attack",
	ProblemLogin: "make ssh HOST work without a question: a key that is accepted there, in ssh-agent or without a passphrase, " +
		"and the right user in the address",
	ProblemSSH:              "try the same by hand: ssh HOST docker version",
	ProblemNoDocker:         "install the docker command (18.09 or newer) there, where a non-interactive login finds it",
	ProblemRemoteEngine:     "start the engine there: sudo systemctl start docker; try: ssh HOST docker version",
	ProblemRemotePermission: "add that user to the group docker on the engine's machine, which makes it root there",
}
