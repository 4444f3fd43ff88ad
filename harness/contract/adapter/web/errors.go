package web

import (
	"fmt"
	"strings"
	"time"

	"github.com/evalbox/evalbox/internal/strict"
	"github.com/evalbox/evalbox/internal/text"
)

// An InvalidError is a document with problems. Nothing was sent.
type InvalidError struct{ Problems []strict.Problem }

func (e *InvalidError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// An OperationError is an operation that the API does not have. Nothing was sent.
type OperationError struct {
	Operation string
	// Known are the operations of the API, sorted.
	Known []string
}

func (e *OperationError) Error() string {
	return fmt.Sprintf("operation %s is not one of %s", quoted(e.Operation), text.List(e.Known))
}

// A ParameterError is a parameter that is missing, or that has no form in its place. Nothing
// was sent.
type ParameterError struct{ Name, Rule string }

func (e *ParameterError) Error() string { return "parameter " + e.Name + " " + e.Rule }

// A SecretError is a secret that cannot be used. It never has the value. Nothing was sent.
type SecretError struct {
	// Field is the place of the reference in the document, such as auth.token.
	Field string
	Ref   SecretRef
	Rule  string
}

func (e *SecretError) Error() string {
	if e.Ref.Env != "" {
		return fmt.Sprintf("%s: the variable %s %s", e.Field, e.Ref.Env, e.Rule)
	}
	return fmt.Sprintf("%s: the file %s %s", e.Field, quoted(e.Ref.File), e.Rule)
}

// A RefusedError is a host, an address or a redirect that a rule forbids. Nothing was sent to
// it. The same request is refused again.
type RefusedError struct {
	Host string
	Port uint16
	// Rule is the rule that decided, for people.
	Rule string
}

func (e *RefusedError) Error() string { return fmt.Sprintf("%s, port %d: %s", e.Host, e.Port, e.Rule) }

// An UnreachableError is a server to which the request was never sent: its name or address was
// not found, the connection failed, or its certificate is not valid. It may be sent again.
type UnreachableError struct{ Reason string }

func (e *UnreachableError) Error() string { return "the server cannot be reached: " + e.Reason }

// A TimeoutError is a call whose time was over. It is [context.DeadlineExceeded].
type TimeoutError struct {
	// After is the time since the beginning of the call.
	After time.Duration
	// Sent says that the server may have the request.
	Sent bool
	err  error
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("timed out after %v", e.After.Round(time.Millisecond))
}

// Unwrap returns [context.DeadlineExceeded].
func (e *TimeoutError) Unwrap() error { return e.err }

// A BrokenError is a connection that ended, or an answer that stopped making sense, after the
// server may have got the request. It is not known whether the server carried it out.
type BrokenError struct{ Reason string }

func (e *BrokenError) Error() string { return "the answer broke off: " + e.Reason }

// A TokenError is an access token of OAuth that could not be had. The request of the operation
// was not sent, or was answered with status 401 before.
type TokenError struct {
	// Status is that of the token server; 0 without an answer.
	Status int
	// Code is the error code of RFC 6749, such as invalid_client; empty without one.
	Code string
	// Err says why there is no answer that can be used. It is one of the errors above, nil if
	// the token server refused.
	Err error
	// Reason says what is wrong with the answer, for people.
	Reason string
}

func (e *TokenError) Error() string {
	said := "the token server did not give an access token"
	switch {
	case e.Err != nil:
		return said + ": " + e.Err.Error()
	case e.Code != "":
		said += ": " + e.Code
	case e.Status != 0:
		said += fmt.Sprintf(": status %d", e.Status)
	}
	if e.Reason != "" {
		said += ": " + e.Reason
	}
	return said
}

// Unwrap returns the cause.
func (e *TokenError) Unwrap() error { return e.Err }
