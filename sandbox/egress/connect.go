package egress

import (
	"context"
	"net"
)

// connect connects to a host that was admitted.
func (p *proxy) connect(ctx context.Context, x *exchange, host string, port uint16) (net.Conn, error) {
	conn, addr, err := p.dialer.connect(ctx, host, port)
	if err != nil {
		return nil, err
	}
	x.entry.Address = addr.String()
	return &meteredConn{p.track(&trackedConn{Conn: conn, limit: x.deadline}), x, p}, nil
}
