package web

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func valid() API {
	return API{BaseURL: "https://api.example.org/v1", Endpoints: map[string]string{"get": "GET /items/{id}"}}
}

func TestCheckAccepts(t *testing.T) {
	for name, change := range map[string]func(*API){
		"as it is":  func(*API) {},
		"http":      func(a *API) { a.BaseURL = "http://127.0.0.1:8080/" },
		"IPv6":      func(a *API) { a.BaseURL = "http://[::1]:8080" },
		"none":      func(a *API) { a.AuthMethod = AuthNone },
		"bearer":    func(a *API) { a.AuthMethod = AuthBearer },
		"file":      func(a *API) { a.AuthMethod, a.Auth.Token = AuthBearer, SecretRef{File: "/run/token"} },
		"key":       func(a *API) { a.AuthMethod, a.Auth.Header = AuthAPIKey, "Authorization" },
		"headers":   func(a *API) { a.Headers = map[string]string{"Accept": "text/csv", "x-version": "2"} },
		"endpoints": func(a *API) { a.Endpoints = map[string]string{"a.b": "PATCH /", "b": "GET /a%20b/{x}:{y-z}.json"} },
		"oauth": func(a *API) {
			a.AuthMethod = AuthOAuth
			a.Auth = Auth{TokenURL: "https://id.example/t", ClientID: SecretRef{Env: "ID"}, ClientSecret: SecretRef{File: "s"}, Scopes: []string{"a:b"}}
		},
	} {
		a := valid()
		change(&a)
		require.Empty(t, a.Check("ADP-002"), name)
	}
}

func TestCheckRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*API)
		want   []string
	}{
		"no URL":     {func(a *API) { a.BaseURL = "" }, []string{"base_url: must not be empty"}},
		"scheme":     {func(a *API) { a.BaseURL = "ftp://a.example" }, []string{`base_url: "ftp://a.example" must be a URL with http or https`}},
		"no host":    {func(a *API) { a.BaseURL = "https:///v1" }, []string{"must be a URL with http or https and a host"}},
		"not a URL":  {func(a *API) { a.BaseURL = "https://a b" }, []string{"must be a URL"}},
		"user":       {func(a *API) { a.BaseURL = "https://hunter2:hunter3@a.example" }, []string{"base_url: must not have a user name"}},
		"query":      {func(a *API) { a.BaseURL = "https://a.example/?" }, []string{"must not have a query or a fragment"}},
		"fragment":   {func(a *API) { a.BaseURL = "https://a.example/#a" }, []string{"must not have a query or a fragment"}},
		"number":     {func(a *API) { a.BaseURL = "http://127.1/" }, []string{"has a host that ends in a number"}},
		"port":       {func(a *API) { a.BaseURL = "http://a.example:0/" }, []string{"must have a port"}},
		"empty port": {func(a *API) { a.BaseURL = "http://a.example:/" }, []string{"must have a port"}},
		"dots":       {func(a *API) { a.BaseURL = "http://a.example/%2e%2E/" }, []string{"must not have a segment . or .."}},
		"method":     {func(a *API) { a.AuthMethod = "basic" }, []string{`auth_method: "basic" must be one of none, api_key, oauth, bearer`}},
		"both":       {func(a *API) { a.AuthMethod, a.Auth.Token = AuthBearer, SecretRef{Env: "A", File: "b"} }, []string{"auth.token: must have exactly one"}},
		"not a name": {func(a *API) { a.AuthMethod, a.Auth.Token = AuthBearer, SecretRef{Env: "hunter2 hunter3"} }, []string{"auth.token.env: must be the name"}},
		"not a file": {func(a *API) { a.AuthMethod, a.Auth.Token = AuthBearer, SecretRef{File: "hunter2\x00"} }, []string{"auth.token.file: must not have a NUL"}},
		"key header": {func(a *API) { a.AuthMethod, a.Auth.Header = AuthAPIKey, "host" }, []string{`auth.header: "host" must be a header that may carry a key`}},
		"other method": {func(a *API) {
			a.Auth = Auth{Token: SecretRef{Env: "A"}, Header: "X", TokenURL: "x", ClientID: SecretRef{Env: "A"}, ClientSecret: SecretRef{Env: "A"}, Scopes: []string{"a"}}
		}, []string{"auth.token: is for the auth_method api_key or bearer; this one is none", "auth.header", "auth.token_url", "auth.client_id", "auth.client_secret", "auth.scopes"}},
		"oauth": {func(a *API) { a.AuthMethod, a.Auth.Scopes = AuthOAuth, []string{"a", "b c"} }, []string{"auth.token_url: must not be empty", "auth.client_id: must have", "auth.client_secret: must have", `auth.scopes[1]: "b c"`}},
		"headers": {func(a *API) {
			a.AuthMethod, a.Auth.Header = AuthAPIKey, "X-Mine"
			a.Headers = map[string]string{"authorization": "hunter2", "Cookie": "hunter2", "X-API-KEY": "hunter2", "x-mine": "hunter2", "proxy-Authorization": "hunter2",
				"host": "a", "TE": "a", "accept-encoding": "br", "a b": "c", "X-Line": "hunter2\r\nHost: b", "X-Two": "1", "x-two": "2"}
		}, []string{"headers.authorization: carries a secret", "headers.Cookie: carries", "headers.X-API-KEY: carries", "headers.x-mine: carries", "headers.proxy-Authorization: carries",
			"headers.host: is set by the client", "headers.TE: is set", "headers.accept-encoding: is set", `headers: "a b" is not the name`, "headers.X-Line: has a value", "headers.x-two: is given twice"}},
		"no endpoints": {func(a *API) { a.Endpoints = nil }, []string{"endpoint_mapping: must have at least one"}},
		"endpoints": {func(a *API) {
			a.Endpoints = map[string]string{" ": "GET /", "a": "/a", "b": "TRACE /a", "c": "GET a", "d": "GET /{a", "e": "GET /a}", "f": "GET /{a{b}}", "g": "GET /{}", "h": "GET /{1}",
				"i": "GET /a b", "j": "GET /a?b", "k": "GET /../a", "l": "GET /%2e%2e/a", "m": "GET /%zz", "n": "get /a", "o": "GET  /a", "p": `GET /..\a`, "q": "GET /\r\n"}
		}, []string{`endpoint_mapping: " "`, "mapping.a:", "mapping.b:", "mapping.c:", "mapping.d: \"GET /{a\" has a { without", "mapping.e: \"GET /a}\" has a } without", "mapping.f:", "mapping.g:", "mapping.h:",
			"mapping.i:", "mapping.j:", "mapping.k:", "mapping.l:", "mapping.m:", "mapping.n:", "mapping.o:", "mapping.p:", "mapping.q:"}},
		"all at once": {func(a *API) { *a = API{BaseURL: "x", AuthMethod: "y"} }, []string{"base_url", "auth_method", "endpoint_mapping"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := valid()
			test.change(&a)
			err := &InvalidError{a.Check("ADP-002")}
			require.Len(t, err.Problems, len(test.want), err)
			for _, want := range test.want {
				require.ErrorContains(t, err, want)
			}
			require.NotContains(t, err.Error(), "hunter", "a secret in the wrong place")
		})
	}
}

func TestTokenEnv(t *testing.T) {
	require.Equal(t, "ADP_002_TOKEN", TokenEnv("ADP-002"))
	require.Equal(t, "MY_API__TOKEN", TokenEnv("my.apiü"))
}

func TestParameters(t *testing.T) {
	a := API{Endpoints: map[string]string{"a": "GET /{b}/{a}/{b}", "bad": "GET {x}"}}
	require.Equal(t, []string{"b", "a"}, a.Parameters("a"))
	require.Empty(t, a.Parameters("bad"))
	require.Empty(t, a.Parameters("unknown"))
}
