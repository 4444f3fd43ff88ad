package contract

import (
	"slices"

	"github.com/evalbox/evalbox/policy"
)

// Override are the limits of an adapter (AR-08). They fill in what a contract leaves open, and
// never widen what it says (resolution 7).
type Override struct {
	TimeoutMS *int64           `json:"timeout_ms,omitempty"`
	MemoryMB  *int64           `json:"memory_mb,omitempty"`
	Network   *OverrideNetwork `json:"network,omitempty"`
}

// OverrideNetwork is the network of an [Override].
type OverrideNetwork struct {
	Enabled *bool    `json:"enabled,omitempty"`
	Allow   []string `json:"allow,omitempty"` // as [Network.Allow]
}

// Narrowed returns the sandbox of a contract with the limits of its adapter. Of two limits the
// lower one counts. Nothing is checked: [Rules] check the answer.
func (s Sandbox) Narrowed(o Override) Sandbox {
	s.TimeoutMS, s.MemoryMB = lower(s.TimeoutMS, o.TimeoutMS), lower(s.MemoryMB, o.MemoryMB)
	if o.Network != nil {
		s.Network = s.Network.narrowed(*o.Network)
	}
	return s
}

// lower is the lower one of two limits. nil is none.
func lower(a, b *int64) *int64 {
	if a == nil || b != nil && *b < *a {
		return b
	}
	return a
}

func (n Network) narrowed(o OverrideNetwork) Network {
	enabled, unsaid := o.Enabled != nil && *o.Enabled, n.Level == "" && n.Enabled == nil
	switch {
	case o.Enabled != nil && !enabled:
		return Network{Level: string(policy.Offline), Enabled: new(false), Deny: n.Deny}
	case unsaid && enabled:
		n.Enabled = new(true)
	}
	level := n.effectiveLevel()
	if level == policy.Offline || len(o.Allow) == 0 {
		return n
	}
	if level == policy.Open {
		n.Level = string(policy.API)
	}
	if len(n.Allow) > 0 {
		n.Allow = common(n.Allow, o.Allow)
	} else if level != policy.Registry {
		n.Allow = slices.Clone(o.Allow)
	}
	return n
}

// common are the entries of two lists of hosts that the other list covers. Entries that are
// not host patterns stay, so that the rules report them.
func common(a, b []string) []string {
	both := []string{} // not nil: that would open what the other list has
	covered := func(list, by []string) {
		for _, text := range list {
			p, err := policy.ParseHostPattern(text)
			if err != nil || slices.ContainsFunc(by, func(other string) bool {
				q, err := policy.ParseHostPattern(other)
				return err == nil && q.Covers(p)
			}) {
				both = append(both, text)
			}
		}
	}
	covered(a, b)
	covered(b, a)
	slices.Sort(both)
	return slices.Compact(both)
}
