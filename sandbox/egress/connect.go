package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/evalbox/evalbox/policy"
)

// connect connects to a host that was admitted. It looks up the addresses, checks every one
// of them, and dials one. A name with any address that is not permitted is refused.
func (p *proxy) connect(ctx context.Context, x *exchange, host string, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	addrs, err := p.lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	for _, addr := range addrs {
		if v := p.cfg.Rules.Address(addr, port); !v.Allowed {
			return nil, &refusal{fmt.Sprintf("%v: %s", addr, v.Rule)}
		}
	}
	var errs []error
	for _, addr := range addrs {
		conn, err := p.cfg.Dialer.DialContext(ctx, "tcp", net.JoinHostPort(addr.String(), strconv.Itoa(int(port))))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		x.entry.Address = addr.String()
		return &meteredConn{p.track(&trackedConn{Conn: conn, limit: x.deadline}), x, p}, nil
	}
	return nil, errors.Join(errs...)
}

// lookup returns all addresses of a host.
func (p *proxy) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	name, addr, err := policy.NormalizeHost(host)
	if err != nil {
		return nil, &refusal{"the host " + err.Error()}
	}
	if addr.IsValid() {
		return []netip.Addr{addr}, nil
	}
	addrs, known := p.cfg.Hosts[name]
	if !known {
		// With the dot the resolver does not use the search list of this machine.
		if addrs, err = p.cfg.Resolver.LookupNetIP(ctx, "ip", name+"."); err != nil {
			var dns *net.DNSError
			if errors.As(err, &dns) && dns.IsNotFound {
				return nil, fmt.Errorf("%s: no such host", name)
			}
			return nil, fmt.Errorf("%s: its addresses could not be found out: %w", name, err)
		}
	}
	if len(addrs) == 0 || len(addrs) > maxAddresses {
		return nil, fmt.Errorf("%s: has %d addresses", name, len(addrs))
	}
	return addrs, nil
}
