package policy

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// maxHostPatterns bounds each list of hosts, and the table of names.
const maxHostPatterns = 1000

// EgressRules decide about hosts and addresses. They come from [Egress.Rules], do not change,
// and may be used concurrently.
type EgressRules struct {
	level       NetworkLevel
	allow, deny []HostPattern
	// own are the addresses of this machine: they do not count as public.
	own []netip.Addr
}

// A HostVerdict is the answer of [EgressRules].
type HostVerdict struct {
	Allowed bool
	// Rule is the rule that decided, for people: a pattern, or why no pattern matched.
	Rule string
	// ReadOnly permits plain HTTP requests with GET and HEAD only.
	ReadOnly bool
	// Raw permits any bytes in a tunnel. Otherwise a tunnel must hold TLS whose server name
	// is the host. Raw needs a pattern with exactly this port, and a port other than 80 and
	// 443.
	Raw bool
}

// Rules returns the rules of e. Registries are the host patterns of the policy, and own are
// the addresses of this machine. Each pattern that cannot be read is reported as a
// [FieldError], joined.
func (e Egress) Rules(registries []string, own []netip.Addr) (*EgressRules, error) {
	level := cmp.Or(e.Level, Offline)
	if !slices.Contains(NetworkLevels(), level) {
		return nil, &FieldError{Field: "network level", Value: fmt.Sprintf("%q", level), Rule: "must be offline, registry, api or open"}
	}
	rules := &EgressRules{level: level}
	var errs []error
	if level != Registry {
		registries = nil
	}
	for _, list := range []struct {
		field string
		texts []string
		into  *[]HostPattern
	}{{"allow-host", e.Allow, &rules.allow}, {"deny-host", e.Deny, &rules.deny}, {"registries", registries, &rules.allow}} {
		if len(list.texts) > maxHostPatterns {
			errs = append(errs, &FieldError{Field: list.field, Value: fmt.Sprintf("of %d hosts", len(list.texts)),
				Rule: fmt.Sprintf("must be at most %d", maxHostPatterns)})
			continue
		}
		for i, text := range list.texts {
			pattern, err := ParseHostPattern(text)
			var field *FieldError
			if errors.As(err, &field) {
				err = &FieldError{Field: list.field, Value: field.Value, Rule: field.Rule, Entry: i + 1}
			}
			errs = append(errs, err)
			*list.into = append(*list.into, pattern)
		}
	}
	for _, addr := range own {
		rules.own = append(rules.own, plainAddr(addr))
	}
	return rules, errors.Join(errs...)
}

// Host decides about a host that a program asks for, a name or an address, at a port. The
// addresses of a name must pass [EgressRules.Address] as well.
func (r *EgressRules) Host(host string, port uint16) HostVerdict {
	name, addr, err := NormalizeHost(host)
	if err != nil {
		return HostVerdict{Rule: "the host " + err.Error()}
	}
	if addr.IsValid() {
		addr = plainAddr(addr)
	}
	for _, pattern := range r.deny {
		if pattern.deniesPort(port) && pattern.matchesHost(name, addr) {
			return HostVerdict{Rule: "denied by " + pattern.String()}
		}
	}
	if r.level == Offline {
		return HostVerdict{Rule: "the level is offline"}
	}
	v := HostVerdict{ReadOnly: r.level == Registry}
	otherPort := ""
	for _, pattern := range r.allow {
		switch {
		case !pattern.matchesHost(name, addr):
		case !pattern.permitsPort(port):
			otherPort = pattern.String()
		case !v.Allowed || pattern.port != 0:
			v.Allowed, v.Rule = true, "allowed by "+pattern.String()
			v.Raw = r.level != Registry && pattern.port != 0 && port != portHTTP && port != portHTTPS
		}
	}
	switch {
	case v.Allowed:
	case r.level == Open:
		v.Allowed, v.Rule = true, "the level is open"
	case otherPort != "":
		v.Rule = fmt.Sprintf("port %d is not one of %s", port, otherPort)
	default:
		v.Rule = "no permitted host matches"
	}
	return v
}

// Address decides about an address of a host. An address that is not public, or belongs to
// this machine, must be listed as an address or within a range; that of a metadata service
// must be listed as an address.
func (r *EgressRules) Address(addr netip.Addr, port uint16) HostVerdict {
	if !addr.IsValid() {
		return HostVerdict{Rule: "is not an address"}
	}
	plain := plainAddr(addr)
	// Denied in the form in which it is written, too.
	for _, pattern := range r.deny {
		if pattern.prefix.IsValid() && pattern.deniesPort(port) &&
			(pattern.prefix.Contains(plain) || pattern.prefix.Contains(addr.WithZone("").Unmap())) {
			return HostVerdict{Rule: "denied by " + pattern.String()}
		}
	}
	if r.level == Offline {
		return HostVerdict{Rule: "the level is offline"}
	}
	why := notPublic(plain)
	if why == "" && slices.Contains(r.own, plain) {
		why = "of this machine"
	}
	if why == "" {
		return HostVerdict{Allowed: true, Rule: "the address is public"}
	}
	for _, pattern := range r.allow {
		if pattern.prefix.IsValid() && pattern.prefix.Contains(plain) && pattern.permitsPort(port) &&
			(pattern.prefix.IsSingleIP() || !slices.Contains(metadata, plain)) {
			return HostVerdict{Allowed: true, Rule: "allowed by " + pattern.String()}
		}
	}
	return HostVerdict{Rule: fmt.Sprintf("the address is %s, and not listed as an address", why)}
}
