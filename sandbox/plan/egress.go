package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// egressEnv returns the variables by which programs find the proxy. The container's own
// loopback addresses need no proxy.
func egressEnv() map[string]string {
	env := map[string]string{}
	for name, value := range map[string]string{
		"HTTP_PROXY": egressURL, "HTTPS_PROXY": egressURL, "ALL_PROXY": egressURL, "NO_PROXY": "localhost,127.0.0.1,::1",
	} {
		env[name], env[strings.ToLower(name)] = value, value
	}
	return env
}

var egressURL = "http://127.0.0.1:" + strconv.Itoa(spec.EgressPort)

// planEgress plans the hosts that a run may reach; nil means none.
func planEgress(req spec.Request, pol policy.Policy) (*spec.Egress, error) {
	asked, err := pol.ApplyEgress(req.Egress)
	errs := []error{err}
	if !req.Egress.Offline() {
		refuse := func(field, value, rule string) {
			errs = append(errs, &policy.FieldError{Field: field, Value: value, Rule: rule})
		}
		level := fmt.Sprintf("%q", req.Egress.Level)
		if req.Network != "" && req.Network != "none" {
			refuse("network level", level, "goes through a proxy; it cannot be had together with the network "+strconv.Quote(req.Network))
		}
		if req.Transfer == spec.TransferCopy {
			refuse("network level", level, "needs an engine on this machine: one whose files are copied cannot reach the proxy")
		}
		for _, name := range slices.Sorted(maps.Keys(egressEnv())) {
			if field := givenBy(req, name); field != "" {
				refuse(field, strconv.Quote(name), "is set by the network level")
			}
		}
	}
	if err := errors.Join(errs...); err != nil || asked == nil {
		return nil, err
	}
	return &spec.Egress{
		Level: string(asked.Level), Allow: asked.Allow, Deny: asked.Deny, Resolve: asked.Resolve,
		Connections: asked.Limits.Connections, Requests: asked.Limits.Requests, Bytes: int64(asked.Limits.Bytes),
		ConnectionTimeSeconds: asked.Limits.ConnectionTime.Seconds(),
	}, nil
}

// openTo gives the container the socket of the proxy, to which its init connects. The
// container still has no network.
func openTo(s *spec.Spec, e *spec.Egress) {
	if e == nil {
		return
	}
	s.Job.Egress = e
	c := &s.Class
	c.Binds = append(c.Binds, spec.Bind{Role: spec.RoleEgress, Target: spec.EgressDir, ReadOnly: true})
	c.Env = spec.MergeEnv(c.Env, spec.SortedEnv(egressEnv()))
}
