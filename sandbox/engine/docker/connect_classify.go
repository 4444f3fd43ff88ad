package docker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/containerd/errdefs"
)

// connectProblem recognizes connection problems in an error of the client. It returns nil
// for any other error.
func connectProblem(err error) *ConnectError {
	var (
		known      *ConnectError
		ssh        *sshError
		dns        *net.DNSError
		authority  x509.UnknownAuthorityError
		invalid    x509.CertificateInvalidError
		name       x509.HostnameError
		unverified *tls.CertificateVerificationError
		operation  *net.OpError
	)
	problem := func(p Problem, cause error) *ConnectError {
		return &ConnectError{Problem: p, Address: calledHost(err), Detail: cause.Error(), Err: err}
	}
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &ssh):
		return ssh.problem()
	case errors.As(err, &dns):
		return problem(ProblemHostUnknown, dns)
	case errors.As(err, &authority):
		return problem(ProblemServerCertificate, authority)
	case errors.As(err, &invalid):
		return problem(ProblemServerCertificate, invalid)
	case errors.As(err, &name):
		return problem(ProblemServerCertificate, name)
	case errors.As(err, &unverified):
		return problem(ProblemServerCertificate, unverified.Err)
	case errors.Is(err, http.ErrSchemeMismatch):
		return problem(ProblemNotTLS, http.ErrSchemeMismatch)
	case errors.As(err, &operation) && operation.Op == "remote error" && strings.Contains(operation.Err.Error(), "certificate"):
		return problem(ProblemClientCertificate, errors.New("the engine says: "+operation.Err.Error()))
	}
	// The remaining errors of the engine and of the client are only text.
	text := err.Error()
	switch {
	case errdefs.IsInvalidArgument(err) && strings.Contains(text, "client version"), strings.Contains(text, "requires API version"):
		return problem(ProblemVersion, err)
	case errdefs.IsInvalidArgument(err) && strings.Contains(text, "HTTP request to an HTTPS server"):
		return problem(ProblemOnlyTLS, errors.New("it expects TLS"))
	}
	return nil
}

// questionError is [engineError] for calls that every engine answers. If the server does
// not know such a call, or its answer is malformed, it is not an engine.
func (e *adapter) questionError(ctx context.Context, err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	text := err.Error()
	if errdefs.IsNotFound(err) || errdefs.IsNotImplemented(err) || errors.As(err, &syntax) || errors.As(err, &kind) ||
		// One call of the client does not wrap the errors of its JSON reader.
		strings.Contains(text, "remote info: invalid character") || strings.Contains(text, "remote info: json: cannot unmarshal") {
		return &ConnectError{Problem: ProblemNotDocker, Address: withoutPassword(e.api.DaemonHost()),
			Detail: "something answers there, and it is no container engine", Err: err}
	}
	return engineError(ctx, err)
}

// calledHost returns the host of a failed call, or "" if the error does not contain it.
func calledHost(err error) string {
	var call *url.Error
	if !errors.As(err, &call) {
		return ""
	}
	u, err := url.Parse(call.URL)
	if err != nil || u.Host == "" {
		return ""
	}
	return "tcp://" + u.Host
}

// innermost returns the root cause of an error.
func innermost(err error) error {
	for cause := errors.Unwrap(err); cause != nil; cause = errors.Unwrap(err) {
		err = cause
	}
	return err
}

// fileReason says on one line why a file cannot be used.
func fileReason(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Path + ": " + path.Err.Error()
	}
	return err.Error()
}
