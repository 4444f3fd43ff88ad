// Package web makes the HTTP requests of API adapters (AR-03): one operation of an API, with
// its parameters in the path, the query or the body, and with credentials that the document
// only refers to.
//
// A request reaches the hosts that its egress rules permit, and nothing else: the rules are
// checked for the name and for every address of it, again after each redirect. Everything is
// bounded: the time, the number of redirects, the headers, and the body after decompression.
// No secret is part of a response or an error.
package web

import (
	"cmp"
	"strings"
)

// API is the interface of an API adapter, as its document has it (AR-03).
type API struct {
	// BaseURL is the beginning of every URL, such as https://api.example.org/v1.
	BaseURL string `json:"base_url"`
	// AuthMethod is one of the methods below; empty is [AuthNone].
	AuthMethod string `json:"auth_method,omitempty"`
	Auth       Auth   `json:"auth,omitzero"`
	// Headers are sent with every request. None of them is a secret.
	Headers map[string]string `json:"headers,omitempty"`
	// Endpoints map operations to "METHOD /path/{parameter}".
	Endpoints map[string]string `json:"endpoint_mapping"`
}

// Methods of authentication.
const (
	AuthNone   = "none"
	AuthAPIKey = "api_key" // a header with a key
	AuthOAuth  = "oauth"   // OAuth 2.0 with client credentials (RFC 6749, 4.4)
	AuthBearer = "bearer"  // a fixed bearer token (RFC 6750)
)

// Auth says where the credentials are. It never has one.
type Auth struct {
	// Token is the bearer token or the API key. The default is the variable of [TokenEnv].
	Token SecretRef `json:"token,omitzero"`
	// Header is the header of the API key; empty is X-API-Key.
	Header string `json:"header,omitempty"`
	// TokenURL gives the access tokens of OAuth.
	TokenURL     string    `json:"token_url,omitempty"`
	ClientID     SecretRef `json:"client_id,omitzero"`
	ClientSecret SecretRef `json:"client_secret,omitzero"`
	Scopes       []string  `json:"scopes,omitempty"`
}

// SecretRef says where a secret is: in a variable of this process, or in a file of this
// machine. Exactly one is set.
type SecretRef struct {
	Env  string `json:"env,omitempty"`
	File string `json:"file,omitempty"`
}

// TokenEnv is the variable that has the token of an adapter whose document does not name one:
// ADP_002_TOKEN for ADP-002.
func TokenEnv(adapterID string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		}
		return '_'
	}, adapterID) + "_TOKEN"
}

func (a API) method() string { return cmp.Or(a.AuthMethod, AuthNone) }

// defaultKeyHeader is the usual header of API keys.
const defaultKeyHeader = "X-API-Key"

// keyHeader is the header that carries the secret.
func (a API) keyHeader() string {
	if a.method() == AuthAPIKey {
		return cmp.Or(a.Auth.Header, defaultKeyHeader)
	}
	return "Authorization"
}

// token is the reference to the bearer token or the API key.
func (a API) token(adapterID string) SecretRef {
	if a.Auth.Token == (SecretRef{}) {
		return SecretRef{Env: TokenEnv(adapterID)}
	}
	return a.Auth.Token
}

// Parameters returns the parameters in the path of an operation, in their order. They are
// required. The answer for an operation that is not known or not valid is nil.
func (a API) Parameters(operation string) []string {
	e, err := parseEndpoint(a.Endpoints[operation])
	if err != nil {
		return nil
	}
	return e.parameters()
}
