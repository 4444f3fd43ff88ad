package cli

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// ListenLocal listens at the loopback address that a flag gives, and refuses any other.
func ListenLocal(ctx context.Context, flag, address string) (net.Listener, error) {
	const hint = "give a loopback address, such as 127.0.0.1:8765; for other machines, forward the port with ssh"
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, UsageHint(hint, "--%s %q: must be HOST:PORT", flag, address)
	}
	if !isLoopback(host) {
		return nil, UsageHint(hint, "--%s %q: is not an address of this machine alone", flag, address)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, WithHint(fmt.Errorf("--%s %q: %w", flag, address, err), "choose another port, or 0 for any")
	}
	return listener, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// IsLocal reports whether a request names this machine as its host, and comes from no web page of
// another one: a page whose name leads to this machine could otherwise use the server (DNS
// rebinding).
func IsLocal(r *http.Request) bool {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if !isLoopback(host) {
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	from, err := url.Parse(origin)
	return err == nil && isLoopback(from.Hostname())
}
