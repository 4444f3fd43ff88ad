package web

import (
	"cmp"
	"context"
	"crypto/x509"
	"net/http"
	"sync"
	"time"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/egress"
)

// Defaults and bounds of a request.
const (
	DefaultTimeout = 30 * time.Second
	DefaultMaxBody = 10 << 20
	// largestBody bounds MaxBody, because a body is held in memory.
	largestBody = 1 << 30
)

// Request is one call of an operation.
type Request struct {
	API API
	// AdapterID names the variable of a token, and the cached access token.
	AdapterID string
	Operation string
	// Parameters are plain data, as encoding/json has it. Those that the path does not name are
	// the query of GET, HEAD and DELETE, and the JSON body of POST, PUT and PATCH. There is not a
	// body without them.
	Parameters map[string]any
	// Timeout bounds the whole call: access token, redirects and body. 0 is [DefaultTimeout].
	Timeout time.Duration
	// MaxBody bounds the body of the response, in bytes after decompression. 0 is
	// [DefaultMaxBody], and 1 GiB is the most.
	MaxBody int64
	// Egress is the answer of [policy.Policy.ApplyEgress]. The zero value reaches nothing. Its
	// limits do not count here: a call makes few connections, and its body has a bound.
	Egress policy.Egress
	// LookupEnv reads the variables of secrets; nil is [os.LookupEnv].
	LookupEnv func(name string) (value string, found bool)
}

func (r Request) maxBody() int {
	if r.MaxBody <= 0 {
		return DefaultMaxBody
	}
	return int(min(r.MaxBody, largestBody))
}

// Response is what the server answered, with whatever status. Every secret of the request is
// replaced by "[secret]", also in the forms that URLs, JSON and base64 give it.
type Response struct {
	Status int
	// Header has Content-Type and Retry-After, if the server sent them.
	Header      http.Header
	ContentType string
	// Body is the body without compression, up to MaxBody bytes. Truncated says that the
	// server sent more.
	Body      []byte
	Truncated bool
	// BodyBytes is the length of the body before secrets were replaced. For a truncated body it
	// is the length that the server gave, or else the number of bytes that were read.
	BodyBytes int64
	// URL is the one that answered, Redirects are the URLs after the first, in their order.
	URL       string
	Redirects []string
	// Duration is the time of the whole call.
	Duration time.Duration

	hide *redactor
}

// Clean replaces secrets in plain data that was decoded from the body, and returns it.
func (r *Response) Clean(value any) any { return r.hide.value(value) }

// A Client makes requests. Its zero value is ready, and it may be used concurrently. It keeps
// the access tokens of OAuth in memory, one for each adapter. Every call has connections of its
// own, which end with it.
type Client struct {
	// Roots verify the certificates of servers; nil means those of the system. It does not
	// change after the first call.
	Roots *x509.CertPool

	mu     sync.Mutex
	tokens map[string]*tokens // by adapter
}

// Do makes a request. An error status of HTTP is a response, not an error. These errors mean
// that nothing was sent: [*InvalidError], [*OperationError], [*ParameterError],
// [*SecretError] and [*UnreachableError]. Nothing was sent to the host that a [*RefusedError]
// names. A request may have been carried out after a [*TimeoutError] or a [*BrokenError]. A
// [*TokenError] wraps one of them for the token server. An end of ctx is the cause of ctx. No
// error contains a secret.
func (c *Client) Do(ctx context.Context, r Request) (*Response, error) {
	if problems := r.API.Check(r.AdapterID); len(problems) > 0 {
		return nil, &InvalidError{problems}
	}
	dialer, err := egress.NewDialer(r.Egress)
	if err != nil {
		return nil, err
	}
	x := &exchange{Request: r, began: time.Now()}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(r.Timeout, DefaultTimeout))
	defer cancel()
	if x.have, err = r.credentials(&x.hide); err != nil {
		return nil, err
	}
	x.transport = &guard{rules: dialer.Rules, next: newTransport(ctx, dialer, c.Roots)}
	response, err := c.call(ctx, x)
	if err != nil {
		return nil, err
	}
	response.Duration = time.Since(x.began)
	return response, nil
}

// call sends the request. A cached access token that the server does not accept any more is
// replaced once.
func (c *Client) call(ctx context.Context, x *exchange) (*Response, error) {
	if x.API.method() != AuthOAuth {
		return x.send(ctx)
	}
	// A request that cannot be made needs no token.
	if _, err := x.build(ctx); err != nil {
		return nil, err
	}
	source := c.source(x)
	token, cached, err := source.get(ctx, x, nil)
	if err != nil {
		return nil, err
	}
	response, err := x.sendWith(ctx, token)
	if err != nil || response.Status != http.StatusUnauthorized || !cached {
		return response, err
	}
	if token, _, err = source.get(ctx, x, token); err != nil {
		return nil, err
	}
	return x.sendWith(ctx, token)
}
