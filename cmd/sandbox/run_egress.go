package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/evalbox/evalbox/policy"
)

// egressOf is what the flags --egress, --allow-host and --add-host ask for; nil is
// offline. Everything that cannot be read is reported at once.
func egressOf(level string, allow, add []string) (*policy.Egress, error) {
	e := &policy.Egress{Level: policy.NetworkLevel(level), Allow: allow}
	var errs []error
	if level != "" && !slices.Contains(policy.NetworkLevels(), e.Level) {
		errs = append(errs, usagef("sandbox run", "--egress %q: must be offline, registry, api or open", level))
	}
	for _, host := range allow {
		if _, err := policy.ParseHostPattern(host); err != nil {
			errs = append(errs, usagef("sandbox run", "--allow-host: %s", err))
		}
	}
	for _, text := range add {
		name, addr, err := policy.ParseAddHost(text)
		if err != nil {
			errs = append(errs, usagef("sandbox run", "--%s", err))
			continue
		}
		if e.Resolve == nil {
			e.Resolve = map[string][]netip.Addr{}
		}
		e.Resolve[name] = append(e.Resolve[name], addr)
	}
	if level == "" && len(allow) > 0 {
		e.Level = policy.API
	}
	if e.Offline() && len(allow)+len(add) > 0 {
		errs = append(errs, usagef("sandbox run", "%s", noLevel(len(allow) > 0)))
	}
	if err := errors.Join(errs...); err != nil || e.Offline() {
		return nil, err
	}
	return e, nil
}

// noLevel is what is wrong with hosts and no way to them.
func noLevel(allowed bool) string {
	if allowed {
		return fmt.Sprintf("--allow-host: not together with --egress %s", policy.Offline)
	}
	return "--add-host: names an address for a proxy that the run has not: give --allow-host or --egress"
}
