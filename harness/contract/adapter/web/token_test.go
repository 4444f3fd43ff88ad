package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// issuer is a token server with an API that accepts its last token.
type issuer struct {
	issued  atomic.Int32
	expires int
	answer  func(w http.ResponseWriter, r *http.Request) // in place of a token, if it is not nil
	// refuses counts the requests with a token that is not the last one.
	refuses atomic.Int32
	// revoked is the number of tokens that the API does not accept.
	revoked atomic.Int32
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/token" {
		n := 0
		_, err := fmt.Sscanf(r.Header.Get("Authorization"), "Bearer access-%d-token", &n)
		if err != nil || n <= int(i.revoked.Load()) {
			i.refuses.Add(1)
			w.WriteHeader(http.StatusUnauthorized)
		}
		fmt.Fprintf(w, "hello %s", r.Header.Get("Authorization"))
		return
	}
	if i.answer != nil {
		i.answer(w, r)
		return
	}
	id, password, _ := r.BasicAuth()
	if id != "client-id" || password != strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(secret, "/", "%2F"), "+", "%2B"), "=", "%3D") ||
		r.FormValue("grant_type") != "client_credentials" || r.FormValue("scope") != "read write" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"access_token":"access-%d-token","token_type":"bearer","expires_in":%d}`, i.issued.Add(1), i.expires)
}

func oauth(t *testing.T, i *issuer) Request {
	t.Helper()
	host := serve(t, i.ServeHTTP)
	r := call(t, host)
	r.API.AuthMethod = AuthOAuth
	r.API.Auth = Auth{TokenURL: "http://" + host + "/token", ClientID: SecretRef{Env: "ID"}, ClientSecret: SecretRef{Env: "SECRET"}, Scopes: []string{"read", "write"}}
	return r
}

func TestOAuth(t *testing.T) {
	i := &issuer{expires: 3600}
	r, client := oauth(t, i), &Client{}
	for range 3 {
		got, err := client.Do(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, "hello Bearer [secret]", string(got.Body))
	}
	require.EqualValues(t, 1, i.issued.Load(), "the token is kept")

	i.revoked.Store(1)
	got, err := client.Do(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, got.Status, "a fresh token")
	require.EqualValues(t, 2, i.issued.Load())
	require.EqualValues(t, 1, i.refuses.Load())

	i.revoked.Store(1000)
	got, err = client.Do(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, http.StatusUnauthorized, got.Status, "replaced once only")
	require.EqualValues(t, 3, i.issued.Load())
	require.EqualValues(t, 3, i.refuses.Load())

	other := r
	other.AdapterID = "other"
	got, err = client.Do(t.Context(), other)
	require.NoError(t, err)
	require.Equal(t, http.StatusUnauthorized, got.Status)
	require.EqualValues(t, 4, i.issued.Load(), "a token for each adapter, and a new one is not replaced")
}

func TestOAuthExpires(t *testing.T) {
	i := &issuer{expires: 5} // the library replaces a token 10 seconds early
	r, client := oauth(t, i), &Client{}
	for n := range 3 {
		_, err := client.Do(t.Context(), r)
		require.NoError(t, err)
		require.EqualValues(t, n+1, i.issued.Load())
	}
}

func TestOAuthSharesTokens(t *testing.T) {
	i := &issuer{expires: 3600}
	r, client := oauth(t, i), &Client{}
	all := func() {
		errs := make([]error, 100)
		var calls sync.WaitGroup
		for n := range errs {
			calls.Go(func() {
				got, err := client.Do(t.Context(), r)
				if err == nil && got.Status != http.StatusOK {
					err = fmt.Errorf("status %d", got.Status)
				}
				errs[n] = err
			})
		}
		calls.Wait()
		require.NoError(t, errors.Join(errs...))
	}
	all()
	require.EqualValues(t, 1, i.issued.Load())
	i.revoked.Store(1)
	all()
	require.EqualValues(t, 2, i.issued.Load())
}

func TestOAuthRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request)
		want   TokenError
	}{
		"refused": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"error":"invalid_client","error_description":"not %s"}`, secret)
		}, TokenError{Status: 401, Code: "invalid_client", Reason: "not [secret]"}},
		"echoed": {func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, r.Header.Get("Authorization")+secret, http.StatusForbidden)
		}, TokenError{Status: 403}},
		"not JSON": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, "x")
		}, TokenError{Reason: "cannot parse json: invalid character 'x' looking for beginning of value"}},
		"no token": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, "{}")
		}, TokenError{Reason: "server response missing access_token"}},
		"bad token": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"access_token":"hunter2\r\nHost: a"}`)
		}, TokenError{Status: 200, Reason: "the access token must be one line without spaces around it and without control characters"}},
		"bad type": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"access_token":"access","token_type":"a b"}`)
		}, TokenError{Status: 200, Reason: "the type of the access token is not a word"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := do(t, oauth(t, &issuer{answer: test.answer}))
			var no *TokenError
			require.ErrorAs(t, err, &no)
			require.Equal(t, test.want, *no)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}

func TestOAuthRules(t *testing.T) {
	_, err := do(t, oauth(t, &issuer{answer: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusTemporaryRedirect) }}))
	requireRefused(t, err, "a redirect of the token server")

	r := oauth(t, &issuer{})
	r.API.Auth.TokenURL = "http://127.0.0.1:1/token"
	_, err = do(t, r)
	requireRefused(t, err, "port 1 is not one of 127.0.0.1")
	var no *TokenError
	require.ErrorAs(t, err, &no)

	r.Egress = permit(t, "127.0.0.1:1")
	_, err = do(t, r)
	var unreachable *UnreachableError
	require.ErrorAs(t, err, &unreachable)

	r = oauth(t, &issuer{answer: func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server sees the end of a connection after the body only
		<-r.Context().Done()
	}})
	r.Timeout = 50 * time.Millisecond
	_, err = do(t, r)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorAs(t, err, &no)
	var late *TimeoutError
	require.ErrorAs(t, err, &late)
	require.False(t, late.Sent, "the request of the operation")

	r = oauth(t, &issuer{answer: func(http.ResponseWriter, *http.Request) { t.Error("a token was asked for") }})
	r.Operation = "unknown"
	_, err = do(t, r)
	var unknown *OperationError
	require.ErrorAs(t, err, &unknown)
}

// TestOAuthWaits: a call that waits for the token of another one ends in its own time.
func TestOAuthWaits(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	i := &issuer{}
	i.answer = func(w http.ResponseWriter, _ *http.Request) {
		once.Do(func() { close(arrived) })
		<-release
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"access_token":"access-1-token"}`)
	}
	r, client := oauth(t, i), &Client{}
	first := make(chan error, 1)
	go func() { _, err := client.Do(t.Context(), r); first <- err }()
	<-arrived
	short := r
	short.Timeout = 50 * time.Millisecond
	_, err := client.Do(t.Context(), short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	close(release)
	require.NoError(t, <-first)
}
