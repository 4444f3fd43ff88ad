package cli

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/spf13/pflag"

	"github.com/evalbox/evalbox/policy"
)

// EgressFlags are --allow-host, --add-host and --egress: the hosts that the programs of a command
// may reach.
type EgressFlags struct {
	level      string
	allow, add []string
}

// Register adds the flags to a command.
func (f *EgressFlags) Register(flags *pflag.FlagSet) {
	flags.Var(List(&f.allow, "HOST[:PORT]", One), "allow-host", "host that the program may reach through a proxy (needs allow_egress): a name, *.name, an address or a range")
	flags.Var(List(&f.add, "NAME:ADDRESS", One), "add-host", "address that the proxy takes a name for, instead of looking it up")
	flags.StringVar(&f.level, "egress", "", "network `level` of the proxy: registry, api or open (default: api with --allow-host, else offline)")
}

// Read returns the permitted hosts; nil is offline. All problems are reported at once.
func (f *EgressFlags) Read(a *App) (*policy.Egress, error) {
	level, allow, add := f.level, f.allow, f.add
	usagef := func(format string, args ...any) error { return Usagef(a.Command, format, args...) }
	e := &policy.Egress{Level: policy.NetworkLevel(level), Allow: allow}
	var errs []error
	if level != "" && !slices.Contains(policy.NetworkLevels(), e.Level) {
		errs = append(errs, usagef("--egress %q: must be offline, registry, api or open", level))
	}
	for _, host := range allow {
		if _, err := policy.ParseHostPattern(host); err != nil {
			errs = append(errs, usagef("--allow-host: %s", err))
		}
	}
	for _, text := range add {
		name, addr, err := policy.ParseAddHost(text)
		if err != nil {
			errs = append(errs, usagef("--%s", err))
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
		problem := "--add-host: names an address for a proxy that the run has not: give --allow-host or --egress"
		if len(allow) > 0 {
			problem = "--allow-host: not together with --egress offline"
		}
		errs = append(errs, usagef("%s", problem))
	}
	if err := errors.Join(errs...); err != nil || e.Offline() {
		return nil, err
	}
	return e, nil
}
