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

// A RefusedError says that the rules or limits of a run forbid a request or a connection.
type RefusedError struct {
	// Rule is the rule that decided, for people.
	Rule string
}

func (e *RefusedError) Error() string { return e.Rule }

// resolver finds the addresses of a name, which ends in a dot; for example a
// [*net.Resolver].
type resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// dialer connects to an address; for example a [*net.Dialer].
type dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// A Dialer connects to the hosts that rules permit (CX-04). It checks the name and every
// address of it, and dials an address that it checked. It may be used concurrently. Its fields
// do not change after the first use.
type Dialer struct {
	// Rules decide about hosts and addresses; nil permits nothing.
	Rules *policy.EgressRules
	// Hosts are the addresses of names, in their normal form, that are not looked up.
	Hosts map[string][]netip.Addr
	// Resolver and Net default to those of the system.
	Resolver resolver
	Net      dialer
}

// NewDialer returns the Dialer of an egress that [policy.Policy.ApplyEgress] returned. The
// addresses of this machine do not count as public. The limits of the egress are left to the
// caller. Each pattern that cannot be read is reported as a [policy.FieldError], joined.
func NewDialer(e policy.Egress) (*Dialer, error) {
	rules, err := e.Rules(nil, ownAddresses())
	if err != nil {
		return nil, err
	}
	return &Dialer{Rules: rules, Hosts: e.Resolve}, nil
}

// Dial connects to a host, a name or an address, at a TCP port. It also returns the address
// that it reached. It takes 10 seconds at most. A host that is not permitted, and a name with
// any address that is not permitted, is a [*RefusedError]. Every other error means that the
// host could not be reached.
func (d *Dialer) Dial(ctx context.Context, host string, port uint16) (net.Conn, netip.Addr, error) {
	if d.Rules == nil {
		return nil, netip.Addr{}, &RefusedError{"there are no rules"}
	}
	if v := d.Rules.Host(host, port); !v.Allowed {
		return nil, netip.Addr{}, &RefusedError{v.Rule}
	}
	return d.connect(ctx, host, port)
}

// connect is Dial for a host that was admitted.
func (d *Dialer) connect(ctx context.Context, host string, port uint16) (net.Conn, netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	addrs, err := d.lookup(ctx, host)
	if err != nil {
		return nil, netip.Addr{}, err
	}
	for _, addr := range addrs {
		if v := d.Rules.Address(addr, port); !v.Allowed {
			return nil, netip.Addr{}, &RefusedError{fmt.Sprintf("%v: %s", addr, v.Rule)}
		}
	}
	var errs []error
	for _, addr := range addrs {
		conn, err := d.net().DialContext(ctx, "tcp", net.JoinHostPort(addr.String(), strconv.Itoa(int(port))))
		if err == nil {
			return conn, addr, nil
		}
		errs = append(errs, err)
	}
	return nil, netip.Addr{}, errors.Join(errs...)
}

// lookup returns all addresses of a host.
func (d *Dialer) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	name, addr, err := policy.NormalizeHost(host)
	if err != nil {
		return nil, &RefusedError{"the host " + err.Error()}
	}
	if addr.IsValid() {
		return []netip.Addr{addr}, nil
	}
	addrs, known := d.Hosts[name]
	if !known {
		// With the dot the resolver does not use the search list of this machine.
		if addrs, err = d.resolver().LookupNetIP(ctx, "ip", name+"."); err != nil {
			if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
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

func (d *Dialer) resolver() resolver {
	if d.Resolver != nil {
		return d.Resolver
	}
	// The C library may use further name services, not all of which can be canceled.
	return &net.Resolver{PreferGo: true}
}

func (d *Dialer) net() dialer {
	if d.Net != nil {
		return d.Net
	}
	return &net.Dialer{}
}
