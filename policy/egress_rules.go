package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// maxHostPatterns bounds each list of hosts, and the table of names.
const maxHostPatterns = 1000

// EgressRules decide about hosts and addresses. They come from [Egress.Rules], do
// not change and may be used concurrently.
type EgressRules struct {
	level       NetworkLevel
	allow, deny []HostPattern
	// own are addresses of this machine, which are none of the public internet.
	own []netip.Addr
}

// A HostVerdict is the answer of [EgressRules].
type HostVerdict struct {
	Allowed bool
	// Rule is the rule that decided, for people: a pattern, or why there is none.
	Rule string
	// ReadOnly permits plain HTTP requests with GET and HEAD only.
	ReadOnly bool
	// Raw permits a tunnel of anything, where otherwise it must hold TLS whose server
	// name is the host: a pattern names exactly this port, and it is not one of the
	// web.
	Raw bool
}

// Rules are the rules of e, whose registries are those of the policy and whose
// machine has the addresses own. Every pattern that cannot be read is reported as a
// [FieldError].
func (e Egress) Rules(registries []string, own []netip.Addr) (*EgressRules, error) {
	level := e.Level
	if level == "" {
		level = Offline
	}
	if !slices.Contains(NetworkLevels(), level) {
		return nil, &FieldError{Field: "network level", Value: fmt.Sprintf("%q", level), Rule: "must be offline, registry, api or open"}
	}
	rules := &EgressRules{level: level}
	var errs []error
	lists := []struct {
		field string
		texts []string
		into  *[]HostPattern
	}{{"allow-host", e.Allow, &rules.allow}, {"deny-host", e.Deny, &rules.deny}}
	if level == Registry {
		lists = append(lists, struct {
			field string
			texts []string
			into  *[]HostPattern
		}{"registries", registries, &rules.allow})
	}
	for _, list := range lists {
		if len(list.texts) > maxHostPatterns {
			errs = append(errs, &FieldError{Field: list.field, Value: fmt.Sprintf("of %d hosts", len(list.texts)),
				Rule: fmt.Sprintf("must be at most %d", maxHostPatterns)})
			continue
		}
		for _, text := range list.texts {
			pattern, err := ParseHostPattern(text)
			var field *FieldError
			if errors.As(err, &field) {
				err = &FieldError{Field: list.field, Value: field.Value, Rule: field.Rule}
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

// Host decides about a host that a program asks for, a name or an address, at a
// port. What a name stands for must pass [EgressRules.Address] as well.
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

// Address decides about an address that a host stands for. One that is not of the
// public internet, or is of this machine, must be listed as an address or a range,
// that of a metadata service as an address.
func (r *EgressRules) Address(addr netip.Addr, port uint16) HostVerdict {
	if !addr.IsValid() {
		return HostVerdict{Rule: "is no address"}
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
			(pattern.prefix.IsSingleIP() || !isMetadata(plain)) {
			return HostVerdict{Allowed: true, Rule: "allowed by " + pattern.String()}
		}
	}
	return HostVerdict{Rule: fmt.Sprintf("the address is %s, and not listed as an address", why)}
}
