package contract

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
)

// An adapter fills in what a contract leaves open, and widens nothing.
func TestNarrowed(t *testing.T) {
	on, off := new(true), new(false)
	for name, c := range map[string]struct {
		contract Sandbox
		override Override
		want     Sandbox
	}{
		"nothing said":         {Sandbox{}, Override{TimeoutMS: new(int64(5000)), MemoryMB: new(int64(256))}, Sandbox{TimeoutMS: new(int64(5000)), MemoryMB: new(int64(256))}},
		"the contract is less": {Sandbox{TimeoutMS: new(int64(2000))}, Override{TimeoutMS: new(int64(60000))}, Sandbox{TimeoutMS: new(int64(2000))}},
		"the adapter is less":  {Sandbox{MemoryMB: new(int64(512))}, Override{MemoryMB: new(int64(128))}, Sandbox{MemoryMB: new(int64(128))}},
		"no override":          {Sandbox{MemoryMB: new(int64(100))}, Override{}, Sandbox{MemoryMB: new(int64(100))}},
		"network opened where nothing is said": {
			Sandbox{}, Override{Network: &OverrideNetwork{on, []string{"api.example.com"}}},
			Sandbox{Network: Network{Enabled: on, Allow: []string{"api.example.com"}}},
		},
		"a contract that is offline stays offline": {
			Sandbox{Network: Network{Enabled: off}}, Override{Network: &OverrideNetwork{on, []string{"api.example.com"}}},
			Sandbox{Network: Network{Enabled: off}},
		},
		"the level offline stays offline": {
			Sandbox{Network: Network{Level: "offline"}}, Override{Network: &OverrideNetwork{on, []string{"api.example.com"}}},
			Sandbox{Network: Network{Level: "offline"}},
		},
		"the adapter closes the network": {
			Sandbox{Network: Network{Level: "open", Deny: []string{"x.org"}}}, Override{Network: &OverrideNetwork{Enabled: off}},
			Sandbox{Network: Network{Level: "offline", Enabled: off, Deny: []string{"x.org"}}},
		},
		"open is narrowed to the hosts of the adapter": {
			Sandbox{Network: Network{Level: "open"}}, Override{Network: &OverrideNetwork{on, []string{"api.example.com"}}},
			Sandbox{Network: Network{Level: "api", Allow: []string{"api.example.com"}}},
		},
		"hosts that both permit": {
			Sandbox{Network: Network{Level: "api", Allow: []string{"*.example.com", "b.org:443"}}},
			Override{Network: &OverrideNetwork{on, []string{"api.example.com", "b.org", "c.org"}}},
			Sandbox{Network: Network{Level: "api", Allow: []string{"api.example.com", "b.org:443"}}},
		},
		"no host that both permit": {
			Sandbox{Network: Network{Level: "api", Allow: []string{"a.org"}}}, Override{Network: &OverrideNetwork{on, []string{"b.org"}}},
			Sandbox{Network: Network{Level: "api", Allow: []string{}}},
		},
		"registries stay registries": {
			Sandbox{Network: Network{Level: "registry"}}, Override{Network: &OverrideNetwork{on, []string{"b.org"}}},
			Sandbox{Network: Network{Level: "registry"}},
		},
	} {
		require.Equal(t, c.want, c.contract.Narrowed(c.override), name)
	}
	level := func(n Network) policy.NetworkLevel { return n.effectiveLevel() }
	opened := Network{}.narrowed(OverrideNetwork{on, []string{"a.org"}})
	require.Equal(t, policy.API, level(opened))
}
