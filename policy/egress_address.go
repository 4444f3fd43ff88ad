package policy

import (
	"net/netip"
	"slices"
)

// addressRange is a range of addresses that are not public.
type addressRange struct {
	prefix netip.Prefix
	what   string
}

// metadata are the addresses of cloud services that give credentials to every process of
// the machine. A range does not permit them: each must be listed alone.
var metadata = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"), // most clouds
	netip.MustParseAddr("169.254.170.2"),   // containers of AWS
	netip.MustParseAddr("169.254.170.23"),
	netip.MustParseAddr("fd00:ec2::254"), // AWS
	netip.MustParseAddr("fd00:ec2::23"),
	netip.MustParseAddr("fd20:ce::254"),    // Google
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("192.0.0.192"),     // Oracle
}

// special4 and special6 follow the registries of special-purpose addresses of IANA
// (RFC 6890). Of IPv6 only 2000::/3 is public at all.
var special4 = []addressRange{
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private"},
	{netip.MustParsePrefix("100.64.0.0/10"), "private (carrier-grade NAT)"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private"},
	{netip.MustParsePrefix("192.0.0.0/24"), "reserved"},
	{netip.MustParsePrefix("192.0.2.0/24"), "reserved for documents"},
	{netip.MustParsePrefix("192.88.99.0/24"), "reserved (6to4)"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private"},
	{netip.MustParsePrefix("198.18.0.0/15"), "reserved for benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), "reserved for documents"},
	{netip.MustParsePrefix("203.0.113.0/24"), "reserved for documents"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},
}

var (
	public6  = netip.MustParsePrefix("2000::/3")
	nat64    = netip.MustParsePrefix("64:ff9b::/96")
	special6 = []addressRange{
		{netip.MustParsePrefix("::/128"), "unspecified"},
		{netip.MustParsePrefix("::1/128"), "loopback"},
		{netip.MustParsePrefix("::/96"), "IPv4 in an old form of IPv6"},
		{netip.MustParsePrefix("64:ff9b:1::/48"), "private (NAT64)"},
		{netip.MustParsePrefix("2001::/23"), "reserved (Teredo and others)"},
		{netip.MustParsePrefix("2001:db8::/32"), "reserved for documents"},
		{netip.MustParsePrefix("2002::/16"), "IPv4 in IPv6 (6to4)"},
		{netip.MustParsePrefix("3fff::/20"), "reserved for documents"},
		{netip.MustParsePrefix("fc00::/7"), "private"},
		{netip.MustParsePrefix("fe80::/10"), "link-local"},
		{netip.MustParsePrefix("fec0::/10"), "private"},
		{netip.MustParsePrefix("ff00::/8"), "multicast"},
	}
)

// plainAddr returns the address that is really reached: for IPv4 that is written as IPv6, or
// that a translator (NAT64) reaches, that is the IPv4 address.
func plainAddr(addr netip.Addr) netip.Addr {
	addr = addr.WithZone("").Unmap()
	if nat64.Contains(addr) {
		bytes := addr.As16()
		return netip.AddrFrom4([4]byte(bytes[12:]))
	}
	return addr
}

// notPublic says why a plain address is not public; empty for one that is.
func notPublic(addr netip.Addr) string {
	ranges := special6
	if addr.Is4() {
		ranges = special4
	}
	if slices.Contains(metadata, addr) {
		return "that of a metadata service"
	}
	for _, r := range ranges {
		if r.prefix.Contains(addr) {
			return r.what
		}
	}
	if addr.Is6() && !public6.Contains(addr) {
		return "reserved"
	}
	return ""
}
