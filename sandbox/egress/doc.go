// Package egress is the way out of a sandbox: an HTTP proxy, for plain requests and
// for tunnels (CONNECT), that reaches what the rules of one run permit and writes
// down every request.
//
// The name that is asked for is checked, and every address that it stands for; the
// address that was checked is the one that is dialled. What a tunnel holds must be
// TLS whose server name is the host of the tunnel. Requests are forwarded as they
// are, to the host of their URL, without the headers that concern the proxy.
// Everything is bounded, and everything ends with [Session.Close].
package egress
