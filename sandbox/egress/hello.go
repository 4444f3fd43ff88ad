package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/evalbox/evalbox/policy"
)

// Extensions of TLS that hide the real server name.
const (
	extensionECH  = 0xfe0d
	extensionESNI = 0xffce
)

var errHello = errors.New("the hello is read")

// readHello reads the first message of a TLS client without answering it. It also returns
// the bytes that it read.
func readHello(ctx context.Context, client net.Conn) (*tls.ClientHelloInfo, []byte, error) {
	var hello *tls.ClientHelloInfo
	listening := &listenOnly{Conn: client}
	err := tls.Server(listening, &tls.Config{ //nolint:gosec // nothing is negotiated here: the host chooses the version
		MinVersion: tls.VersionTLS10,
		GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
			hello = info
			return nil, errHello
		},
	}).HandshakeContext(ctx)
	if hello == nil {
		return nil, listening.seen, err
	}
	return hello, listening.seen, nil
}

// listenOnly records the bytes that are read, and writes none.
type listenOnly struct {
	net.Conn
	seen []byte
}

func (c *listenOnly) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.seen = append(c.seen, b[:n]...)
	return n, err
}

func (c *listenOnly) Write(b []byte) (int, error) { return len(b), nil }
func (c *listenOnly) Close() error                { return nil }

// checkHello compares the server name of a hello with the host of a tunnel, both in
// their normal form. An address has no server name (RFC 6066).
func checkHello(hello *tls.ClientHelloInfo, name string, addr netip.Addr) error {
	hides := func(id uint16) bool { return id == extensionECH || id == extensionESNI }
	switch {
	case slices.ContainsFunc(hello.Extensions, hides):
		return &RefusedError{"the TLS server name is encrypted"}
	case addr.IsValid() && hello.ServerName == "":
		return nil
	case hello.ServerName == "":
		return &RefusedError{"TLS without a server name"}
	}
	said, _, err := policy.NormalizeHost(hello.ServerName)
	if err != nil || said != name {
		return &RefusedError{fmt.Sprintf("the TLS server name is %.300q", hello.ServerName)}
	}
	return nil
}
