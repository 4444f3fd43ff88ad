package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// A HostPattern is one entry of a list of hosts. It is a value and never changes.
type HostPattern struct {
	// Exactly one is set: name is an exact name, suffix the part behind the star of a
	// pattern, with its dot, and prefix a range of addresses.
	name, suffix string
	prefix       netip.Prefix
	// port is 0 when the pattern names none.
	port uint16
}

// The ports of a permitted host whose pattern names no port.
const (
	portHTTP  = 80
	portHTTPS = 443
)

// ParseHostPattern reads one host pattern:
//
//	api.example.org          this name
//	*.example.org            every name below it, not example.org itself
//	192.0.2.7, [2001:db8::7] this address
//	10.0.0.0/8               these addresses
//
// each with a port (":8443", an IPv6 address then in brackets) or without one. Without a
// port, a permitted host means ports 80 and 443, and a denied host every port. Names are
// compared without regard to case and a dot at the end; international names may be written
// in Unicode or in ASCII.
func ParseHostPattern(text string) (HostPattern, error) {
	refuse := func(why string) (HostPattern, error) {
		return HostPattern{}, &FieldError{Field: "host", Value: fmt.Sprintf("%.200q", text), Rule: why}
	}
	host, port, err := cutPort(text)
	if err != nil {
		return refuse(err.Error())
	}
	if strings.Contains(host, "/") {
		prefix, err := parsePrefix(host)
		if err != nil {
			return refuse(err.Error())
		}
		return HostPattern{prefix: prefix, port: port}, nil
	}
	if below, ok := strings.CutPrefix(host, "*."); ok {
		name, addr, err := NormalizeHost(below)
		if err != nil || addr.IsValid() || strings.HasPrefix(below, "[") {
			return refuse("must be a star, a dot and a host name, such as *.example.org")
		}
		return HostPattern{suffix: "." + name, port: port}, nil
	}
	if strings.Contains(host, "*") {
		return refuse("may have a star at its beginning only, and before a dot: *.example.org")
	}
	name, addr, err := NormalizeHost(host)
	switch {
	case err != nil:
		return refuse(err.Error())
	case addr.IsValid():
		addr = plainAddr(addr)
		return HostPattern{prefix: netip.PrefixFrom(addr, addr.BitLen()), port: port}, nil
	}
	return HostPattern{name: name, port: port}, nil
}

// The widest ranges of addresses that one pattern may list. The level open is the way to
// permit all addresses.
const (
	widest4 = 8
	widest6 = 8
)

func parsePrefix(text string) (netip.Prefix, error) {
	if inner, ok := strings.CutPrefix(text, "["); ok {
		text = strings.Replace(inner, "]", "", 1)
	}
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return netip.Prefix{}, errors.New("is not a range of addresses, such as 10.0.0.0/8")
	case prefix.Masked() != prefix:
		return netip.Prefix{}, fmt.Errorf("has bits beside its mask; it would be %v", prefix.Masked())
	case prefix.Addr().Is4In6() || nat64.Overlaps(prefix):
		return netip.Prefix{}, errors.New("is IPv4 written as IPv6; write it as IPv4")
	case prefix.Bits() < widest4 && prefix.Addr().Is4() || prefix.Bits() < widest6:
		return netip.Prefix{}, fmt.Errorf("is too wide: at least /%d", widest4)
	}
	return prefix, nil
}

// cutPort splits the port off. The colons of a bare IPv6 address do not begin one.
func cutPort(text string) (host string, port uint16, err error) {
	host = text
	colon := strings.LastIndexByte(text, ':')
	bare6 := strings.Count(text, ":") > 1 && !strings.HasPrefix(text, "[")
	if colon < 0 || bare6 || strings.HasSuffix(text, "]") || strings.IndexByte(text[colon:], '/') > 0 || strings.IndexByte(text[colon:], ']') > 0 {
		return host, 0, nil
	}
	port, err = ParsePort(text[colon+1:])
	return text[:colon], port, err
}

// ParsePort reads the number of a TCP port.
func ParsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || strings.Trim(text, "0123456789") != "" {
		return 0, errors.New("must have a port between 1 and 65535")
	}
	return uint16(n), nil
}

// String is the pattern in the form in which it is compared.
func (p HostPattern) String() string {
	text := p.name
	switch {
	case p.suffix != "":
		text = "*" + p.suffix
	case p.prefix.IsValid() && p.prefix.IsSingleIP():
		text = p.prefix.Addr().String()
	case p.prefix.IsValid():
		text = p.prefix.String()
	}
	if p.port == 0 {
		return text
	}
	if p.prefix.IsValid() && p.prefix.Addr().Is6() {
		text = "[" + text + "]"
	}
	return text + ":" + strconv.Itoa(int(p.port))
}

// matchesHost compares a host in its normal form; addr is not valid for a name.
func (p HostPattern) matchesHost(name string, addr netip.Addr) bool {
	switch {
	case addr.IsValid():
		return p.prefix.IsValid() && p.prefix.Contains(addr)
	case p.suffix != "":
		return strings.HasSuffix(name, p.suffix)
	}
	return p.name != "" && p.name == name
}

// permitsPort is the rule for ports of permitted hosts.
func (p HostPattern) permitsPort(port uint16) bool {
	if p.port == 0 {
		return port == portHTTP || port == portHTTPS
	}
	return port == p.port
}

// deniesPort is the rule for ports of denied hosts.
func (p HostPattern) deniesPort(port uint16) bool { return p.port == 0 || port == p.port }

// Covers reports whether a list with p permits every host and port that a list with q permits.
func (p HostPattern) Covers(q HostPattern) bool {
	port := p.port == q.port || p.port == 0 && (q.port == portHTTP || q.port == portHTTPS)
	switch {
	case !port:
		return false
	case q.prefix.IsValid():
		return p.prefix.IsValid() && p.prefix.Bits() <= q.prefix.Bits() && p.prefix.Contains(q.prefix.Addr())
	case q.suffix != "":
		return p.suffix != "" && strings.HasSuffix(q.suffix, p.suffix)
	}
	return p.matchesHost(q.name, netip.Addr{})
}
