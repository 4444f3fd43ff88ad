package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

const (
	maxHost  = 253 // of a name in DNS
	maxLabel = 63
)

// NormalizeHost gives a host the one form in which hosts are compared: a name in lower case,
// without the dot at its end, international names in their ASCII form; an address without
// brackets, IPv4 in IPv6 as IPv4. Addr is not valid for a name. A text that is not an
// address, but that a resolver might take for one ("127.1", "0x7f000001"), is an error.
func NormalizeHost(host string) (name string, addr netip.Addr, err error) {
	if len(host) > 4*maxHost || !utf8.ValidString(host) {
		return "", netip.Addr{}, errors.New("is too long for a host, or not UTF-8")
	}
	text := host
	if inner, ok := strings.CutPrefix(text, "["); ok {
		if text, ok = strings.CutSuffix(inner, "]"); !ok || !strings.Contains(text, ":") {
			return "", netip.Addr{}, errors.New("is not an address in brackets")
		}
	}
	if addr, ok := parseAddr(text); ok {
		return addr.String(), addr, nil
	}
	if strings.ContainsAny(text, ":%") {
		return "", netip.Addr{}, errors.New("is neither a host name nor an address (one with a zone is refused)")
	}
	if !isASCII(text) {
		// The profile of browsers maps the dots and digits of other scripts too.
		if text, err = idna.Lookup.ToASCII(text); err != nil {
			return "", netip.Addr{}, errors.New("is not an international host name")
		}
		if addr, ok := parseAddr(text); ok {
			return addr.String(), addr, nil
		}
	}
	name = strings.TrimSuffix(strings.ToLower(text), ".")
	if err := checkHostName(name); err != nil {
		return "", netip.Addr{}, err
	}
	return name, netip.Addr{}, nil
}

// parseAddr reads an address without a zone; IPv4 in IPv6 is IPv4.
func parseAddr(text string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}, false
	}
	return addr.Unmap(), true
}

func isASCII(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r >= 0x80 }) < 0
}

// checkHostName checks a name in lower case.
func checkHostName(name string) error {
	if name == "" || len(name) > maxHost {
		return fmt.Errorf("must be a host name of 1 to %d letters", maxHost)
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > maxLabel || strings.Trim(label, "-") != label && !strings.HasPrefix(label, "xn--") {
			return errors.New("is not a host name")
		}
		if strings.ContainsFunc(label, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_')
		}) {
			return errors.New("is not a host name")
		}
		last = label
	}
	// No top-level domain is a number. Resolvers take such a name for an address, each in
	// its own way.
	if endsLikeANumber(last) {
		return errors.New("ends in a number, and is not an address")
	}
	return nil
}

func endsLikeANumber(label string) bool {
	if digits, isHex := strings.CutPrefix(label, "0x"); isHex {
		return strings.Trim(digits, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}
