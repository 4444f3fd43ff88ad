package dockerhost

import (
	"net/http"
	"strings"
)

// answers refuses the answers of servers that speak Docker's API and are not Docker.
type answers struct {
	next http.RoundTripper
	host string
}

// RoundTrip implements [http.RoundTripper]. Podman names itself in each answer.
func (a answers) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := a.next.RoundTrip(req)
	if err != nil || resp.Header.Get("Libpod-Api-Version") == "" && !strings.HasPrefix(resp.Header.Get("Server"), "Libpod/") {
		return resp, err
	}
	_ = resp.Body.Close() // nobody reads it
	return nil, knownError{&Error{Kind: KindPodman, Address: a.host, Advice: advicePodman,
		Detail: "it is Podman, which takes a filter of system calls as a file of its machine only, and evalbox sends the filter with each container"}}
}

// knownError passes an [Error] through the client. Its text is deliberately short: the client
// mistakes errors with certain words, which remote messages contain, for errors of its own.
type knownError struct{ known *Error }

func (e knownError) Error() string { return "the engine cannot be used" }

func (e knownError) Unwrap() error { return e.known }
