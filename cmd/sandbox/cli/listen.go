package cli

import (
	"context"
	"fmt"
	"net"
	"strings"
)

// Listen listens at a loopback address that --listen names, and refuses any other.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, UsageHint(listenHint, "--listen %q: must be HOST:PORT", address)
	}
	if !IsLoopback(host) {
		return nil, UsageHint(listenHint, "--listen %q: is not an address of this machine alone", address)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, WithHint(fmt.Errorf("--listen %q: %w", address, err), "choose another port, or 0 for any")
	}
	return listener, nil
}

const listenHint = "give a loopback address, such as 127.0.0.1:8765; for other machines, forward the port with ssh"

// IsLoopback reports whether a host is this machine, for itself alone.
func IsLoopback(host string) bool {
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
