package web

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// tokenKey says what an access token is for. A change of a secret or a scope needs a new one.
type tokenKey struct{ url, clientID, scopes, secret string }

// tokens holds the access token of one adapter.
type tokens struct {
	key    tokenKey
	config *clientcredentials.Config
	// turn is taken by the call that uses token. Unlike for a mutex, waiting ends with a call.
	turn  chan struct{}
	token *oauth2.Token
}

// source returns the holder of the access token for a call.
func (c *Client) source(x *exchange) *tokens {
	auth := x.API.Auth
	sum := sha256.Sum256([]byte(x.have.clientSecret))
	key := tokenKey{auth.TokenURL, x.have.clientID, strings.Join(auth.Scopes, " "), string(sum[:])}
	c.mu.Lock()
	defer c.mu.Unlock()
	held := c.tokens[x.AdapterID]
	if held == nil || held.key != key {
		held = &tokens{key: key, turn: make(chan struct{}, 1), config: &clientcredentials.Config{
			ClientID: x.have.clientID, ClientSecret: x.have.clientSecret, TokenURL: auth.TokenURL, Scopes: auth.Scopes,
		}}
		if c.tokens == nil {
			c.tokens = map[string]*tokens{}
		}
		c.tokens[x.AdapterID] = held
	}
	return held
}

// get returns an access token that is not stale, and whether another call fetched it. Calls
// that need a new one at the same time share it.
func (t *tokens) get(ctx context.Context, x *exchange, stale *oauth2.Token) (token *oauth2.Token, cached bool, err error) {
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, false, &TokenError{Err: x.failed(ctx, ctx.Err(), false)}
	}
	defer func() { <-t.turn }()
	if t.token.Valid() && t.token != stale {
		return t.token, true, nil
	}
	if token, err = t.fetch(ctx, x); err != nil {
		return nil, false, err
	}
	t.token = token
	return token, false, nil
}

// fetch asks the token server. Its requests follow no redirects: they carry the client's secret.
func (t *tokens) fetch(ctx context.Context, x *exchange) (*oauth2.Token, error) {
	var sent atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }})
	client := &http.Client{Transport: x.transport, CheckRedirect: func(next *http.Request, _ []*http.Request) error {
		return refused(next.URL, "a redirect of the token server")
	}}
	token, err := t.config.Token(context.WithValue(traced, oauth2.HTTPClient, client))
	if err != nil {
		return nil, x.tokenFailed(ctx, err, sent.Load())
	}
	if rule := secretRule(token.AccessToken); rule != "" {
		return nil, &TokenError{Status: http.StatusOK, Reason: "the access token " + rule}
	}
	if !httpguts.ValidHeaderFieldName(token.Type()) {
		return nil, &TokenError{Status: http.StatusOK, Reason: "the type of the access token is not a word"}
	}
	return token, nil
}

// tokenFailed is the error of a token that was not given. Sent says that the token server may
// have the request.
func (x *exchange) tokenFailed(ctx context.Context, err error, sent bool) error {
	if said, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return &TokenError{Status: said.Response.StatusCode, Code: x.clean(said.ErrorCode), Reason: x.clean(said.ErrorDescription)}
	}
	if _, ok := errors.AsType[*url.Error](err); ok || ctx.Err() != nil {
		return &TokenError{Err: x.failed(ctx, err, sent)}
	}
	return &TokenError{Reason: x.clean(strings.TrimPrefix(err.Error(), "oauth2: "))}
}
