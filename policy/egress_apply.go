package policy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// EgressTable returns the row of every field of [EgressLimits].
func EgressTable() []Limit[EgressLimits] { return slices.Clone(egressTable) }

var egressTable = []Limit[EgressLimits]{
	// Each connection is a process inside the container, and a few descriptors of the proxy.
	{Name: "egress-connections", bounds: in(func(l *EgressLimits) *int { return &l.Connections }, 64, 1, 1000)},
	{Name: "egress-requests", bounds: in(func(l *EgressLimits) *int { return &l.Requests }, 10_000, 1, 10_000_000)},
	{Name: "egress-bytes", bounds: in(func(l *EgressLimits) *Size { return &l.Bytes }, 4*GiB, 1, 0)},
	{Name: "egress-time", bounds: in(func(l *EgressLimits) *time.Duration { return &l.ConnectionTime }, 30*time.Minute, time.Second, 7*24*time.Hour)},
}

// ApplyEgress returns the egress that a request gets: checked against the policy, with lists
// in their normal form and every limit with its effective value. At the level registry the
// package registries of the policy are among the allowed hosts. Each broken rule is reported
// as a [FieldError], joined. The answer for nil and for the level offline is nil.
func (p Policy) ApplyEgress(asked *Egress) (*Egress, error) {
	if asked.Offline() {
		return nil, nil //nolint:nilnil // nil is the egress that reaches nothing
	}
	e := Egress{Level: asked.Level, Limits: filled(egressTable, asked.Limits, p.EgressDefaults, p.MaxEgress)}
	errs := []error{p.checkLevel(*asked)}
	rules, err := asked.Rules(p.Registries, nil)
	errs = append(errs, err)
	if err == nil {
		e.Allow, e.Deny = patternTexts(rules.allow), patternTexts(rules.deny)
		errs = append(errs, p.checkPrivate(rules.allow)...)
	}
	e.Resolve, err = resolveTable(asked.Resolve)
	errs = append(errs, err)
	var above []error
	for _, row := range egressTable {
		errs = append(errs, row.bounds.check(row.Name, &e.Limits))
		above = append(above, row.bounds.below(row.Name, &e.Limits, &p.MaxEgress))
	}
	errs = append(errs, above...)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &e, nil
}

// checkLevel refuses a level above the one that the policy permits.
func (p Policy) checkLevel(asked Egress) error {
	rank := func(level NetworkLevel) int { return slices.Index(NetworkLevels(), level) }
	permitted := cmp.Or(p.AllowEgress, Offline)
	refuse := func(rule string) error {
		return &FieldError{Field: "network level", Value: fmt.Sprintf("%q", asked.Level), Rule: rule}
	}
	switch {
	case rank(asked.Level) < 0:
		return nil // reported with the rules
	case rank(permitted) < 0:
		return fmt.Errorf("policy: the highest network level is %q: must be offline, registry, api or open", permitted)
	case rank(asked.Level) > rank(permitted):
		return refuse(fmt.Sprintf("the policy permits %s at most (allow_egress)", permitted))
	case asked.Level == Registry && permitted == Registry && len(asked.Allow) > 0:
		return refuse("the policy permits package registries only, and the request lists other hosts (allow_egress)")
	case asked.Level == Registry && len(p.Registries) == 0:
		return refuse("the policy names no package registries")
	}
	return nil
}

// checkPrivate refuses patterns that open addresses which are not public, unless the
// policy permits that: they lead to the machine itself and to the machines that trust it.
func (p Policy) checkPrivate(allow []HostPattern) []error {
	var errs []error
	for i, pattern := range allow {
		if !p.AllowPrivateEgress && pattern.prefix.IsValid() && !pattern.isPublic() {
			errs = append(errs, &FieldError{Field: "allow-host", Value: fmt.Sprintf("%q", pattern),
				Rule: "is not public, and the policy permits public addresses only (allow_private_egress)", Entry: i + 1})
		}
	}
	return errs
}

// isPublic reports whether every address of a range is public.
func (p HostPattern) isPublic() bool {
	first := p.prefix.Masked().Addr()
	if notPublic(plainAddr(first)) != "" {
		return false
	}
	ranges := special6
	if first.Is4() {
		ranges = special4
	}
	return !slices.ContainsFunc(ranges, func(r addressRange) bool { return r.prefix.Overlaps(p.prefix) }) &&
		!slices.ContainsFunc(metadata, p.prefix.Contains)
}

// resolveTable is the table of names in their normal form.
func resolveTable(asked map[string][]netip.Addr) (map[string][]netip.Addr, error) {
	if len(asked) > maxHostPatterns {
		return nil, &FieldError{Field: "add-host", Value: fmt.Sprintf("of %d names", len(asked)), Rule: fmt.Sprintf("must be at most %d", maxHostPatterns)}
	}
	table := make(map[string][]netip.Addr, len(asked))
	var errs []error
	for _, host := range slices.Sorted(maps.Keys(asked)) {
		refuse := func(rule string) {
			errs = append(errs, &FieldError{Field: "add-host", Value: fmt.Sprintf("%.200q", host), Rule: rule})
		}
		name, addr, err := NormalizeHost(host)
		addrs := asked[host]
		switch {
		case err != nil:
			refuse(err.Error())
		case addr.IsValid():
			refuse("is an address, not a name")
		case len(addrs) == 0 || len(addrs) > 16:
			refuse("must have 1 to 16 addresses")
		case slices.ContainsFunc(addrs, func(a netip.Addr) bool { return !a.IsValid() || a.Zone() != "" }):
			refuse("has an address that is not valid, or that has a zone")
		case table[name] != nil:
			refuse("is there twice: " + name)
		default:
			table[name] = slices.Clone(addrs)
		}
	}
	return table, errors.Join(errs...)
}

// ParseAddHost reads one entry NAME:ADDRESS of the table of names, as docker run
// does; an IPv6 address may be in brackets.
func ParseAddHost(text string) (name string, addr netip.Addr, err error) {
	name, address, _ := strings.Cut(text, ":")
	if inner, ok := strings.CutPrefix(address, "["); ok {
		address = strings.TrimSuffix(inner, "]")
	}
	addr, ok := parseAddr(address)
	if _, named, err := NormalizeHost(name); err != nil || named.IsValid() || !ok {
		return "", netip.Addr{}, &FieldError{Field: "add-host", Value: fmt.Sprintf("%.200q", text), Rule: "must be NAME:ADDRESS, such as db.example.org:10.0.0.7"}
	}
	return name, addr, nil
}

// patternTexts are patterns in their normal form, each once.
func patternTexts(patterns []HostPattern) []string {
	texts := make([]string, 0, len(patterns))
	for _, pattern := range patterns {
		if text := pattern.String(); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return texts
}
