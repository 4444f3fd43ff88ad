package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/oauth2"

	"github.com/evalbox/evalbox/internal/text"
)

// exchange is one call.
type exchange struct {
	Request
	began     time.Time
	hide      redactor
	have      credentials
	transport http.RoundTripper
	// sent says that a server may have the request of the operation.
	sent atomic.Bool
}

// sendWith sends the request with an access token.
func (x *exchange) sendWith(ctx context.Context, token *oauth2.Token) (*Response, error) {
	x.hide.add(token.AccessToken)
	x.have.value = token.Type() + " " + token.AccessToken
	return x.send(ctx)
}

// send sends the request and reads the response.
func (x *exchange) send(ctx context.Context) (*Response, error) {
	req, err := x.build(ctx)
	if err != nil {
		return nil, err
	}
	var redirects []string
	client := &http.Client{
		Transport: x.authorized(req.URL),
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			redirects = append(redirects, x.hide.text(next.URL.String()))
			if next.Body != nil && next.Body != http.NoBody && !sameOrigin(next.URL, via[0].URL) {
				return refused(next.URL, "a redirect of the body to another scheme or port")
			}
			return checkRedirect(next.URL, via)
		},
	}
	answer, err := client.Do(req)
	if err != nil {
		return nil, x.failed(ctx, err, x.sent.Load())
	}
	defer answer.Body.Close()
	response, err := x.read(answer)
	if err != nil {
		return nil, x.failed(ctx, err, true)
	}
	response.Redirects = redirects
	return response, nil
}

// authorized adds the credentials to the requests for one server. A redirect to another scheme,
// host or port gets neither them nor the URL before, which has parameters of the call.
func (x *exchange) authorized(first *url.URL) roundTripper {
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { x.sent.Store(true) }}
	return func(req *http.Request) (*http.Response, error) {
		req = req.Clone(httptrace.WithClientTrace(req.Context(), trace))
		switch {
		case !sameOrigin(req.URL, first):
			req.Header.Del("Referer")
		case x.have.value != "":
			req.Header.Set(x.have.header, x.have.value)
		}
		return x.transport.RoundTrip(req)
	}
}

// read reads the response. It reads a little more than the body that is kept: a secret may
// begin in it and end behind it.
func (x *exchange) read(answer *http.Response) (*Response, error) {
	limit := x.maxBody()
	body, err := io.ReadAll(io.LimitReader(answer.Body, int64(limit+x.hide.longest()+1)))
	if err != nil {
		return nil, err
	}
	// Such a body could hide a secret.
	if encoding := answer.Header.Get("Content-Encoding"); len(body) > 0 && encoding != "" && !strings.EqualFold(encoding, "identity") {
		return nil, fmt.Errorf("the body has the encoding %s, which was not asked for", quoted(encoding))
	}
	response := &Response{
		Status: answer.StatusCode, Header: http.Header{}, URL: x.hide.text(answer.Request.URL.String()),
		Body: x.hide.body(body, limit), BodyBytes: int64(len(body)), Truncated: len(body) > limit, hide: &x.hide,
	}
	if response.Truncated && !answer.Uncompressed {
		response.BodyBytes = max(response.BodyBytes, answer.ContentLength)
	}
	if len(response.Body) > limit { // a secret is shorter than what stands in its place
		response.Body, response.Truncated = response.Body[:limit], true
	}
	for _, name := range []string{"Content-Type", "Retry-After"} {
		if value := answer.Header.Get(name); value != "" {
			response.Header.Set(name, x.clean(value))
		}
	}
	response.ContentType = response.Header.Get("Content-Type")
	return response, nil
}

// clean is a text of a server, without secrets and not long.
func (x *exchange) clean(said string) string { return text.Short(x.hide.text(said), 500) }

// failed is the error of a request that has no response. Sent says that the server may have the
// request. The errors of the library may quote the server, so that none of them is kept.
func (x *exchange) failed(ctx context.Context, err error, sent bool) error {
	if no, ok := errors.AsType[*RefusedError](err); ok {
		return &RefusedError{Host: x.clean(no.Host), Port: no.Port, Rule: x.clean(no.Rule)}
	}
	switch ended := ctx.Err(); {
	case errors.Is(ended, context.DeadlineExceeded):
		return &TimeoutError{After: time.Since(x.began), Sent: x.sent.Load(), err: context.DeadlineExceeded}
	case ended != nil:
		return fmt.Errorf("canceled: %w", context.Cause(ctx))
	}
	if library, ok := errors.AsType[*url.Error](err); ok {
		err = library.Err
	}
	if sent {
		return &BrokenError{Reason: x.clean(err.Error())}
	}
	return &UnreachableError{Reason: x.clean(err.Error())}
}
