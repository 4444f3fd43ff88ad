package web

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/http/httpguts"

	"github.com/evalbox/evalbox/internal/strict"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
)

// Check reports everything that is wrong with the document of an adapter. Paths are
// those of the document, such as auth.token_url. No value may be a secret. The answer for a valid
// one is empty.
func (a API) Check(adapterID string) []strict.Problem {
	var c checker
	c.url("base_url", a.BaseURL)
	c.auth(a, adapterID)
	c.headers(a)
	c.endpoints(a)
	return c.problems
}

// checker collects problems.
type checker struct{ problems []strict.Problem }

func (c *checker) report(field, value, rule string) {
	c.problems = append(c.problems, strict.Problem{Path: field, Value: value, Rule: rule})
}

// quoted shows the beginning of a text that is not a secret.
func quoted(value string) string { return text.Quote(value, 100) }

// CheckURL returns what is wrong with the URL of a server.
func CheckURL(field, url string) []strict.Problem {
	c := &checker{}
	c.url(field, url)
	return c.problems
}

// url checks the URL of a server. Errors of the library are not reported: they would show a
// password.
func (c *checker) url(field, raw string) {
	if raw == "" {
		c.report(field, "", "must not be empty")
		return
	}
	if strings.Contains(raw, "@") {
		c.report(field, "", "must not have a user name or password: credentials belong in auth, as references")
		return
	}
	refuse := func(rule string) { c.report(field, quoted(raw), rule) }
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		refuse("must be a URL with http or https and a host, such as https://api.example.org/v1")
		return
	}
	if _, _, err := policy.NormalizeHost(u.Hostname()); err != nil {
		refuse("has a host that " + err.Error())
	}
	if _, err := portOf(u); err != nil || strings.HasSuffix(u.Host, ":") {
		refuse("must have a port between 1 and 65535, or none")
	}
	if strings.ContainsAny(raw, "?#") {
		refuse("must not have a query or a fragment")
	}
	if leadsElsewhere(u.EscapedPath()) {
		refuse("must not have a segment . or .. in its path")
	}
}

// Address is the host and the port of a URL; ok is false for one that has none.
func Address(raw string) (host string, port uint16, ok bool) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return "", 0, false
	}
	port, err = portOf(u)
	return u.Hostname(), port, err == nil
}

// portOf is the port that a URL means.
func portOf(u *url.URL) (uint16, error) {
	switch {
	case u.Port() != "":
		return policy.ParsePort(u.Port())
	case u.Scheme == "https":
		return 443, nil
	}
	return 80, nil
}

// auth checks the credentials: those that the method needs, and no others.
func (c *checker) auth(a API, adapterID string) {
	method, all := a.method(), []string{AuthNone, AuthAPIKey, AuthOAuth, AuthBearer}
	if !slices.Contains(all, method) {
		c.report("auth_method", quoted(method), "must be one of "+text.List(all))
		return
	}
	none := SecretRef{}
	for _, f := range []struct {
		field string
		given bool
		of    []string
	}{
		{"auth.token", a.Auth.Token != none, []string{AuthAPIKey, AuthBearer}},
		{"auth.header", a.Auth.Header != "", []string{AuthAPIKey}},
		{"auth.token_url", a.Auth.TokenURL != "", []string{AuthOAuth}},
		{"auth.client_id", a.Auth.ClientID != none, []string{AuthOAuth}},
		{"auth.client_secret", a.Auth.ClientSecret != none, []string{AuthOAuth}},
		{"auth.scopes", len(a.Auth.Scopes) > 0, []string{AuthOAuth}},
	} {
		if f.given && !slices.Contains(f.of, method) {
			c.report(f.field, "", fmt.Sprintf("is for the auth_method %s; this one is %s", strings.Join(f.of, " or "), method))
		}
	}
	switch method {
	case AuthAPIKey:
		if name := a.keyHeader(); !httpguts.ValidHeaderFieldName(name) || slices.Contains(ownHeaders, canonical(name)) {
			c.report("auth.header", quoted(name), "must be a header that may carry a key, such as "+defaultKeyHeader)
		}
		c.secret("auth.token", a.token(adapterID))
	case AuthBearer:
		c.secret("auth.token", a.token(adapterID))
	case AuthOAuth:
		c.url("auth.token_url", a.Auth.TokenURL)
		c.secret("auth.client_id", a.Auth.ClientID)
		c.secret("auth.client_secret", a.Auth.ClientSecret)
		c.scopes(a.Auth.Scopes)
	}
}

var scopePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\A[!#-\[\]-~]+\z`) }) // RFC 6749, 3.3

func (c *checker) scopes(scopes []string) {
	for i, scope := range scopes {
		if !scopePattern().MatchString(scope) {
			c.report(fmt.Sprintf("auth.scopes[%d]", i), quoted(scope), `must be printable ASCII without spaces, " and \`)
		}
	}
}

var envPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\A[A-Za-z0-9_]{1,256}\z`) })

// canonical is the name of a header in the form in which names are compared.
func canonical(name string) string { return http.CanonicalHeaderKey(name) }

// secret checks a reference. Its text is not shown: it may be the secret itself, in the wrong
// place.
func (c *checker) secret(field string, ref SecretRef) {
	switch {
	case (ref.Env == "") == (ref.File == ""):
		c.report(field, "", "must have exactly one of env and file")
	case ref.Env != "" && !envPattern().MatchString(ref.Env):
		c.report(field+".env", "", "must be the name of an environment variable")
	case strings.ContainsRune(ref.File, 0):
		c.report(field+".file", "", "must not have a NUL byte")
	}
}

// Headers that a document must not set.
var (
	// ownHeaders belong to one connection or are made by the client.
	ownHeaders = []string{"Host", "Content-Length", "Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Expect", "Accept-Encoding", "Proxy-Connection"}
	// secretHeaders carry credentials.
	secretHeaders = []string{"Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key"}
)

// headers checks the fixed headers. Their values are not shown: one may be a secret.
func (c *checker) headers(a API) {
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(a.Headers)) {
		key, field := canonical(name), "headers."+text.Short(name, 100)
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			c.report("headers", quoted(name), "is not the name of a header")
		case slices.Contains(secretHeaders, key) || key == canonical(a.keyHeader()):
			c.report(field, "", "carries a secret: use auth_method, and a reference in auth")
		case slices.Contains(ownHeaders, key):
			c.report(field, "", "is set by the client")
		case !httpguts.ValidHeaderFieldValue(a.Headers[name]):
			c.report(field, "", "has a value with characters that a header cannot have")
		case seen[key]:
			c.report(field, "", "is given twice")
		}
		seen[key] = true
	}
}

func (c *checker) endpoints(a API) {
	if len(a.Endpoints) == 0 {
		c.report("endpoint_mapping", "", "must have at least one operation")
	}
	for _, operation := range slices.Sorted(maps.Keys(a.Endpoints)) {
		if strings.TrimSpace(operation) == "" {
			c.report("endpoint_mapping", quoted(operation), "must be the name of an operation")
		}
		if _, err := parseEndpoint(a.Endpoints[operation]); err != nil {
			c.report("endpoint_mapping."+text.Short(operation, 100), quoted(a.Endpoints[operation]), err.Error())
		}
	}
}
