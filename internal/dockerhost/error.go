package dockerhost

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/sandbox/engine"
)

// A Kind classifies why a daemon cannot be reached.
type Kind string

// Kinds of an [Error].
const (
	// KindConfig is a Docker context or configuration that is unknown or cannot be used.
	KindConfig Kind = "config"
	// KindAddress is a malformed address, or one whose host name does not resolve.
	KindAddress Kind = "address"
	// KindInsecure is a connection that anybody on the network path could take over.
	KindInsecure Kind = "insecure"
	// KindVersion is a requested API version that the daemon does not support.
	KindVersion Kind = "version"
	// KindNotDocker is a server at the address that is not a Docker daemon.
	KindNotDocker Kind = "not_docker"
	// KindPodman is a Podman at the address.
	KindPodman Kind = "podman"
	// KindTLS is a certificate or key that cannot be used or is not accepted by the other
	// side, or a side that does not use TLS.
	KindTLS Kind = "tls"
	// KindSSH is everything that ssh reports: no command, an unknown host key, a refused
	// login, no docker command or no daemon at the other end.
	KindSSH Kind = "ssh"
	// KindPermission is a user at the other end of ssh who may not use the daemon there.
	KindPermission Kind = "permission"
)

// An Error says why a daemon cannot be reached. It is an [engine.ErrUnavailable]; with
// [KindPermission] also an [engine.ErrPermission].
type Error struct {
	Kind Kind
	// Address is the daemon's, or that of a context, a variable or a file that should have
	// led to one. It contains no password.
	Address string
	// Detail is one line. It may contain text from another machine.
	Detail string
	// Advice suggests a fix. "ssh HOST" in it means the command that logs in at Address.
	Advice string
	// Err is the cause, if there is one.
	Err error
}

func (e *Error) Error() string {
	shown := engine.ErrUnavailable.Error()
	for _, part := range []string{e.Address, text.OneLine(e.Detail)} {
		if part != "" {
			shown += ": " + part
		}
	}
	return shown
}

func (e *Error) Unwrap() []error {
	class := engine.ErrUnavailable
	if e.Kind == KindPermission {
		class = engine.ErrPermission
	}
	if e.Err == nil {
		return []error{class}
	}
	return []error{class, e.Err}
}

// Hint suggests a fix, with commands that can be copied.
func (e *Error) Hint() string {
	return strings.ReplaceAll(e.Advice, "ssh HOST", sshCommand(e.Address))
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

// AdviceInsecure is the advice of [KindInsecure].
const AdviceInsecure = "use ssh://user@host, or TLS: DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH, or a context that has both; " +
	"if you know that the way is safe, permit it with SANDBOX_ALLOW_INSECURE_ENGINE=true"

const (
	adviceContext = "see the contexts with: docker context ls; choose one with --context, DOCKER_CONTEXT or docker context use"
	adviceConfig  = "fix the file, or name another directory for it with DOCKER_CONFIG"
	adviceAddress = "give an address such as unix:///var/run/docker.sock, ssh://user@host or tcp://host:2376 " +
		"with --host or DOCKER_HOST; or leave both out"
	adviceVersion      = "unset DOCKER_API_VERSION: the version is then agreed on with the engine"
	adviceNotDocker    = "check host and port in the address: --host, DOCKER_HOST, or the context"
	advicePodman       = "name a Docker Engine, 20.10 or newer, with --host, --context or DOCKER_HOST"
	adviceHostName     = "check the host's name in the address: --host, DOCKER_HOST, or the context"
	adviceCertificates = "put ca.pem, cert.pem and key.pem into the directory of DOCKER_CERT_PATH (~/.docker without it), " +
		"or into the context: docker context update"
	adviceServerCertificate = "use the ca.pem that signed the engine's certificate, and a name that is in the certificate; " +
		"renew one that expired"
	adviceClientCertificate = "put a cert.pem and a key.pem that the engine's authority signed, and that are not expired, " +
		"into the directory of DOCKER_CERT_PATH, or into the context"
	adviceNotTLS  = "that port does not speak TLS: check the port (2376 is usual for TLS), or unset DOCKER_TLS_VERIFY and DOCKER_TLS"
	adviceOnlyTLS = "that port speaks TLS only: set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH"
	adviceNoSSH   = "install the ssh command: sudo apt-get install openssh-client"
	adviceHostKey = "log in there by hand once, and compare the key's fingerprint: ssh HOST; " +
		"a key that changed without a reason is an attack"
	adviceLogin = "make ssh HOST work without a question: a key that is accepted there, in ssh-agent or without a passphrase, " +
		"and the right user in the address"
	adviceSSH        = "try the same by hand: ssh HOST docker version"
	adviceNoDocker   = "install the docker command (18.09 or newer) there, where a non-interactive login finds it"
	adviceNoDaemon   = "start the engine there: sudo systemctl start docker; try: ssh HOST docker version"
	advicePermission = "add that user to the group docker on the engine's machine, which makes it root there"
)

// Explain recognizes connection problems in an error of the client. It returns nil for any
// other error.
func Explain(err error) *Error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	problem := func(kind Kind, detail, advice string) *Error {
		return &Error{Kind: kind, Address: calledHost(err), Detail: detail, Advice: advice, Err: err}
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return problem(KindAddress, dns.Error(), adviceHostName)
	}
	if server, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return problem(KindTLS, server.Err.Error(), adviceServerCertificate)
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return problem(KindTLS, http.ErrSchemeMismatch.Error(), adviceNotTLS)
	}
	if remote, ok := errors.AsType[*net.OpError](err); ok && remote.Op == "remote error" && strings.Contains(remote.Err.Error(), "certificate") {
		return problem(KindTLS, "the engine says: "+remote.Err.Error(), adviceClientCertificate)
	}
	// The remaining errors of the daemon and of the client are only text.
	text := err.Error()
	switch {
	case errdefs.IsInvalidArgument(err) && strings.Contains(text, "client version"), strings.Contains(text, "requires API version"):
		return problem(KindVersion, text, adviceVersion)
	case errdefs.IsInvalidArgument(err) && strings.Contains(text, "HTTP request to an HTTPS server"):
		return problem(KindTLS, "it expects TLS", adviceOnlyTLS)
	}
	return nil
}

// ExplainAnswer is [Explain] for a call that every daemon at an address answers. If the
// server does not know the call, or its answer is malformed, it is not a Docker daemon.
func ExplainAnswer(address string, err error) *Error {
	_, syntax := errors.AsType[*json.SyntaxError](err)
	_, other := errors.AsType[*json.UnmarshalTypeError](err)
	text := err.Error()
	if syntax || other || errdefs.IsNotFound(err) || errdefs.IsNotImplemented(err) ||
		// One call of the client does not wrap the errors of its JSON reader.
		strings.Contains(text, "remote info: invalid character") || strings.Contains(text, "remote info: json: cannot unmarshal") {
		return &Error{Kind: KindNotDocker, Address: address, Advice: adviceNotDocker, Err: err,
			Detail: "something answers there, and it is not a container engine"}
	}
	return Explain(err)
}

// calledHost returns the host of a failed call, or "" if the error does not contain it.
func calledHost(err error) string {
	call, ok := errors.AsType[*url.Error](err)
	if !ok {
		return ""
	}
	u, err := url.Parse(call.URL)
	if err != nil || u.Host == "" {
		return ""
	}
	return "tcp://" + u.Host
}
