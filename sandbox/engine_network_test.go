//go:build linux

package sandbox_test

import (
	"testing"

	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

// A network that the engine does not have, or that is the host's by another name,
// is refused before anything is made or recorded.
func TestEngineNetworkRefused(t *testing.T) {
	api := testAPI(t)
	host, err := api.NetworkInspect(t.Context(), "host", network.InspectOptions{})
	require.NoError(t, err)
	r := newRunner(t, sandbox.WithPolicy(policy.Policy{AllowNetwork: true}))
	for name, rule := range map[string]string{
		"evalbox-nosuch": "the engine does not have it; it has ",
		host.ID:          "is the engine's network of the driver host",
		host.ID[:12]:     "is the engine's network of the driver host",
	} {
		req := python(t, "pass")
		req.Network = name
		_, err := r.Run(t.Context(), req)
		var refused *policy.FieldError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "network", refused.Field)
		require.Contains(t, refused.Rule, rule)
	}
	records, err := r.Store().List()
	require.NoError(t, err)
	require.Empty(t, records)
}
